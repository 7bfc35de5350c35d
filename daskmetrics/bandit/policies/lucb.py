"""Lower and upper confidence bounds: the leader and its strongest challenger, each on its next cheapest task.

After Kalyanakrishnan, Tewari, Auer and Stone, "PAC subset selection in stochastic multi-armed bandits" (ICML 2012),
for one best arm. A pull of an arm is its next task in order of cost. Where the paper draws from an endless population,
the tasks are finite: the bounds close when all are tried. Its union bound never parts arms in so few pulls; the bounds
here are `WIDTH` standard deviations wide.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit._policy import Choice, State, Why
from daskmetrics.bandit._posterior import first_max
from daskmetrics.bandit.policies._averages import Averages, averages, next_try, order_of_cost

WIDTH = 2.0  #: of a bound, in standard deviations


def ask(state: State) -> Choice | None:
    """Every arm once on the cheapest task; then leader or challenger, whichever was tried less.

    None when the leader's lower bound is above all others' upper bounds, or nothing open is left of those above it.
    """
    known = averages(state)
    new = np.flatnonzero((known.tries == 0) & state.open[:, order_of_cost(state.problem)].any(axis=1))
    if len(new):
        return next_try(state, int(new[0]))
    leader = first_max(known.value, state.usable)
    for arm in _contenders(state, known, leader):
        if choice := next_try(state, arm):
            why: Why = {"leader": str(state.problem.arms[leader]), "tries": float(known.tries[arm])}
            return Choice(choice.arm, choice.task, why)
    return None


def _contenders(state: State, known: Averages, leader: int) -> list[int]:
    """Leader and first challenger, the less tried first; then the other arms that may still be the best."""
    upper = known.value + WIDTH * known.sd
    lower = known.value[leader] - WIDTH * known.sd[leader]
    rivals = [int(arm) for arm in np.argsort(-upper, kind="stable") if arm != leader and state.usable[arm]]
    rivals = [arm for arm in rivals if upper[arm] > lower]
    if not rivals:
        return []
    pair = sorted([leader, rivals[0]], key=lambda arm: int(known.tries[arm]))
    return [*pair, *rivals[1:]]
