"""The answer of a search: the best arm, how sure that is, how it compares with the default, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.bandit._policy import State
from daskmetrics.bandit._posterior import Posterior, first_max, greatest
from daskmetrics.bandit._problem import Bools, Floats, Ints, Observations
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.names import Arm, seed_of

TOP = 10  #: arms listed in the answer
WITHIN = 0.01  #: of the best arm's mean score: what counts as nearly the best, unless another share is asked for
NORMAL_95 = 1.959964  #: half width of a 95 % interval in standard deviations


@dataclass(frozen=True)
class Measured:
    """A raw score and its standard error."""

    score: float
    stderr: float


@dataclass(frozen=True)
class Standing:
    """What is known of one arm: belief about its objective (units of the reward) and its raw scores by task.

    ``mean`` averages the raw scores over the tasks on which both the recommended and the default arm were measured,
    so that the two can be compared; None where there is no such task.
    """

    arm: Arm
    value: float
    sd: float
    scores: Mapping[str, Measured]
    mean: Measured | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """95 % credible interval of the objective."""
        return self.value - NORMAL_95 * self.sd, self.value + NORMAL_95 * self.sd


@dataclass(frozen=True)
class Recommendation:
    """The best arm as far as is known.

    Attributes
    ----------
    best, default : Standing
        The recommended arm, and the last layer of the baseline checkpoint.
    confirmed : bool
        Whether every cell of the best arm was asked for and answered.
    probability_best : float
        That no other arm has a greater objective, under the posterior.
    probability_within : float
        That none is better by more than ``within`` of its mean score.
    credible : tuple of Arm
        The fewest arms among which the best one is with probability 0.95, the likeliest first.
    top : tuple of Standing
        The arms with the greatest expected objective, best first.
    cells, failed : int
        Measured and failed cells.
    spent, budget, exhaustive : float
        Costs, in the problem's unit; the budget may be overspent by confirming the best arm.
    """

    best: Standing
    default: Standing
    confirmed: bool
    probability_best: float
    probability_within: float
    within: float
    credible: tuple[Arm, ...]
    top: tuple[Standing, ...]
    reward: str
    cells: int
    failed: int
    spent: float
    budget: float
    exhaustive: float

    @property
    def arm(self) -> Arm:
        return self.best.arm

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = asdict(self)
        plain["top"], plain["credible"] = list(plain["top"]), list(plain["credible"])
        for name, standing in (("best", self.best), ("default", self.default)):
            plain[name]["interval"] = list(standing.interval)
        return plain


def recommend(state: State, budget: float, spent: float, within: float = WITHIN) -> Recommendation:
    """Choose the arm with the greatest expected objective and gather what is known of it.

    Parameters
    ----------
    state : State
        Of the search; pending cells are not taken as observed here.
    budget, spent : float
        Costs.
    within : float
        Share of the best arm's mean score.

    Raises
    ------
    DaskmetricsError
        If not one cell was measured.
    """
    problem, seen = state.problem, state.seen
    failed = len(state.outcomes) - len(seen)
    if not len(seen):
        raise DaskmetricsError(
            f"No arm can be recommended: no cell was measured, {failed} failed. The journal holds their reasons."
        )
    belief = state.belief.without_pending()
    best = first_max(belief.mean, state.usable)
    sure = confidence(belief, best, margin_of(belief, best, seen, within), state.seed, state.usable)
    default = problem.default_arm
    common = np.intersect1d(seen.task[seen.arm == best], seen.task[seen.arm == default])
    order = np.argsort(-belief.mean, kind="stable")[:TOP]
    return Recommendation(
        best=_standing(belief, seen, best, common),
        default=_standing(belief, seen, default, common),
        confirmed=bool(state.settled[best]),
        probability_best=sure.best,
        probability_within=sure.within,
        within=within,
        credible=tuple(problem.arms[arm] for arm in sure.credible),
        top=tuple(_standing(belief, seen, int(arm)) for arm in order),
        reward=problem.reward,
        cells=len(seen),
        failed=failed,
        spent=spent,
        budget=budget,
        exhaustive=problem.exhaustive_cost,
    )


def _standing(belief: Posterior, seen: Observations, arm: int, common: Ints | None = None) -> Standing:
    own = np.flatnonzero(seen.arm == arm)
    names = belief.problem.tasks
    scores = {names[seen.task[i]]: Measured(float(seen.score[i]), float(seen.stderr[i])) for i in own}
    shared = own[np.isin(seen.task[own], common)] if common is not None else own[:0]
    mean = None
    if len(shared):
        error = float(np.sqrt((seen.stderr[shared] ** 2).sum())) / len(shared)
        mean = Measured(float(seen.score[shared].mean()), error)
    return Standing(belief.problem.arms[arm], float(belief.mean[arm]), float(belief.sd[arm]), scores, mean)


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
