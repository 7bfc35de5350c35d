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
    means_of,
)

LEVEL = 0.05  #: probability of calling a choice wrong that is right, over all rivals together


@dataclass(frozen=True)
class Finalist:
    """One arm: its mean score with the error in the search, if it was scored on all tasks there,
    and on fresh items.

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
    means = means_of(run.fresh, run.weights)
    chosen = next(iter(run.fresh), None)
    if chosen not in means:
        return None
    finalists = []
    for arm, mean in means.items():
        lead = None
        if arm != chosen:
            gaps = [
                difference(run.fresh[chosen][task], run.fresh[arm][task]) for task in run.weights
            ]
            lead = mean_difference(gaps, list(run.weights.values()))
        searched = mean_score(run.recorded.get(arm, {}), run.weights)
        finalists.append(Finalist(arm, searched, mean, lead))
    best = max(finalists, key=lambda finalist: finalist.fresh[0])
    limit = NormalDist().inv_cdf(1 - LEVEL / max(1, len(finalists) - 1))
    return FreshItems(
        share=FRESH_SHARE,
        finalists=tuple(finalists),
        unscored=tuple(arm for arm in run.fresh if arm not in means),
        best=best.arm,
        holds=best.lead is None or -best.lead.value <= limit * best.lead.stderr,
    )
