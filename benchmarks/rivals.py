"""Rivals outside the package: Optuna's TPE, the design that this package replaces, and a rule of
thumb.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from policies import averages, by_arms, complete
from replay import ReplayPlan, ReplayStep, ReplayTrial, Setting, true_losses

from daskmetrics.bandit import Choice, State
from daskmetrics.core.keys import seed_of


def tpe(state: State) -> Choice | None:
    """Optuna's tree-structured Parzen estimator, paying for whole arms: the open arm nearest to its
    proposal.

    After Bergstra, Bardenet, Bengio and Kegl, "Algorithms for hyper-parameter optimization"
    (NeurIPS 2011). A new study is built from the finished arms whenever an arm is started, so that
    the policy is a function of its state.
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
    for arm in np.flatnonzero(complete(state) & state.usable):
        parameters: dict[str, Any] = {
            "model": state.problem.arms[arm].model,
            "time": float(features[arm, 0]),
            "depth": float(features[arm, 1]),
        }
        study.add_trial(
            optuna.trial.create_trial(
                params=parameters, distributions=space, value=float(values[arm])
            )
        )
    proposed = study.ask(space).params
    return proposed["model"], np.array([proposed["time"], proposed["depth"]])


def replaced(plan: ReplayPlan, seed: int) -> ReplayTrial:
    """LinUCB of the replaced design, from its description: one matrix per arm; it recommends the
    best measured arm.

    An arm without a pull has theta = 0 and A = I, so its bound is the norm of its context (here its
    standardised features). Each arm is pulled once, so no measurement has an effect on the next
    pull.
    """
    table = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(table)
    features = problem.features
    contexts = (features - features.mean(axis=0)) / np.where(
        features.std(axis=0) > 0, features.std(axis=0), 1.0
    )
    order = np.argsort(-np.linalg.norm(contexts, axis=1), kind="stable")
    cost = np.cumsum(problem.arm_cost[order])
    loss = np.minimum.accumulate(true_losses(table, problem)[order])
    kept = cost <= plan.budget * problem.exhaustive_cost
    path = tuple(
        ReplayStep(float(c / problem.exhaustive_cost), float(c), float(lost), float("nan"))
        for c, lost in zip(cost[kept], loss[kept], strict=True)
    )
    return ReplayTrial(Setting("replaced LinUCB"), seed, path, 1.0)


DEPTH = 0.6  # of the rule of thumb
_MILLIONS = {"m": 1.0, "b": 1e3}


def sixty_percent_depth(plan: ReplayPlan, seed: int) -> ReplayTrial:
    """The rule of thumb "60 % depth": it recommends an arm without paying for any cell.

    It takes the layer that is nearest to 60 % of the depth (of two, the shallower one) of the last
    checkpoint of the largest model, among the arms with all scores. The largest is the one with the
    most parameters by its name (``mamba-370m``, ``LLM2Vec-mntp-8B``), then the deepest; a name that
    says no size counts as the smallest.
    """
    table = plan.scenario.draw_tasks(plan.table, seed)
    loss = true_losses(table, plan.scenario.build_problem(table))
    complete = [arm for arm, lost in zip(table.arms, loss, strict=True) if np.isfinite(lost)]
    models = {arm.model for arm in complete}
    suite = max(
        (s for s in table.suites if s.model in models),
        key=lambda s: (parameters_named(s.model), s.depth),
    )
    revisions = {arm.revision for arm in complete if arm.model == suite.model}
    last = [revision for revision in suite.revisions if revision in revisions][-1]
    layers = [arm for arm in complete if (arm.model, arm.revision) == (suite.model, last)]
    arm = min(layers, key=lambda arm: (abs(arm.layer / suite.depth - DEPTH), arm.layer))
    path = (ReplayStep(0.0, 0.0, float(loss[table.arms.index(arm)]), float("nan")),)
    return ReplayTrial(Setting("60 % depth"), seed, path, float("nan"))


def parameters_named(model: str) -> float:
    """Millions of parameters by the name of a model; 0 if it says none.

    >>> parameters_named("mamba-370m"), parameters_named("LLM2Vec-mntp-8B"), parameters_named("tiny")
    (370.0, 8000.0, 0.0)
    """
    found = re.findall(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)([mb])(?![a-z0-9])", model.lower())
    return max((float(number) * _MILLIONS[unit] for number, unit in found), default=0.0)
