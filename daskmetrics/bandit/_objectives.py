"""Objectives: the weights of the tasks for which the best arm is sought, and the best arm of every kind of task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from daskmetrics.bandit._policy import State, recommended_arm
from daskmetrics.bandit._posterior import fit_posterior
from daskmetrics.bandit._problem import Bools
from daskmetrics.bandit._recommend import confidence
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Arm

ALL = "all"  #: the objective that contains every task


def task_weights(
    kinds: Mapping[str, str], objective: str = ALL, weights: Mapping[str, float] | None = None
) -> list[float]:
    """Weight of every task in an objective.

    Parameters
    ----------
    kinds : mapping of str to str
        Kind of each task, by name.
    objective : str
        ``all``, a kind or a task; all other tasks have weight 0.
    weights : mapping of str to float
        Weights of some tasks; the default is 1.

    Raises
    ------
    ConfigError
        If a name is neither a task nor a kind (the message names the nearest valid one), or if no task has a positive
        weight.

    Examples
    --------
    >>> task_weights({"order": "pairs", "package": "classes", "module": "classes"}, "classes", {"module": 2})
    [0.0, 1.0, 2.0]
    """
    given = dict(weights or {})
    for name in given:
        if name not in kinds:
            raise unknown("task in 'search.weights':", name, kinds)
    if objective not in {ALL, *kinds, *kinds.values()}:
        raise unknown("objective", objective, {ALL, *kinds, *kinds.values()})
    result = [float(given.get(name, 1.0)) if objective in (ALL, name, kind) else 0.0 for name, kind in kinds.items()]
    if not sum(result) > 0:
        raise ConfigError(f"No task of the objective '{objective}' has a positive weight: {given}. Increase a weight.")
    return result


@dataclass(frozen=True)
class Champion:
    """The best arm for one kind of task; expected to be the best if it was not scored on all of ``tasks``."""

    kind: str
    tasks: tuple[str, ...]  # of this kind, those with a weight if there are any
    arm: Arm
    value: float  # posterior mean of its mean over these tasks, in units of the reward ...
    sd: float  # ... and its standard deviation
    probability_best: float  # that no other arm is better on these tasks
    score: float | None  # its weighted mean raw score over those of the tasks on which it was scored ...
    scored: int  # ... and their number


def champions(state: State, kinds: Mapping[str, str]) -> tuple[Champion, ...]:
    """The recommended arm of every kind of task, from the scores of all tasks; empty if there is only one kind.

    Parameters
    ----------
    state : State
        Pending cells do not count as observed.
    kinds : mapping of str to str
        Kind of each task, by name.
    """
    distinct = sorted({kinds[task] for task in state.problem.tasks})
    if len(distinct) < 2 or not len(state.observations):
        return ()
    return tuple(_champion(state, np.array([kinds[t] == kind for t in state.problem.tasks]), kind) for kind in distinct)


def _champion(state: State, of_kind: Bools, kind: str) -> Champion:
    problem, seen = state.problem, state.observations
    weighted = (of_kind & problem.in_objective).any()
    weights = of_kind * problem.objective_weights if weighted else of_kind.astype(float)
    posterior = fit_posterior(replace(problem, weights=tuple(weights.tolist())), seen)
    arm = recommended_arm(posterior, seen, state.usable)
    own = seen.take((seen.arm == arm) & (weights[seen.task] > 0))
    return Champion(
        kind=kind,
        tasks=tuple(problem.tasks[task] for task in np.flatnonzero(weights)),
        arm=problem.arms[arm],
        value=float(posterior.mean[arm]),
        sd=float(posterior.sd[arm]),
        probability_best=confidence(posterior, arm, 0.0, state.seed).best,
        score=float(np.average(own.score, weights=weights[own.task])) if len(own) else None,
        scored=len(own),
    )
