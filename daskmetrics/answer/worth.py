"""What each choice of a readout gains, and whether the search's choice holds on items kept back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from daskmetrics.answer.ties import LEVEL
from daskmetrics.domain.names import Arm
from daskmetrics.domain.outcomes import (
    FRESH_SHARE,
    Difference,
    Estimate,
    mean_difference,
    mean_of_pairs,
)
from daskmetrics.domain.readouts import POOLINGS, Readout
from daskmetrics.domain.scores import Scores

Pair = tuple[Arm, Arm]  # the same but for one choice, which is the base choice in the second arm

# of the values of each choice: what comes first is the base
_ORDER: Mapping[str, Callable[[Readout], Any]] = {
    "pooling": lambda readout: ("", *POOLINGS).index(readout.pooling),
    "dimensions": lambda readout: -(readout.dimensions or math.inf),
}


@dataclass(frozen=True)
class Worth:
    """What one choice gains over the base choice.

    Attributes
    ----------
    choice : str
        What is chosen: pooling or dimensions.
    value, base : str
        The choice and the base choice, as in the name of a readout; empty: as the protocol says.
    difference : Difference
        By how much the mean score with the choice exceeds that with the base choice: on each task
        the mean over all pairs of arms that were scored on it and differ in the choice alone,
        averaged over the tasks of the objective. All pairs share the items of a task, so its
        differences are averaged item by item before their error is taken over the items, which
        therefore does not shrink with the number of pairs; see
        `daskmetrics.domain.outcomes.mean_of_pairs`. It is the error for these arms and other items.
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


def worths_of(recorded: Scores, weights: Mapping[str, float]) -> tuple[Worth, ...]:
    """The gain of each choice of the readouts of scored arms.

    It is empty if no two differ in one alone.

    Parameters
    ----------
    recorded : Scores
    weights : mapping
        Weights of the tasks of the objective.

    Examples
    --------
    >>> from daskmetrics.domain.results import Scored
    >>> scores = {"mean": Scored(0.7, 0.01), "last": Scored(0.6, 0.01)}
    >>> arms = {Arm("m", "main", 3, name): {"topics": score} for name, score in scores.items()}
    >>> worths = worths_of(Scores(arms, ["topics"]), {"topics": 1.0})
    >>> [(worth.value, round(worth.difference.value, 3)) for worth in worths]
    [('last', -0.1)]
    """
    readouts = {arm: Readout.parse(arm.readout) for arm in recorded}
    differences: dict[tuple[str, str, str], tuple[Difference, int]] = {}
    for kind, order in _ORDER.items():
        plainest = min(readouts.values(), key=order, default=Readout())
        base = getattr(plainest, kind)
        by_value: dict[Any, list[Pair]] = {}
        for arm, readout in readouts.items():
            pairs = by_value.setdefault(getattr(readout, kind), [])
            other = replace(arm, readout=str(replace(readout, **{kind: base})))
            if other in recorded:
                pairs.append((arm, other))
        for value, pairs in by_value.items():
            if value != base and (gap := _mean_gap(recorded, weights, pairs)):
                differences[kind, str(value or ""), str(base or "")] = gap
    critical = NormalDist().inv_cdf(1 - LEVEL / 2 / max(1, len(differences)))
    return tuple(
        Worth(*choice, gap, count, beyond=abs(gap.value) > critical * gap.stderr)
        for choice, (gap, count) in differences.items()
    )


def _mean_gap(
    recorded: Scores, weights: Mapping[str, float], pairs: Sequence[Pair]
) -> tuple[Difference, int] | None:
    """The mean difference, and how many pairs have one.

    None if no pair was scored on a common task.
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
    mean = mean_difference(by_task, weights)
    if mean is None:
        return None
    return mean, len(common)


@dataclass(frozen=True)
class Finalist:
    """One arm with its mean on searched and fresh items.

    The first is None if the arm was not scored on all tasks in the search. ``lead`` is the best
    arm's fresh score less this arm's, item by item; None for the best arm.
    """

    arm: Arm
    searched: Estimate | None
    fresh: Estimate
    lead: Difference | None


@dataclass(frozen=True)
class FreshItems:
    """The finalists on items that were kept back.

    The chosen arm is first.

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


def fresh_items(fresh: Scores, recorded: Scores, weights: Mapping[str, float]) -> FreshItems | None:
    """The finalists of a finished search on fresh items.

    None if it kept none back, or the chosen arm has no score.
    """
    means = fresh.means(weights)
    chosen = next(iter(fresh), None)
    if chosen is None or chosen not in means:
        return None
    finalists = []
    for arm, mean in means.items():
        lead = None
        if arm != chosen:
            lead = fresh.gain(chosen, arm, weights)
        finalists.append(Finalist(arm, recorded.mean(arm, weights), mean, lead))
    best = max(finalists, key=lambda finalist: finalist.fresh[0])
    rivals = max(1, len(finalists) - 1)
    limit = NormalDist().inv_cdf(1 - LEVEL / rivals)
    return FreshItems(
        share=FRESH_SHARE,
        finalists=tuple(finalists),
        unscored=tuple(arm for arm in fresh if arm not in means),
        best=best.arm,
        holds=best.lead is None or -best.lead.value <= limit * best.lead.stderr,
    )
