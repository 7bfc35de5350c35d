"""Whether the choice of a search holds on items that were kept back from it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import (
    FRESH_SHARE,
    Difference,
    difference,
    mean_difference,
    mean_score,
)

LEVEL = 0.05  #: probability of calling a choice wrong that is right, over all rivals together


@dataclass(frozen=True)
class Finalist:
    """One arm: its mean score with the error in the search, if it was scored on all tasks there, and
    on fresh items.

    ``lead`` is the best arm's fresh score less this arm's, item by item; None for the best arm.
    """

    arm: Arm
    searched: tuple[float, float] | None
    fresh: tuple[float, float]
    lead: Difference | None


@dataclass(frozen=True)
class FreshItems:
    """The finalists of a search on the items that were kept back from it, the chosen arm first.

    Attributes
    ----------
    share : float
        Of the items that were kept back.
    finalists : tuple of Finalist
    unscored : tuple of Arm
        Finalists without a score on one of the tasks.
    best : Arm
        The finalist with the highest fresh score.
    holds : bool
        Whether none of the rivals is higher beyond the error.
    """

    share: float
    finalists: tuple[Finalist, ...]
    unscored: tuple[Arm, ...]
    best: Arm
    holds: bool


def fresh_items(run: RecordedRun) -> FreshItems | None:
    """The finalists of a finished search on fresh items; None if it kept none back, or the chosen
    arm has no score.
    """
    complete = [arm for arm, scores in run.fresh.items() if run.weights.keys() <= scores.keys()]
    chosen = next(iter(run.fresh), None)
    if chosen is None or chosen not in complete:
        return None
    finalists = tuple(_finalist(run, arm, chosen) for arm in complete)
    best = max(finalists, key=lambda finalist: finalist.fresh[0])
    limit = NormalDist().inv_cdf(1 - LEVEL / max(1, len(finalists) - 1))
    holds = best.lead is None or -best.lead.value <= limit * best.lead.stderr
    return FreshItems(
        share=FRESH_SHARE,
        finalists=finalists,
        unscored=tuple(arm for arm in run.fresh if arm not in complete),
        best=best.arm,
        holds=holds,
    )


def _finalist(run: RecordedRun, arm: Arm, chosen: Arm) -> Finalist:
    fresh = mean_score(run.fresh[arm], run.weights)
    assert fresh is not None  # it was scored on every task
    lead = None
    if arm != chosen:
        gaps = [difference(run.fresh[chosen][task], run.fresh[arm][task]) for task in run.weights]
        lead = mean_difference(gaps, list(run.weights.values()))
    return Finalist(arm, mean_score(run.recorded.get(arm, {}), run.weights), fresh, lead)
