"""Thompson sampling of a linear model that all arms share, paying for whole arms.

After Agrawal and Goyal, "Thompson sampling for contextual bandits with linear payoffs" (ICML 2013). Their factor on
the covariance, which the proof needs, is left at one.
"""

from __future__ import annotations

import numpy as np

from daskmetrics.bandit.policies.whole import by_arms, design, ridge
from daskmetrics.bandit.policy import Choice, State
from daskmetrics.bandit.problem import Floats, Ints


def ask(state: State) -> Choice | None:
    """Choose the next cell of the arm that is best under one draw of the model; None when none can be paid."""

    def drawn(arms: Ints) -> Floats:
        weights, covariance = ridge(state)
        values, vectors = np.linalg.eigh(covariance)
        normal = state.random().standard_normal(len(weights))
        return np.asarray(design(state.problem)[arms] @ (weights + vectors @ (np.sqrt(np.maximum(values, 0)) * normal)))

    return by_arms(state, drawn)
