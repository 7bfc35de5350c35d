"""Top-two Thompson sampling: the best arm of one joint draw of all objectives, or the best arm of another draw.

After Russo, "Simple Bayesian algorithms for best arm identification" (COLT 2016), section 3.3 with beta = 1/2. The
draws come from the joint posterior, which shares information between arms and tasks; the drawn arm is scored on the
cheapest task on which it was not scored.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit._policy import Choice, State
from daskmetrics.bandit._posterior import greatest
from daskmetrics.bandit.policies._averages import next_pull

__all__ = ["ask"]

JOINT = 128  #: arms drawn together: those with the greatest upper bounds
DRAWS = 64  #: draws among which a second winner is sought


def ask(state: State) -> Choice | None:
    """Choose a cell of one of two arms that may be the best; None if no drawn arm has an open cell."""
    posterior, rng = state.posterior, state.random()
    bound = np.where(state.usable, posterior.mean + 3 * posterior.sd, -np.inf)
    arms = greatest(bound, JOINT)
    values, vectors = np.linalg.eigh(posterior.covariance(arms, arms))
    root = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding makes the smallest eigenvalues negative
    draws = posterior.mean[arms] + rng.standard_normal((DRAWS, len(arms))) @ root.T
    drawn = arms[draws.argmax(axis=1)]
    _, first = np.unique(drawn, return_index=True)
    distinct = drawn[np.sort(first)]  # the winners, in the order of the draws
    if rng.random() < 0.5 and len(distinct) > 1:
        distinct[:2] = distinct[1::-1].copy()
    for arm in distinct:
        if choice := next_pull(state, int(arm)):
            return choice
    return None
