"""Statistics of trials: how often and at what cost the best arm is found, and how well the confidence is calibrated."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from daskmetrics.bandit._recommend import NORMAL_95
from daskmetrics.bandit.replay._trials import WITHIN, ReplayStep, ReplayTrial, Setting

#: Shares of the exhaustive cost at which policies are compared.
COST_SHARES = (0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
#: Bands of the stated confidence, [low, high), that are compared with the truth; the last one overlaps.
BANDS = ((0.0, 0.2), (0.2, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.0), (0.9, 1.0))


@dataclass(frozen=True)
class Rate:
    """A number of successes out of a number of trials."""

    hits: int
    of: int

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval (Wilson, 1927).

        >>> [round(bound, 3) for bound in Rate(99, 100).interval]
        [0.946, 0.998]
        """
        return _wilson(self.value, self.of) if self.of else (0.0, 1.0)


def _wilson(value: float, n: float) -> tuple[float, float]:
    z = NORMAL_95**2 / n
    middle = (value + z / 2) / (1 + z)
    half = NORMAL_95 * math.sqrt(value * (1 - value) / n + z / (4 * n)) / (1 + z)
    return max(0.0, middle - half), min(1.0, middle + half)


def is_found(step: ReplayStep | None) -> bool:
    """Whether the recommended arm is within `WITHIN` of the best."""
    return step is not None and step.loss <= WITHIN


def by_setting(trials: Iterable[ReplayTrial]) -> dict[Setting, list[ReplayTrial]]:
    """The trials of each setting, in their order."""
    groups: dict[Setting, list[ReplayTrial]] = {}
    for trial in trials:
        groups.setdefault(trial.setting, []).append(trial)
    return groups


def success(trials: Sequence[ReplayTrial], share: float) -> Rate:
    """How many searches had found the best arm after a share of the exhaustive cost."""
    return Rate(sum(is_found(trial.after(share)) for trial in trials), len(trials))


def quantile(values: Iterable[float], q: float) -> float:
    """The smallest value that is at least as great as a share q of all values.

    >>> quantile([1.0, 2.0, 3.0, math.inf], 0.5), quantile([1.0, 2.0, 3.0, math.inf], 0.9)
    (2.0, inf)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def until_found(
    trials: Sequence[ReplayTrial], measure: Callable[[ReplayStep], float], lasting: bool = False
) -> list[float]:
    """The measure (cost or time) of each search when it first, or for good, found the best arm; inf if never."""
    steps = [trial.lasting(is_found) if lasting else trial.first(is_found) for trial in trials]
    return [measure(step) if step else math.inf for step in steps]


@dataclass(frozen=True)
class ConfidenceBand:
    """Moments at which the stated confidence was in [low, high), and how often the arm then was within `WITHIN`."""

    low: float
    high: float  # included if 1
    mean: float  # of the stated confidence
    correct: Rate  # over all moments
    interval: tuple[float, float]  # 95 %, of `correct` by search, since moments of one search are not independent
    first: Rate  # over the first such moment of each search
    expected_loss: float  # mean of the stated one ...
    loss: float  # ... and of the true one, where the arm is complete


def confidence_bands(
    trials: Sequence[ReplayTrial], bands: Sequence[tuple[float, float]] = BANDS
) -> list[ConfidenceBand]:
    """Compare the stated confidence with the truth at all moments at which it was computed; skip empty bands."""
    result = []
    for low, high in bands:
        searches = [
            [s for s in trial.path if low <= s.confidence < high or s.confidence == high == 1.0] for trial in trials
        ]
        if searches := [steps for steps in searches if steps]:
            every = [step for steps in searches for step in steps]
            mean = float(np.mean([step.confidence for step in every]))
            losses = [(step.expected_loss, step.loss) for step in every if math.isfinite(step.loss)]
            lost = np.mean(losses or [(math.nan, math.nan)], axis=0).tolist()
            rates = [Rate(sum(map(is_found, steps)), len(steps)) for steps in searches]
            correct = Rate(sum(rate.hits for rate in rates), sum(rate.of for rate in rates))
            first = Rate(sum(is_found(steps[0]) for steps in searches), len(searches))
            result.append(ConfidenceBand(low, high, mean, correct, _clustered_interval(rates), first, *lost))
    return result


def _clustered_interval(searches: Sequence[Rate]) -> tuple[float, float]:
    """Wilson's interval for the effective number of moments, from the variance of a ratio of sums over searches."""
    of, n = sum(rate.of for rate in searches), len(searches)
    value = sum(rate.hits for rate in searches) / of
    square = sum((rate.hits - value * rate.of) ** 2 for rate in searches)
    if not square or n == 1:
        return _wilson(value, n)
    variance = square * n / (n - 1) / of**2
    return _wilson(value, min(of, value * (1 - value) / variance))


