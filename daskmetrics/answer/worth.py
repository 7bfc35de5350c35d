"""What each choice of a readout is worth, and whether the choice of the search holds on items that
were kept back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from daskmetrics.answer.recorded import RecordedRun
from daskmetrics.answer.ties import LEVEL, Scores
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import (
    FRESH_SHARE,
    Difference,
    difference,
    mean_difference,
    mean_of_pairs,
    mean_score,
    means_of,
)
from daskmetrics.core.readouts import POOLINGS, Readout

Pair = tuple[Arm, Arm]  # the same but for one choice, which is the base choice in the second arm

# of the values of each choice: what comes first is the base
_ORDER: Mapping[str, Callable[[Readout], Any]] = {
    "pooling": lambda readout: ("", *POOLINGS).index(readout.pooling),
    "layers": lambda readout: (len(readout.together), readout.layers),
    "dimensions": lambda readout: (
        readout.kept is not None,
        readout.principal,
        -(readout.kept or 0),
    ),
}


@dataclass(frozen=True)
class Worth:
    """What one choice is worth instead of the base choice.

    Attributes
    ----------
    choice : str
        What is chosen: pooling, layers or dimensions.
    value, base : str
        The choice and the base choice, as in the name of a readout; empty: as the protocol says.
    difference : Difference
        By how much the mean score with the choice exceeds that with the base choice: on each task
        the mean over all pairs of arms that were scored on it and differ in the choice alone,
        averaged over the tasks of the objective. All pairs share the items of a task, so its
        differences are averaged item by item before their error is taken over the items, which
        therefore does not shrink with the number of pairs; see
        `daskmetrics.core.outcomes.mean_of_pairs`. It is the error for these arms and other items.
    pairs : int
        The number of pairs.
    beyond : bool
        Whether the difference exceeds its error, at 95 % for all choices of a run together
        (Bonferroni).
    """

    choice: str
    value: str
    base: str
    difference: Difference
    pairs: int
    beyond: bool


def worths_of(recorded: Mapping[Arm, Scores], weights: Mapping[str, float]) -> tuple[Worth, ...]:
    """What each choice of the readouts of scored arms is worth; empty if no two differ in one
    alone.

    Parameters
    ----------
    recorded : mapping
        What the journal holds of every score, by arm and task.
    weights : mapping
        Weights of the tasks of the objective.

    Examples
    --------
    >>> from daskmetrics.core.results import Scored
    >>> scores = {"mean": Scored(0.7, 0.01), "last": Scored(0.6, 0.01)}
    >>> arms = {Arm("m", "main", 3, name): {"topics": score} for name, score in scores.items()}
    >>> [(worth.value, round(worth.difference.value, 3)) for worth in worths_of(arms, {"topics": 1.0})]
    [('last', -0.1)]
    """
    readouts = {arm: Readout.parse(arm.readout) for arm in recorded}
    differences: dict[tuple[str, str, str], tuple[Difference, int]] = {}
    for kind, order in _ORDER.items():
        plainest = min(readouts.values(), key=order, default=Readout())
        base = getattr(plainest, kind)
        by_value: dict[str, list[Pair]] = {}
        for arm, readout in readouts.items():
            pairs = by_value.setdefault(getattr(readout, kind), [])
            other = replace(arm, readout=str(replace(readout, **{kind: base})))
            if other in recorded:
                pairs.append((arm, other))
        for value, pairs in by_value.items():
            if value != base and (gap := _mean_gap(recorded, weights, pairs)):
                differences[kind, value, base] = gap
    critical = NormalDist().inv_cdf(1 - LEVEL / 2 / max(1, len(differences)))
    return tuple(
        Worth(*choice, gap, count, beyond=abs(gap.value) > critical * gap.stderr)
        for choice, (gap, count) in differences.items()
    )


def _mean_gap(
    recorded: Mapping[Arm, Scores], weights: Mapping[str, float], pairs: Sequence[Pair]
) -> tuple[Difference, int] | None:
    """The mean difference of the pairs, and how many of them were scored on a common task; None if
    no pair was.
    """
    by_task = {}
    common = set()
    for task in weights:
        scored_pairs = [pair for pair in pairs if all(task in recorded[arm] for arm in pair)]
        common.update(scored_pairs)
        if scored_pairs:
            by_task[task] = mean_of_pairs(
                [(recorded[arm][task], recorded[other][task]) for arm, other in scored_pairs]
            )
    mean = mean_difference(list(by_task.values()), [weights[task] for task in by_task])
    if mean is None:
        return None
    return mean, len(common)


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
    weights = run.weights
    finalists = []
    for arm, mean in means.items():
        lead = None
        if arm != chosen:
            gaps = [difference(run.fresh[chosen][task], run.fresh[arm][task]) for task in weights]
            lead = mean_difference(gaps, list(weights.values()))
        searched = mean_score(run.recorded.get(arm, {}), weights)
        finalists.append(Finalist(arm, searched, mean, lead))
    best = max(finalists, key=lambda finalist: finalist.fresh[0])
    rivals = max(1, len(finalists) - 1)
    limit = NormalDist().inv_cdf(1 - LEVEL / rivals)
    return FreshItems(
        share=FRESH_SHARE,
        finalists=tuple(finalists),
        unscored=tuple(arm for arm in run.fresh if arm not in means),
        best=best.arm,
        holds=best.lead is None or -best.lead.value <= limit * best.lead.stderr,
    )
