"""A replay as tables for a terminal: headers and rows of text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from daskmetrics.bandit.replay._scenario import truth
from daskmetrics.bandit.replay._statistics import (
    Rate,
    arrivals,
    by_setting,
    calibration,
    difference,
    quantile,
    success,
    verdict,
)
from daskmetrics.bandit.replay._trials import WITHIN, Plan, Setting, Trial
from daskmetrics.core._text import duration


@dataclass(frozen=True)
class Sheet:
    """A table with a title, and what must be said below it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def sheets(trials: Sequence[Trial], shares: Sequence[float], clock: bool) -> list[Sheet]:
    """Everything that trials add up to.

    Parameters
    ----------
    trials : sequence of Trial
    shares : sequence of float
        Of the exhaustive cost.
    clock : bool
        Whether costs are seconds.
    """
    every = (
        success_sheet(trials, shares),
        speed_sheet(trials, clock),
        calibration_sheet(trials),
        ablation_sheet(trials, shares),
    )
    return [sheet for sheet in every if sheet.rows]


def about(plan: Plan) -> str:
    """What is searched, in two lines."""
    table, terms = plan.table, plan.terms
    problem = terms.pose(table)
    judged = truth(table, problem)
    costs, whole = terms.costs_of(table), problem.exhaustive_cost
    unit = f"{whole:,.0f} cells" if costs == "unit" else duration(whole)
    drawn = f", {terms.subset} of them drawn by each seed" if terms.subset else ""
    good = int((judged.loss <= WITHIN).sum())
    return (
        f"{len(table.arms):,} arms x {len(table.tasks)} tasks{drawn}; {table.known:,} of {table.scores.size:,} cells "
        f"are known; all cost {unit} ({costs}).\n"
        f"Best arm by {terms.reward}: {table.arms[judged.best]}; {good} arms are within {WITHIN:.0%} of its mean score."
    )


def success_sheet(trials: Sequence[Trial], shares: Sequence[float]) -> Sheet:
    """How many searches had found the best arm, at each share of the exhaustive cost."""
    rows = [
        (str(setting), *(_hits(success(own, share)) for share in shares)) for setting, own in by_setting(trials).items()
    ]
    title = f"Searches whose arm is within {WITHIN:.0%} of the best, after a share of the exhaustive cost"
    return Sheet(title, ("policy", *map(_percent, shares)), tuple(rows))


def speed_sheet(trials: Sequence[Trial], clock: bool) -> Sheet:
    """What it takes until the best arm is found."""
    rows = []
    for setting, own in by_setting(trials).items():
        cost = arrivals(own, lambda step: step.share)
        lasting = arrivals(own, lambda step: step.share, lasting=True)
        time = arrivals(own, lambda step: step.seconds)
        spans = [_span(time, 0.5), _span(time, 0.9)] if clock else []
        busy = f"{sum(trial.busy for trial in own) / len(own):.2f}"
        shares = [_share(cost, 0.5), _share(cost, 0.9), _share(lasting, 0.5), _share(lasting, 0.9)]
        rows.append((str(setting), *shares, *spans, busy))
    header = ["policy", "cost", "p90", "lasting", "p90"]
    header += ["time", "p90"] if clock else []
    note = "Medians, each with its 90th percentile; 'lasting': and so at every later look; '-': beyond the budget."
    return Sheet(f"Spent until within {WITHIN:.0%} of the best", (*header, "busy"), tuple(rows), note)


def calibration_sheet(trials: Sequence[Trial]) -> Sheet:
    """Stated confidence against what came true."""
    rows = []
    for setting, own in by_setting(trials).items():
        for each in calibration(own):
            band = f"{each.low:.2f}-{each.high:.2f}" if each.high < 1 else f"≥ {each.low:.2f}"
            true = f"{each.true.value:.3f}", _interval(each.interval), str(each.true.of)
            rows.append(
                (str(setting), band, f"{each.said:.3f}", *true, _hits(each.first), _interval(each.first.interval))
            )
    header = ("policy", "said", "mean", "true", "95 % interval", "looks", "first", "95 % interval")
    note = "Looks at one search are not independent: the interval is by search. First look: one per search."
    return Sheet(f"Confidence that the arm is within {WITHIN:.0%} of the best", header, tuple(rows), note)


