"""LinUCB with parameters that all arms share, paying for whole arms.

After Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article recommendation"
(WWW 2010), with one linear model for all arms. Their algorithm 1, which keeps a model per arm, can learn nothing where
no arm is pulled twice.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policies.whole import by_arms, design, ridge
from daskmetrics.bandit.policy import Choice, State
from daskmetrics.bandit.problem import Floats, Ints

ALPHA = 1.0  #: weight of the uncertainty, in standard deviations of the arms' values


def ask(state: State) -> Choice | None:
    """Choose the next cell of the arm with the greatest upper bound; None when no whole arm can be paid."""

    def bound(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        features = design(state.problem)[arms]
        return np.asarray(features @ weights + ALPHA * np.sqrt(((features @ covariance) * features).sum(axis=1)))

    return by_arms(state, bound)