@dataclass(frozen=True)
class PairedDifference:
    """Difference of two settings' success rates on the same seeds, with a 95 % interval."""

    value: float
    interval: tuple[float, float]

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


def paired_difference(one: Sequence[ReplayTrial], other: Sequence[ReplayTrial], share: float) -> PairedDifference:
    """Compare two settings seed by seed.

    The interval is that of a difference of paired proportions, with half a trial added to each of the four outcomes
    (Agresti and Min, "Simple improved confidence intervals for comparing matched proportions", 2005).
    """
    first = {trial.seed: is_found(trial.after(share)) for trial in one}
    second = {trial.seed: is_found(trial.after(share)) for trial in other}
    seeds = sorted(first.keys() & second.keys())
    gained = sum(first[seed] and not second[seed] for seed in seeds) + 0.5
    lost = sum(second[seed] and not first[seed] for seed in seeds) + 0.5
    n = len(seeds) + 2
    middle = (gained - lost) / n
    half = NORMAL_95 * math.sqrt(max(gained + lost - (gained - lost) ** 2 / n, 0.0)) / n
    return PairedDifference((gained - lost) / len(seeds), (middle - half, middle + half))


def conclusion(differences: Sequence[PairedDifference], seeds: int) -> str:
    """The result of a comparison with and without metrics, in a sentence.

    >>> conclusion([PairedDifference(0.01, (-0.03, 0.05))], 100)
    '100 seeds show no effect of metrics.'
    """
    helped = sum(each.is_significant and each.value > 0 for each in differences)
    harmed = sum(each.is_significant and each.value < 0 for each in differences)
    if not helped and not harmed:
        return f"{seeds} seeds show no effect of metrics."
    parts = [f"help at {helped}" if helped else "", f"harm at {harmed}" if harmed else ""]
    return (
        f"Metrics {' and '.join(filter(None, parts))} of the {len(differences)} costs compared. One interval in twenty "
        "excludes 0 by chance, and neighbouring costs are not independent."
    )


def write_csv(trials: Sequence[ReplayTrial], shares: Sequence[float], folder: Path) -> list[Path]:
    """Write ``trials.csv``, one line per search, and ``curves.csv``, the statistics at each share of the cost."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, lines in as_lines(trials, shares).items():
        paths.append(folder / f"{name}.csv")
        with paths[-1].open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, lines[0])
            writer.writeheader()
            writer.writerows(lines)
    return paths


def as_lines(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> dict[str, list[dict[str, object]]]:
    """``trials``, one line per search, and ``curves``, the statistics at each share of the cost."""
    curves = [_curve_line(group, share) for group in by_setting(trials).values() for share in shares]
    return {"trials": [_trial_line(trial) for trial in trials], "curves": curves}


def _trial_line(trial: ReplayTrial) -> dict[str, object]:
    first, lasting, last = trial.first(is_found), trial.lasting(is_found), trial.path[-1]
    return {
        **vars(trial.setting),
        "seed": trial.seed,
        "cells": trial.cells,
        "share_spent": last.share,
        "seconds": last.seconds,
        "loss": last.loss,
        "probability_within": last.confidence,
        "share_to_within": first.share if first else None,
        "seconds_to_within": first.seconds if first else None,
        "share_to_within_for_good": lasting.share if lasting else None,
        "seconds_to_within_for_good": lasting.seconds if lasting else None,
        "utilisation": trial.utilisation,
    }


def _curve_line(group: Sequence[ReplayTrial], share: float) -> dict[str, object]:
    rate = success(group, share)
    losses = [step.loss if (step := trial.after(share)) else math.inf for trial in group]
    return {
        **vars(group[0].setting),
        "share": share,
        "within": rate.value,
        "within_low": rate.interval[0],
        "within_high": rate.interval[1],
        "loss_median": quantile(losses, 0.5),
        "loss_p90": quantile(losses, 0.9),
        "trials": len(group),
    }
