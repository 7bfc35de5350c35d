"""Upper confidence bound of the search's own Gaussian process, paying for whole arms.

After Srinivas, Krause, Kakade and Seeger, "Gaussian process optimization in the bandit setting" (ICML 2010), theorem 1
for finite sets, with the bound's square scaled down by five as in their experiments.
"""

from __future__ import annotations

import math

import numpy as np

from daskmetrics.bandit.policies.whole import by_arms
from daskmetrics.bandit.policy import Choice, State
from daskmetrics.bandit.problem import Floats, Ints

DELTA = 0.1  #: probability with which the bounds may fail
SCALE = 5.0


def ask(state: State) -> Choice | None:
    """Choose the next cell of the arm with the greatest upper bound; None when no whole arm can be paid."""

    def bound(arms: Ints) -> Floats:
        turn = 1 + int(state.paid.any(axis=1).sum())
        beta = 2 * math.log(len(state.problem.arms) * turn**2 * math.pi**2 / (6 * DELTA)) / SCALE
        return np.asarray(state.belief.mean[arms] + math.sqrt(beta) * state.belief.sd[arms])

    return by_arms(state, bound)
