"""Ways to search that are not in the package, to compare with: Optuna's TPE, and the design that was replaced."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskmetrics.bandit import Choice, State
from daskmetrics.bandit.policies._averages import averages
from daskmetrics.bandit.policies.baselines import by_arms
from daskmetrics.bandit.replay import ReplayPlan, ReplayStep, ReplayTrial, Setting, ground_truth
from daskmetrics.core.names import seed_of


def tpe(state: State) -> Choice | None:
    """Optuna's tree-structured Parzen estimator, paying for whole arms: the free arm nearest to what it proposes.

    After Bergstra, Bardenet, Bengio and Kegl, "Algorithms for hyper-parameter optimization" (NeurIPS 2011). A study is
    built anew from the finished arms whenever an arm is to be begun, so that the policy is a function of its state.
    """

    def nearness(arms: np.ndarray) -> np.ndarray:
        model, place = _proposal(state)
        names = [state.problem.arms[arm].model for arm in arms]
        distance = np.linalg.norm(state.problem.features[arms, :2] - place, axis=1)
        return -distance - np.array([name != model for name in names])

    return by_arms(state, nearness)


def _proposal(state: State) -> tuple[str, np.ndarray]:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space: dict[str, BaseDistribution] = {
        "model": CategoricalDistribution(state.problem.models),
        "time": FloatDistribution(0, 1),
        "depth": FloatDistribution(0, 1),
    }
    sampler = optuna.samplers.TPESampler(seed=seed_of("tpe", state.seed, len(state.cells)) % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    values, features = averages(state).value, state.problem.features
    for arm in np.flatnonzero(state.complete & state.usable):
        told: dict[str, Any] = {
            "model": state.problem.arms[arm].model,
            "time": float(features[arm, 0]),
            "depth": float(features[arm, 1]),
        }
        study.add_trial(optuna.trial.create_trial(params=told, distributions=space, value=float(values[arm])))
    asked = study.ask(space).params
    return asked["model"], np.array([asked["time"], asked["depth"]])


def replaced(plan: ReplayPlan, seed: int) -> ReplayTrial:
    """The replaced design's LinUCB, by its description: a matrix per arm; the best arm measured is the answer.

    An arm that was not pulled has theta = 0 and A = I, so that its bound is the norm of its context (here its features,
    standardised); an arm is pulled once. What is measured thus has no say in what is pulled next.
    """
    table = plan.terms.of_seed(plan.table, seed)
    problem = plan.terms.build_problem(table)
    features = problem.features
    contexts = (features - features.mean(axis=0)) / np.where(features.std(axis=0) > 0, features.std(axis=0), 1.0)
    order = np.argsort(-np.linalg.norm(contexts, axis=1), kind="stable")
    cost = np.cumsum(problem.arm_cost[order])
    loss = np.minimum.accumulate(ground_truth(table, problem).loss[order])
    kept = cost <= plan.budget * problem.exhaustive_cost
    path = tuple(
        ReplayStep(float(c / problem.exhaustive_cost), float(c), float(lost), float("nan"))
        for c, lost in zip(cost[kept], loss[kept], strict=True)
    )
    return ReplayTrial(Setting("replaced LinUCB"), seed, path, len(problem.tasks) * len(path), 1.0)
