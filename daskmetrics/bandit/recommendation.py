"""The answer of a search: the best arm, how sure that is, how it compares with the default, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from daskmetrics.arms import Arm
from daskmetrics.bandit.confidence import confidence, margin_of
from daskmetrics.bandit.policy import State
from daskmetrics.bandit.posterior import Posterior, first_max
from daskmetrics.bandit.problem import Ints, Observations
from daskmetrics.errors import DaskmetricsError

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
