"""What trials add up to: how often the best arm is found by which cost, how soon, and how true the confidence is."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskmetrics.bandit.replay._trials import WITHIN, Setting, Step, Trial

NORMAL_95 = 1.959964  #: half width of a 95 % interval in standard deviations
SHARES = (0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)  #: of the exhaustive cost, at which policies are compared
#: Of stated confidence, from and below, within which it is compared with what came true; the last overlaps.
BANDS = ((0.0, 0.2), (0.2, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.0), (0.9, 1.0))


@dataclass(frozen=True)
class Rate:
    """So many of so many."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval (Wilson, 1927).

        Examples
        --------
        >>> [round(bound, 3) for bound in Rate(99, 100).interval]
        [0.946, 0.998]
        """
        return _wilson(self.value, self.of) if self.of else (0.0, 1.0)


def _wilson(value: float, n: float) -> tuple[float, float]:
    z = NORMAL_95**2 / n
    middle = (value + z / 2) / (1 + z)
    half = NORMAL_95 * math.sqrt(value * (1 - value) / n + z / (4 * n)) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)


def found(step: Step | None) -> bool:
    """Whether the recommended arm is as good as the best, to within `WITHIN`."""
    return step is not None and step.loss <= WITHIN


def by_setting(trials: Iterable[Trial]) -> dict[Setting, list[Trial]]:
    """Trials of each setting, in their order."""
    groups: dict[Setting, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.setting, []).append(trial)
    return groups


def success(trials: Sequence[Trial], share: float) -> Rate:
    """How many searches had found the best arm when this share of the exhaustive cost was spent."""
    return Rate(sum(found(trial.after(share)) for trial in trials), len(trials))


def quantile(values: Iterable[float], q: float) -> float:
    """The least value that a share q of all does not exceed; infinite where too few came to it.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, math.inf], 0.5), quantile([1.0, 2.0, 3.0, math.inf], 0.9)
    (2.0, inf)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def arrivals(trials: Sequence[Trial], what: Callable[[Step], float], lasting: bool = False) -> list[float]:
    """What each search had spent when it first, or for good, recommended an arm within `WITHIN`; inf if never."""
    steps = [trial.lasting(found) if lasting else trial.first(found) for trial in trials]
    return [what(step) if step else math.inf for step in steps]


@dataclass(frozen=True)
class Calibration:
    """Of the arms that were said to be within `WITHIN` with a confidence in [low, high), how many are.

    Attributes
    ----------
    low, high : float
        A high of 1 belongs to it.
    said : float
        Mean confidence.
    true : Rate
        Over all looks.
    interval : (float, float)
        Of ``true``, 95 %, by search: looks at one search count as far as they differ.
    first : Rate
        Over the first such look at each search.
    """

    low: float
    high: float
    said: float
    true: Rate
    interval: tuple[float, float]
    first: Rate


def calibration(trials: Sequence[Trial], bands: Sequence[tuple[float, float]] = BANDS) -> list[Calibration]:
    """Stated confidence against what came true, wherever a search was asked how sure it is."""
    rows = []
    for low, high in bands:
        looks = [[s for s in trial.path if low <= s.said < high or s.said == high == 1.0] for trial in trials]
        if looks := [own for own in looks if own]:
            said = float(np.mean([step.said for own in looks for step in own]))
            true = [Rate(sum(map(found, own)), len(own)) for own in looks]
            whole = Rate(sum(each.hits for each in true), sum(each.of for each in true))
            first = Rate(sum(found(own[0]) for own in looks), len(looks))
            rows.append(Calibration(low, high, said, whole, _by_search(true), first))
    return rows


def _by_search(searches: Sequence[Rate]) -> tuple[float, float]:
    """Wilson's interval with as many looks as independent ones would be for the same variance of a ratio of sums."""
    of, n = sum(each.of for each in searches), len(searches)
    value = sum(each.hits for each in searches) / of
    square = sum((each.hits - value * each.of) ** 2 for each in searches)
    if not square or n == 1:
        return _wilson(value, n)
    variance = square * n / (n - 1) / of**2
    return _wilson(value, min(of, value * (1 - value) / variance))