def _interval(bounds: tuple[float, float]) -> str:
    return f"{bounds[0]:.3f}-{bounds[1]:.3f}"


def ablation_sheet(trials: Sequence[Trial], shares: Sequence[float]) -> Sheet:
    """With and without metrics as features, on the same seeds."""
    groups = by_setting(trials)
    rows, said = [], []
    for setting, without in groups.items():
        if setting.metrics:
            continue
        with_ = next(own for other, own in groups.items() if other.metrics and _alike(other, setting))
        differences = [difference(with_, without, share) for share in shares]
        said.append(f"{setting.policy}: {verdict(differences, len(without))}")
        for share, each in zip(shares, differences, strict=True):
            low, high = each.interval
            values = (_hits(success(own, share)) for own in (with_, without))
            rows.append((setting.policy, _percent(share), *values, f"{each.value:+.2f}", f"{low:+.2f} to {high:+.2f}"))
    header = ("policy", "cost", "with metrics", "without", "difference", "95 % interval")
    title = f"Do metrics help? Searches within {WITHIN:.0%} of the best, on the same seeds"
    return Sheet(title, header, tuple(rows), "\n".join(said))


def _alike(one: Setting, other: Setting) -> bool:
    return (one.policy, one.workers) == (other.policy, other.workers)


def _hits(rate: Rate) -> str:
    return f"{rate.hits}/{rate.of}"


def _percent(share: float) -> str:
    """A share without needless digits.

    Examples
    --------
    >>> _percent(0.003), _percent(0.2)
    ('0.3 %', '20 %')
    """
    return f"{100 * share:.3g} %"


def _share(values: Sequence[float], q: float) -> str:
    value = quantile(values, q)
    return _percent(value) if math.isfinite(value) else "-"


def _span(values: Sequence[float], q: float) -> str:
    value = quantile(values, q)
    return duration(value) if math.isfinite(value) else "-"


COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")  # Okabe and Ito (2008)
STYLES = ("-", "--", ":", "-.")
POINTS = 80  #: of a curve


def draw(trials: Sequence[Trial], path: Path) -> Path:
    """Write a PNG: within `WITHIN` of the best, and median loss, both against the share of the exhaustive cost."""
    groups = by_setting(trials)
    least = min(trial.path[0].share for trial in trials)
    most = max(trial.path[-1].share for trial in trials)
    shares = np.geomspace(max(least, 1e-5), most, POINTS)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curves(left, groups, shares, lambda own, share: success(own, share).value)
    _curves(right, groups, shares, _median_loss)
    left.set(ylabel=f"searches within {WITHIN:.0%} of the best", ylim=(-0.02, 1.02))
    right.set(ylabel="median loss, share of the best score", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _curves(
    ax: Any,
    groups: dict[Setting, list[Trial]],
    shares: np.ndarray,
    height: Callable[[Sequence[Trial], float], float],
) -> None:
    for i, (setting, own) in enumerate(groups.items()):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i // len(COLOURS) % len(STYLES)]}
        ax.plot(shares, [height(own, share) for share in shares], label=str(setting), **style)
    ax.set(xscale="log", xlabel="share of the exhaustive cost")
    ax.grid(alpha=0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _median_loss(trials: Sequence[Trial], share: float) -> float:
    """Of the searches that had begun; an exact hit is drawn at a thousandth of `WITHIN`, since the axis has no zero."""
    losses = [step.loss for trial in trials if (step := trial.after(share))]
    return max(quantile(losses, 0.5), WITHIN / 1000) if losses else np.nan
