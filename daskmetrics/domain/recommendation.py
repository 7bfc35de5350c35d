"""What a search recommends: the best arm, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskmetrics.domain.names import Arm

NORMAL_95 = 1.959964  #: half width of a 95 % interval, in standard deviations


@dataclass(frozen=True)
class ScoreEstimate:
    """A raw score and its standard error."""

    score: float
    stderr: float


@dataclass(frozen=True)
class ArmSummary:
    """One arm: its posterior, and its raw scores by task.

    ``mean`` is the weighted mean of the raw scores over the tasks of the objective on which both
    the recommended and the default arm were measured, so that the two can be compared; it is None
    if there is no such task. ``measured`` is the objective by the arm's own scores; it is None
    unless the arm has a score on every task of the objective.
    """

    arm: Arm
    value: float
    sd: float
    scores: Mapping[str, ScoreEstimate]
    mean: ScoreEstimate | None = None
    measured: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """95 % credible interval of the objective."""
        return self.value - NORMAL_95 * self.sd, self.value + NORMAL_95 * self.sd


@dataclass(frozen=True)
class Recommendation:
    """The best arm, and the confidence in it.

    It is the best by its scores on all tasks or, if no arm has these, the scored arm that is
    expected to be the best.

    Attributes
    ----------
    best, default : ArmSummary
        The recommended arm, and what one would take without a search: by default the last layer of
        the last checkpoint of its own model.
    confirmed : bool
        Whether the best arm has a score on every task of the objective. Then no arm that has them
        all scored higher.
    probability_best : float
        Posterior probability that no other arm has a greater objective.
    most_lost : float or None
        With a posterior probability of 0.95, no other arm's objective is greater by more than this.
        None before so much can be stated of arms and tasks without a score.
    expected_loss : float
        By how much the best arm is expected to exceed the recommended one, whichever it is:
        E[max of the objectives] - the expected objective of the recommended arm, from joint draws
        of the posterior.
    credible : tuple of Arm
        The smallest set that contains the best arm with probability 0.95, most likely first.
    top : tuple of Arm
        The arms with the greatest expected objectives, best first; those with all scores in the
        order of these.
    cells, failed : int
        Numbers of scores and of failed cells.
    spent, budget, exhaustive : float
        Costs, in the problem's unit; confirming the best arm may exceed the budget.
    """

    best: ArmSummary
    default: ArmSummary
    confirmed: bool
    probability_best: float
    most_lost: float | None
    expected_loss: float
    credible: tuple[Arm, ...]
    top: tuple[Arm, ...]
    cells: int
    failed: int
    spent: float
    budget: float
    exhaustive: float

    @property
    def arm(self) -> Arm:
        return self.best.arm
