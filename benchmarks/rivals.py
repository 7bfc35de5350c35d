"""Policies outside the package, for comparison: Optuna's TPE, and the design that this package replaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskmetrics.bandit import Choice, State
from daskmetrics.bandit.policies._averages import averages
from daskmetrics.bandit.policies.baselines import by_arms
from daskmetrics.bandit.replay import ReplayPlan, ReplayStep, ReplayTrial, Setting, ground_truth
from daskmetrics.core.names import seed_of


def tpe(state: State) -> Choice | None:
    """Optuna's tree-structured Parzen estimator, paying for whole arms: the open arm nearest to its proposal.

    After Bergstra, Bardenet, Bengio and Kegl, "Algorithms for hyper-parameter optimization" (NeurIPS 2011). A
    new study is built from the finished arms whenever an arm is started, so that the policy is a function of its state.
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
        parameters: dict[str, Any] = {
            "model": state.problem.arms[arm].model,
            "time": float(features[arm, 0]),
            "depth": float(features[arm, 1]),
        }
        study.add_trial(optuna.trial.create_trial(params=parameters, distributions=space, value=float(values[arm])))
    proposed = study.ask(space).params
    return proposed["model"], np.array([proposed["time"], proposed["depth"]])


def replaced(plan: ReplayPlan, seed: int) -> ReplayTrial:
    """LinUCB of the replaced design, from its description: one matrix per arm; it recommends the best measured arm.

    An arm without a pull has theta = 0 and A = I, so its bound is the norm of its context (here its standardised
    features). Each arm is pulled once, so no measurement has an effect on the next pull.
    """
    table = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(table)
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
