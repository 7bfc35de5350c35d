"""What an arm should be best at: all tasks by weight, one kind of task or one task; and the best arm of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from daskmetrics.bandit._policy import State
from daskmetrics.bandit._posterior import first_max, fit
from daskmetrics.bandit._problem import Bools
from daskmetrics.bandit._recommend import confidence
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Arm

ALL = "all"  #: the objective that every task is part of


def weigh(kinds: Mapping[str, str], objective: str = ALL, weights: Mapping[str, float] | None = None) -> list[float]:
    """Weight of every task in an objective.

    Parameters
    ----------
    kinds : mapping of str to str
        Kind of each task, by name.
    objective : str
        ``all``, a kind or a task: other tasks get weight 0.
    weights : mapping of str to float
        Of some tasks; 1 where not given.

    Raises
    ------
    ConfigError
        For a name that is neither task nor kind, with the nearest valid one, or if no task is left.

    Examples
    --------
    >>> weigh({"order": "pairs", "package": "classes", "module": "classes"}, "classes", {"module": 2})
    [0.0, 1.0, 2.0]
    """
    given = dict(weights or {})
    for name in given:
        if name not in kinds:
            raise unknown("task in 'search.weights':", name, kinds)
    if objective not in {ALL, *kinds, *kinds.values()}:
        raise unknown("objective", objective, {ALL, *kinds, *kinds.values()})
    wanted = {name for name, kind in kinds.items() if objective in (ALL, name, kind)}
    found = [float(given.get(name, 1.0)) if name in wanted else 0.0 for name in kinds]
    if not sum(found) > 0:
        raise ConfigError(f"No task of the objective '{objective}' has a positive weight: {given}. Raise one.")
    return found


@dataclass(frozen=True)
class Champion:
    """The best arm of one kind of task, as far as is known.

    Attributes
    ----------
    kind : str
    tasks : tuple of str
        Of this kind.
    arm : Arm
    value, sd : float
        Belief about its mean over these tasks, in units of the reward.
    probability_best : float
        That no other arm is better at them, under the posterior.
    score : float or None
        Its mean raw score over those of them that it was scored on.
    scored : int
        How many these are.
    """

    kind: str
    tasks: tuple[str, ...]
    arm: Arm
    value: float
    sd: float
    probability_best: float
    score: float | None
    scored: int


def champions(state: State, kinds: Mapping[str, str]) -> tuple[Champion, ...]:
    """The best usable arm of every kind of task, from the posterior of all scores; none if there is one kind only.

    Parameters
    ----------
    state : State
        Pending cells are not taken as observed.
    kinds : mapping of str to str
        Kind of each task, by name.
    """
    distinct = sorted({kinds[task] for task in state.problem.tasks})
    if len(distinct) < 2 or not len(state.seen):
        return ()
    return tuple(_champion(state, np.array([kinds[t] == kind for t in state.problem.tasks]), kind) for kind in distinct)


def _champion(state: State, own: Bools, kind: str) -> Champion:
    problem, seen = state.problem, state.seen
    weights = own * problem.shares if (own & problem.wanted).any() else own.astype(float)
    belief = fit(replace(problem, weights=tuple(weights.tolist())), seen)
    arm = first_max(belief.mean, state.usable)
    scores = seen.score[(seen.arm == arm) & own[seen.task]]
    return Champion(
        kind=kind,
        tasks=tuple(problem.tasks[task] for task in np.flatnonzero(own)),
        arm=problem.arms[arm],
        value=float(belief.mean[arm]),
        sd=float(belief.sd[arm]),
        probability_best=confidence(belief, arm, 0.0, state.seed).best,
        score=float(scores.mean()) if len(scores) else None,
        scored=len(scores),
    )
