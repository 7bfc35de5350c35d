"""Statistics of replayed searches, and tables of them: how often and at what cost the best arm is
found, and how well the confidence is calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from replay import WITHIN, ReplayStep, ReplayTrial

from daskmetrics.bandit.problem import ROUNDING
from daskmetrics.core.table import Table
from daskmetrics.domain.recommendation import NORMAL_95

#: Shares of the exhaustive cost at which the confidence of a search is computed.
CONFIDENCE_AT = tuple(1e-4 * 2.0 ** (i / 2) for i in range(26))


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


def is_best(step: ReplayStep) -> bool:
    """Whether no other arm is better than the recommended one."""
    return step.loss <= ROUNDING


def by_setting(trials: Iterable[ReplayTrial]) -> dict[str, list[ReplayTrial]]:
    """The trials of each setting, by its name, in their order."""
    groups: dict[str, list[ReplayTrial]] = {}
    for trial in trials:
        setting = trial.setting
        name = setting.policy
        if setting.workers > 1:
            name += f", {setting.workers} workers"
        groups.setdefault(name, []).append(trial)
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
    """The measure (cost or time) of each search when it first, or for good, found the best arm; inf
    if never.
    """
    starts = [lasting_find(trial) if lasting else first_find(trial) for trial in trials]
    return [measure(step) if step else math.inf for step in starts]


def first_find(trial: ReplayTrial) -> ReplayStep | None:
    """The first step with the best arm."""
    return next(filter(is_found, trial.path), None)


def lasting_find(trial: ReplayTrial) -> ReplayStep | None:
    """The first step from which on all steps have the best arm."""
    last_miss = max((i for i, step in enumerate(trial.path) if not is_found(step)), default=-1)
    return next(iter(trial.path[last_miss + 1 :]), None)


#: Bands of the stated confidence, [low, high), that are compared with the truth; the last one
#: overlaps.
BANDS = ((0.0, 0.2), (0.2, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.0), (0.9, 1.0))


@dataclass(frozen=True)
class ConfidenceBand:
    """Moments at which the stated confidence was in [low, high), and how often no other arm then
    was better.
    """

    low: float
    high: float  # included if 1
    mean: float  # of the stated confidence
    correct: Rate  # over all moments
    # 95 %, of `correct` by search, since moments of one search are not independent
    interval: tuple[float, float]
    first: Rate  # over the first such moment of each search
    expected_loss: float  # mean of the stated one ...
    loss: float  # ... and of the true one, where the arm is complete


def confidence_bands(
    trials: Sequence[ReplayTrial], bands: Sequence[tuple[float, float]] = BANDS
) -> list[ConfidenceBand]:
    """Compare the stated confidence with the truth at all moments at which it was computed; skip
    empty bands.
    """
    result = []
    for low, high in bands:
        searches = [
            [s for s in trial.path if low <= s.confidence < high or s.confidence == high == 1.0]
            for trial in trials
        ]
        if searches := [steps for steps in searches if steps]:
            every = [step for steps in searches for step in steps]
            mean = float(np.mean([step.confidence for step in every]))
            losses = [(step.expected_loss, step.loss) for step in every if math.isfinite(step.loss)]
            lost = np.mean(losses or [(math.nan, math.nan)], axis=0).tolist()
            rates = [Rate(sum(map(is_best, steps)), len(steps)) for steps in searches]
            correct = Rate(sum(rate.hits for rate in rates), sum(rate.of for rate in rates))
            first = Rate(sum(is_best(steps[0]) for steps in searches), len(searches))
            result.append(
                ConfidenceBand(low, high, mean, correct, _clustered_interval(rates), first, *lost)
            )
    return result


def _clustered_interval(searches: Sequence[Rate]) -> tuple[float, float]:
    """Wilson's interval for the effective number of moments, from the variance of a ratio of sums
    over searches.
    """
    of, n = sum(rate.of for rate in searches), len(searches)
    value = sum(rate.hits for rate in searches) / of
    square = sum((rate.hits - value * rate.of) ** 2 for rate in searches)
    if not square or n == 1:
        return _wilson(value, n)
    variance = square * n / (n - 1) / of**2
    return _wilson(value, min(of, value * (1 - value) / variance))


def success_table(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> Table:
    """How many searches had found the best arm, at each share of the exhaustive cost."""
    rows = [
        (setting, *(_hits(success(group, share)) for share in shares))
        for setting, group in by_setting(trials).items()
    ]
    title = f"Searches whose arm is within {WITHIN:.0%} of the best, after a share of the exhaustive cost"
    return Table(("policy", *map(_percent, shares)), tuple(rows), title)


def confidence_table(trials: Sequence[ReplayTrial]) -> Table:
    """Stated confidence against how often the arm was good."""
    rows = []
    for setting, group in by_setting(trials).items():
        for band in confidence_bands(group):
            stated = f"{band.low:.2f}-{band.high:.2f}" if band.high < 1 else f"≥ {band.low:.2f}"
            correct = f"{band.correct.value:.3f}", _interval(band.interval), str(band.correct.of)
            first = _hits(band.first), _interval(band.first.interval)
            lost = [f"{100 * loss:.2g} %" for loss in (band.expected_loss, band.loss)]
            rows.append((setting, stated, f"{band.mean:.3f}", *correct, *first, *lost))
    found = ("stated", "mean", "true", "95 % interval", "moments", "first", "95 % interval")
    header = ("policy", *found, "expected loss", "true loss")
    note = (
        "Moments of one search are not independent, so the interval is computed by search. 'first': the first moment "
        "of each search. Losses are means over the moments: by how much the best arm's mean score exceeds that of the "
        "recommended arm, as the posterior expects and in truth."
    )
    return Table(header, tuple(rows), "Confidence that no other arm is better", (note,))


def ending_table(searches: Mapping[tuple[str, str], Sequence[ReplayTrial]]) -> Table:
    """What searches cost to their end, and what their arms lose, by costs and by rule."""
    rows = []
    for names, trials in searches.items():
        ends = [trial.path[-1] for trial in trials]
        losses = [end.loss for end in ends]
        stated = [end for end in ends if math.isfinite(end.most_lost)]
        rows.append(
            (
                *names,
                f"{np.mean([end.share for end in ends]):.1%}",
                _hits(Rate(sum(map(is_found, ends)), len(ends))),
                f"{np.mean(losses):.3%}",
                f"{quantile(losses, 0.95):.2%}",
                f"{max(losses):.2%}",
                _hits(Rate(sum(end.loss <= end.most_lost for end in stated), len(stated))),
            )
        )
    header = ("costs", "ends", "cost", "within 1 %", "mean loss", "95 %", "worst", "as stated")
    note = "As stated: ends at which the arm lost no more than was stated with 95 %, of those that state it."
    return Table(header, tuple(rows), "Where searches end", (note,))


def _interval(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3f}-{bounds[1]:.3f}"


def _hits(rate: Rate) -> str:
    return f"{rate.hits}/{rate.of}"


def _percent(share: float) -> str:
    """A share in per cent, with at most three digits.

    >>> _percent(0.003), _percent(0.2)
    ('0.3 %', '20 %')
    """
    return f"{100 * share:.3g} %"
