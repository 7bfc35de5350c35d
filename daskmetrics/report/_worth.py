"""What each choice of a readout is worth: mean difference from the base choice, over arms that differ in it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from statistics import NormalDist
from typing import Any

from daskmetrics.core._outcomes import Difference, difference, mean_difference, mean_of_pairs, means_of
from daskmetrics.core._readouts import POOLINGS, STORAGES, Readout
from daskmetrics.core._table import Table
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm
from daskmetrics.report._format import apart, choices, number, over, size, unpaired
from daskmetrics.report._ties import LEVEL

Recorded = Mapping[Arm, Mapping[str, Mapping[str, Any]]]  # scores by arm and task
Choices = Mapping[str, str]  # of an arm: what its readout has of each choice, in words
Pair = tuple[Arm, Arm]  # the same but for one choice, which is the base choice in the second arm


@dataclass(frozen=True)
class Worth:
    """What one choice is worth instead of the base choice.

    Attributes
    ----------
    choice : str
        What is chosen: pooling, layers, dimensions, whitening or storage.
    value, base : str
        The choice and the base choice, in words.
    difference : Difference
        By how much the mean score with the choice exceeds that with the base choice: on each task the mean over all
        pairs of arms that were scored on it and differ in the choice alone, averaged over the tasks of the objective.
        All pairs share the items of a task, so its differences are averaged item by item before their error is taken
        over the items, which therefore does not shrink with the number of pairs; see
        `daskmetrics.core._outcomes.mean_of_pairs`. It is the error for these arms and other items.
    pairs : int
        The number of pairs.
    low, high : float
        The smallest and the greatest difference of a single pair.
    tasks : mapping
        The difference by task.
    beyond : bool
        Whether the difference exceeds its error, at 95 % for all choices of a run together (Bonferroni).
    at_best : Difference or None
        The difference at the arm with the greatest mean score: between the two arms that have this choice and the base
        choice, and are otherwise as this arm. None unless both were scored on every task.

    Examples
    --------
    >>> apart = Difference(-0.04, 0.006, paired=True)
    >>> Worth("pooling", "last token", "mean", apart, 9, -0.1, 0.0, {"topics": apart}, beyond=True).verdict
    'loses'
    """

    choice: str
    value: str
    base: str
    difference: Difference
    pairs: int
    low: float
    high: float
    tasks: Mapping[str, Difference]
    beyond: bool
    at_best: Difference | None = None

    @property
    def verdict(self) -> str:
        """Whether the choice loses or gains, in a few words."""
        if not (self.difference.value or self.difference.stderr):
            return "nothing"
        if not self.beyond:
            return "nothing beyond the error"
        return "loses" if self.difference.value < 0 else "gains"


@dataclass(frozen=True)
class Worths:
    """What every choice of the readouts of a run is worth; empty if no two arms differ in one choice alone.

    Examples
    --------
    >>> scores = {name: {"topics": {"score": score, "stderr": 0.01}} for name, score in (("mean", 0.7), ("last", 0.6))}
    >>> worths_of({Arm("m", "main", 3, name): own for name, own in scores.items()}, {"topics": 1.0}).sentence
    'last token loses 0.100 ± 0.014 (unpaired)'
    """

    each: tuple[Worth, ...]
    over: str  # what the scores are means of
    tasks: int  # of the objective

    @property
    def table(self) -> Table:
        """One choice a row."""
        rows = [
            (
                each.value,
                each.base,
                apart(each.difference, " *"),
                each.verdict.replace("nothing beyond", "within"),
                f"{each.pairs:,}",
                f"{number(each.low, sign=True)} to {number(each.high, sign=True)}",
                apart(each.at_best) if each.at_best else "",
            )
            for each in self.each
        ]
        header = ("choice", "instead of", "difference", "effect", "pairs", "each pair", "at the best arm")
        partial = sum(len(each.tasks) < self.tasks for each in self.each)
        about = [
            f"Difference of the {self.over} ± standard error, over pairs of arms that differ in it alone.",
            "Pairs share the items of a task, so more pairs do not make the error smaller.",
            "At the best arm: of the two arms that are otherwise as the one with the greatest mean score.",
            "Beyond the error: at 95 % for all lines together. The search chose which arms were scored.",
        ]
        if partial:
            about.append(f"{plural(partial, 'line')} without such pairs on all tasks: over the tasks that have some.")
        return Table(header, tuple(rows), notes=(*about, *unpaired(each.difference for each in self.each)))

    @property
    def sentence(self) -> str:
        """The choices in one line, such as ``last token loses 0.040 ± 0.006``."""
        return "; ".join(map(_said, self.each))


def worths_of(recorded: Recorded, weights: Mapping[str, float]) -> Worths:
    """What each choice of the readouts of scored arms is worth.

    Parameters
    ----------
    recorded : mapping
        What the journal holds of every score, by arm and task.
    weights : mapping
        Weights of the tasks of the objective.
    """
    chosen, base = {arm: choices(arm) for arm in recorded}, base_of(recorded)
    pairs = {
        (kind, value): own
        for kind in base
        for value in dict.fromkeys(each[kind] for each in chosen.values())
        if value != base[kind] and (own := _scored(recorded, weights, _pairs(chosen, kind, value, base[kind])))
    }
    means = means_of(recorded, weights)
    best = max(means, key=lambda arm: means[arm][0], default=Arm("", "", 0))

    def at_best(kind: str, own: Iterable[Pair]) -> Difference | None:
        for one, other in own:
            alike = (best.checkpoint, best.layer) == (one.checkpoint, one.layer)
            if alike and {one, other} <= means.keys() and chosen[one] == {**chosen[best], kind: chosen[one][kind]}:
                each = [difference(recorded[one][task], recorded[other][task]) for task in weights]
                return mean_difference(each, list(weights.values()))
        return None

    critical = NormalDist().inv_cdf(1 - LEVEL / 2 / max(1, len(pairs)))
    found = (
        replace(_worth(recorded, weights, (*what, base[what[0]]), own, critical), at_best=at_best(what[0], own))
        for what, own in pairs.items()
    )
    return Worths(tuple(found), over(list(weights.values())), len(weights))


_ORDER: Mapping[str, Callable[[Readout], Any]] = {  # of the values of each choice: what comes first is the base
    "pooling": lambda read: ("", *POOLINGS).index(read.pooling),
    "layers": lambda read: (len(read.together), read.layers),
    "dimensions": lambda read: (read.kept is not None, read.principal, -(read.kept or 0)),
    "whitening": lambda read: read.whitening,
    "storage": lambda read: list(STORAGES).index(read.storage),
}


def base_of(arms: Iterable[Arm]) -> Choices:
    """The base choice of each kind among arms, in words: the default one, or the nearest to it that there is.

    >>> base_of([Arm("m", "main", 3, "last,256d"), Arm("m", "main", 3, "mean,128d,int8")])["dimensions"]
    '256 dimensions'
    """
    known = {arm.readout: arm for arm in arms}
    return {
        kind: choices(min(known.values(), key=lambda arm: rank(Readout.parse(arm.readout))))[kind]
        for kind, rank in (_ORDER if known else {}).items()
    }


def _pairs(choices: Mapping[Arm, Choices], kind: str, value: str, base: str) -> Iterator[Pair]:
    """Arms of one layer, of which the first has a value of a choice, the second the base, and all else is equal."""
    known = {(arm.checkpoint, arm.layer, *own.items()): arm for arm, own in choices.items()}
    for arm, own in choices.items():
        other = known.get((arm.checkpoint, arm.layer, *{**own, kind: base}.items()))
        if own[kind] == value and other:
            yield arm, other


def _scored(recorded: Recorded, weights: Mapping[str, float], pairs: Iterator[Pair]) -> list[Pair]:
    return [(one, other) for one, other in pairs if weights.keys() & recorded[one].keys() & recorded[other].keys()]


def _worth(
    recorded: Recorded, weights: Mapping[str, float], what: tuple[str, str, str], pairs: Sequence[Pair], critical: float
) -> Worth:
    by_task = {
        task: mean_of_pairs([(recorded[one][task], recorded[other][task]) for one, other in both])
        for task in weights
        if (both := [pair for pair in pairs if all(task in recorded[arm] for arm in pair)])
    }
    mean = mean_difference(list(by_task.values()), [weights[task] for task in by_task])
    assert mean is not None  # each pair has a task, and no weight is 0
    single = [_of_one(recorded[one], recorded[other], weights) for one, other in pairs]
    return Worth(*what, mean, len(pairs), min(single), max(single), by_task, abs(mean.value) > critical * mean.stderr)


def _of_one(
    one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]], weights: Mapping[str, float]
) -> float:
    """The difference of the mean scores of two arms, on the tasks on which both were scored."""
    shared = [task for task in weights if task in one and task in other]
    apart = fsum(weights[task] * (one[task]["score"] - other[task]["score"]) for task in shared)
    return apart / fsum(weights[task] for task in shared)


def _said(one: Worth) -> str:
    """A choice in a few words.

    >>> _said(Worth("pooling", "last token", "mean", Difference(-0.04, 0.006, True), 9, -0.1, 0.0, {}, True))
    'last token loses 0.040 ± 0.006'
    >>> _said(Worth("storage", "int8", "float32", Difference(-0.0004, 0.001, True), 9, -0.1, 0.0, {}, False))
    'int8: nothing beyond the error (-0.000 ± 0.001)'
    """
    if one.beyond:
        verb = one.verdict.removesuffix("s") if one.choice == "dimensions" else one.verdict
        return f"{one.value} {verb} {size(one.difference)}"
    return f"{one.value}: {one.verdict} ({apart(one.difference)})"
