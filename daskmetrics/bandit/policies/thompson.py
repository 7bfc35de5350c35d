"""Top-two Thompson sampling: the winner of one joint draw of all arms' objectives, or that of another draw.

After Russo, "Simple Bayesian algorithms for best arm identification" (COLT 2016), section 3.3 with beta = 1/2. The
draws are joint, from the posterior that shares strength between arms and tasks; the arm drawn is tried on the cheapest
task that it lacks.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import greatest
from daskmetrics.bandit._problem import Ints
from daskmetrics.bandit.policies._averages import next_try

JOINT = 128  #: arms drawn together: those with the greatest upper bound
DRAWS = 64  #: draws in which a second winner is looked for


def ask(state: State) -> Choice | None:
    """Choose a cell of one of two arms that may be the best; None when no drawn arm has an open cell."""
    for arm in _winners(state):
        if choice := next_try(state, int(arm)):
            return choice
    return None


def _winners(state: State) -> Ints:
    """Winners of the draws, each once: first and second in random order, then the others as they were drawn."""
    belief, rng = state.belief, state.random()
    bound = np.where(state.usable, belief.mean + 3 * belief.sd, -np.inf)
    arms = greatest(bound, JOINT)
    values, vectors = np.linalg.eigh(belief.covariance(arms, arms))
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding makes the least eigenvalues negative
    draws = belief.mean[arms] + rng.standard_normal((DRAWS, len(arms))) @ root.T
    drawn = arms[draws.argmax(axis=1)]
    _, first = np.unique(drawn, return_index=True)
    distinct = drawn[np.sort(first)]
    if rng.random() < 0.5:
        distinct[:2] = distinct[1::-1].copy() if len(distinct) > 1 else distinct[:2]
    return np.asarray(distinct)