@dataclass(frozen=True)
class Difference:
    """By how much more often one setting finds the best arm than another on the same seeds, with a 95 % interval."""

    value: float
    interval: tuple[float, float]

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


def difference(one: Sequence[Trial], other: Sequence[Trial], share: float) -> Difference:
    """Compare two settings seed by seed.

    The interval is that of a difference of paired proportions, with half a trial added to each of the four outcomes
    (Agresti and Min, "Simple improved confidence intervals for comparing matched proportions", 2005).
    """
    mine = {trial.seed: found(trial.after(share)) for trial in one}
    theirs = {trial.seed: found(trial.after(share)) for trial in other}
    seeds = sorted(mine.keys() & theirs.keys())
    gained = sum(mine[seed] and not theirs[seed] for seed in seeds) + 0.5
    lost = sum(theirs[seed] and not mine[seed] for seed in seeds) + 0.5
    n = len(seeds) + 2
    middle = (gained - lost) / n
    half = NORMAL_95 * math.sqrt(max(gained + lost - (gained - lost) ** 2 / n, 0.0)) / n
    return Difference((gained - lost) / len(seeds), (middle - half, middle + half))


def verdict(differences: Sequence[Difference], seeds: int) -> str:
    """What a comparison with and without metrics amounts to, in a sentence that says no more than was seen.

    Examples
    --------
    >>> verdict([Difference(0.01, (-0.03, 0.05))], 100)
    'Metrics make no difference that 100 seeds can show.'
    """
    helped = sum(each.clear and each.value > 0 for each in differences)
    harmed = sum(each.clear and each.value < 0 for each in differences)
    if not helped and not harmed:
        return f"Metrics make no difference that {seeds} seeds can show."
    parts = [f"help at {helped}" if helped else "", f"harm at {harmed}" if harmed else ""]
    return (
        f"Metrics {' and '.join(filter(None, parts))} of the {len(differences)} costs compared; one interval in twenty "
        "leaves out 0 by chance, and neighbouring costs are not independent."
    )


def write(trials: Sequence[Trial], shares: Sequence[float], folder: Path) -> list[Path]:
    """Write ``trials.csv``, one line per search, and ``curves.csv``, what they add up to at each share."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "trials.csv", folder / "curves.csv"
    _write(paths[0], _trial_lines(trials))
    _write(paths[1], _curve_lines(trials, shares))
    return list(paths)


def _trial_lines(trials: Sequence[Trial]) -> Iterable[dict[str, object]]:
    for trial in trials:
        first, lasting, last = trial.first(found), trial.lasting(found), trial.path[-1]
        yield {
            **_of(trial.setting),
            "seed": trial.seed,
            "cells": trial.cells,
            "share_spent": last.share,
            "seconds": last.seconds,
            "loss": last.loss,
            "said_within": last.said,
            "share_to_within": first.share if first else "",
            "seconds_to_within": first.seconds if first else "",
            "share_to_within_for_good": lasting.share if lasting else "",
            "seconds_to_within_for_good": lasting.seconds if lasting else "",
            "utilisation": trial.busy,
        }


def _curve_lines(trials: Sequence[Trial], shares: Sequence[float]) -> Iterable[dict[str, object]]:
    for setting, own in by_setting(trials).items():
        for share in shares:
            rate = success(own, share)
            losses = [step.loss if (step := trial.after(share)) else math.inf for trial in own]
            yield {
                **_of(setting),
                "share": share,
                "within": rate.value,
                "within_low": rate.interval[0],
                "within_high": rate.interval[1],
                "loss_median": quantile(losses, 0.5),
                "loss_p90": quantile(losses, 0.9),
                "trials": len(own),
            }


def _of(setting: Setting) -> dict[str, object]:
    return {"policy": setting.policy, "workers": setting.workers, "metrics": setting.metrics}


def _write(path: Path, lines: Iterable[dict[str, object]]) -> None:
    every = list(lines)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, every[0])
        writer.writeheader()
        writer.writerows(every)
