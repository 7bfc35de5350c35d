"""Lower and upper confidence bounds: the leader and its strongest challenger, each on its next cheapest task.

After Kalyanakrishnan, Tewari, Auer and Stone, "PAC subset selection in stochastic multi-armed bandits" (ICML 2012),
for a single best arm. A pull of an arm is its next task in order of cost. The paper draws from an infinite population;
here the tasks are finite, so an interval has width zero once all tasks are scored. With so few pulls the union bound of
the paper never separates two arms; the bounds here are `WIDTH` standard deviations wide.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit._policy import Choice, State, Why
from daskmetrics.bandit._posterior import first_max
from daskmetrics.bandit.policies._averages import averages, next_pull, tasks_by_cost

__all__ = ["ask"]

WIDTH = 2.0  #: half width of an interval, in standard deviations


def ask(state: State) -> Choice | None:
    """Choose each arm once on the cheapest task; then the leader or the challenger, whichever has fewer pulls.

    None if the leader's lower bound is above all other upper bounds, or if no arm above it has an open cell.
    """
    known = averages(state)
    new = np.flatnonzero((known.pulls == 0) & state.open[:, tasks_by_cost(state.problem)].any(axis=1))
    if len(new):
        return next_pull(state, int(new[0]))
    leader = first_max(known.value, state.usable)
    upper, lower = known.value + WIDTH * known.sd, known.value[leader] - WIDTH * known.sd[leader]
    may_win = state.usable & (upper > lower)
    rivals = [int(arm) for arm in np.argsort(-upper, kind="stable") if may_win[arm] and arm != leader]
    if not rivals:
        return None
    # of the leader and the first challenger the one with fewer pulls, then the others
    for arm in (*sorted([leader, rivals[0]], key=lambda arm: int(known.pulls[arm])), *rivals[1:]):
        if choice := next_pull(state, arm):
            why: Why = {"leader": str(state.problem.arms[leader]), "tries": float(known.pulls[arm])}
            return Choice(choice.arm, choice.task, why)
    return None
