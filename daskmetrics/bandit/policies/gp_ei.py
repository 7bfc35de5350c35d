"""Expected improvement of the search's own Gaussian process, paying for whole arms.

After Jones, Schonlau and Welch, "Efficient global optimization of expensive black-box functions" (Journal of Global
Optimization 13, 1998), eq. 15. Arms that are pending count as observed at their expected value.
"""

from __future__ import annotations

import math

import numpy as np

from daskmetrics.bandit.policies.race import normal_tail
from daskmetrics.bandit.policies.whole import by_arms
from daskmetrics.bandit.policy import Choice, State
from daskmetrics.bandit.problem import Floats, Ints


def ask(state: State) -> Choice | None:
    """Choose the next cell of the arm that may improve most on the best finished one; None when none can be paid."""

    def improvement(arms: Ints) -> Floats:
        mean, sd = state.belief.mean, state.belief.sd
        done = state.settled & state.usable
        best = float(mean[done].max()) if done.any() else float(mean.mean())
        return expected_improvement(mean[arms] - best, sd[arms])

    return by_arms(state, improvement)


def expected_improvement(lead: Floats, sd: Floats) -> Floats:
    """E[max(0, x)] of normal variables with these means and standard deviations.

    Examples
    --------
    >>> expected_improvement(np.array([0.0, 1.0, -1.0]), np.array([1.0, 0.0, 1.0])).round(4).tolist()
    [0.3989, 1.0, 0.0833]
    """
    spread = np.maximum(sd, 1e-12)
    distance = lead / spread
    return np.asarray(lead * normal_tail(-distance) + spread * np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi))
