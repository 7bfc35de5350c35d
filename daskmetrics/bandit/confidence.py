"""How sure a search may be: of having the best arm, or one that is within a margin of it.

Two things are counted here which the posterior leaves out, since they change no decision. Its scale is an estimate: the
draws follow a t distribution with as many degrees of freedom as the scale was learnt from (Gelman et al., 2013, section
3.2). And it has one variance for all arms, while good arms, near each other in training and depth, differ by less.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from daskmetrics.arms import seed_of
from daskmetrics.bandit.posterior import Posterior, greatest
from daskmetrics.bandit.problem import Bools, Floats, Ints, Observations

JOINT = 256  #: arms drawn together: those with the greatest upper bound; an arm beyond them has no say
DRAWS = 4096  #: a probability of one half has a standard error of 0.008
CREDIBLE = 0.95  #: probability that the best arm is in the credible set
CLOSER = 0.8  #: good arms' deviations, of those that one variance for all expects; by replay: docs/figures/policies.md


@dataclass(frozen=True)
class Confidence:
    """Probabilities that an arm is the best and that it is within a margin of the best, and who else may be it.

    Attributes
    ----------
    best, within : float
    margin : float
        In units of the reward.
    credible : tuple of int
        The fewest arms among which the best one is with probability `CREDIBLE`, the likeliest first.
    """

    best: float
    within: float
    margin: float
    credible: tuple[int, ...]


def confidence(belief: Posterior, arm: int, margin: float, seed: int, usable: Bools | None = None) -> Confidence:
    """From joint draws of the objectives; the posterior should count no pending cell as observed.

    Parameters
    ----------
    belief : Posterior
    arm : int
        Of whom the probabilities are.
    margin : float
        By how much the best may be better, in units of the reward.
    seed : int
    usable : ndarray (A,) or None
        Arms that count as rivals.
    """
    bound = belief.mean + 3 * belief.sd
    if usable is not None:
        bound = np.where(usable, bound, -np.inf)
    rivals = greatest(bound, min(JOINT, int(np.isfinite(bound).sum())))
    arms = np.append(rivals[rivals != arm], arm)
    draws = _draws(belief.covariance(arms, arms), belief.model.freedom, seed)
    draws += belief.mean[arms] - belief.mean[arm]
    most = draws.max(axis=1)
    share = np.bincount(draws.argmax(axis=1), minlength=len(arms)) / len(draws)
    return Confidence(
        best=float(share[-1]),
        within=float((draws[:, -1] >= most - margin).mean()),
        margin=margin,
        credible=_credible(arms, share),
    )


def margin_of(belief: Posterior, arm: int, seen: Observations, within: float) -> float:
    """A share of an arm's mean score, in units of the reward.

    Where the reward is not the score itself, the mean score is that of the best score seen of every task, and a
    difference between scores is turned into the reward's units at the slope of the reward, averaged over tasks.
    """
    problem, unit = belief.problem, belief.model.unit
    if problem.reward == "mean":
        return within * abs(float(belief.mean[arm]))
    tasks = np.unique(seen.task)
    best = np.array([seen.score[seen.task == task].max() for task in tasks])
    one_each = Observations(np.zeros_like(tasks), tasks, best, np.ones(len(tasks)))
    return within * float(np.abs(best).mean() * np.median(unit.errors(one_each)))


def _draws(covariance: Floats, freedom: float, seed: int) -> NDArray[np.float32]:
    """Multivariate t variables about zero (draws, n), as near each other as good arms are."""
    root = np.linalg.cholesky(covariance).astype(np.float32)  # as smooth as the covariance: last bits decide nothing
    draws: NDArray[np.float32] = _normal(seed, len(covariance)) @ root.T
    scale = np.sqrt(freedom / np.random.default_rng(seed_of("scale", seed)).chisquare(freedom, DRAWS))
    draws *= CLOSER * scale[:, None]
    return draws


@lru_cache(maxsize=2)  # a search asks for the same ones again and again
def _normal(seed: int, n: int) -> NDArray[np.float32]:
    """Standard normal variables (draws, n)."""
    rng = np.random.default_rng(seed_of("probability_best", seed))
    normal = rng.standard_normal((DRAWS, n), dtype=np.float32)
    normal.flags.writeable = False
    return normal


def _credible(arms: Ints, share: Floats) -> tuple[int, ...]:
    order = np.argsort(-share, kind="stable")
    needed = int(np.searchsorted(np.cumsum(share[order]), CREDIBLE - 1e-9)) + 1
    return tuple(int(arm) for arm in arms[order[:needed]])
