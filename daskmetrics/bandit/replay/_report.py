"""A replay as tables for a terminal, and as curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from daskmetrics.bandit.replay._scenario import GroundTruth, ground_truth
from daskmetrics.bandit.replay._statistics import (
    Rate,
    by_setting,
    conclusion,
    confidence_bands,
    paired_difference,
    quantile,
    success,
    until_found,
)
from daskmetrics.bandit.replay._trials import WITHIN, ReplayPlan, ReplayTrial, Setting
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def summary_tables(trials: Sequence[ReplayTrial], shares: Sequence[float], clock: bool) -> list[Table]:
    """All tables that summarise the trials; a table without rows is left out.

    Parameters
    ----------
    trials : sequence of ReplayTrial
    shares : sequence of float
        Shares of the exhaustive cost at which policies are compared.
    clock : bool
        Whether costs are seconds.
    """
    every = (
        success_table(trials, shares),
        cost_table(trials, clock),
        confidence_table(trials),
        ablation_table(trials, shares),
    )
    return [table for table in every if table.rows]


def describe(plan: ReplayPlan) -> str:
    """The search problem of a plan, in two lines, and a third one if arms lack scores."""
    table, scenario = plan.table, plan.scenario
    problem = scenario.build_problem(table)
    truth = ground_truth(table, problem)
    costs, whole = scenario.costs_for(table), problem.exhaustive_cost
    total = f"{whole:,.0f} cells" if costs == "unit" else duration(whole)
    subset = f", {scenario.subset} of them drawn by each seed" if scenario.subset else ""
    good, holes = int((truth.loss <= WITHIN).sum()), _holes(truth)
    return (
        f"{len(table.arms):,} arms x {len(table.tasks)} tasks{subset}; {table.known:,} of {table.scores.size:,} cells "
        f"are known; all cost {total} ({costs}).\n"
        f"Best arm by {scenario.reward}: {table.arms[truth.best]}; {good} arms are within {WITHIN:.0%} of its mean "
        f"score.{holes}"
    )


def _holes(truth: GroundTruth) -> str:
    """How many arms lack scores, and what that means."""
    incomplete = np.isinf(truth.loss)
    if not incomplete.any():
        return ""
    return (
        f"\n{incomplete.sum():,} of {len(incomplete):,} arms are incomplete: they lack a score on a task of the "
        "objective. A cell without a score fails. The best arm is that of the complete arms, and a search that "
        "recommends an incomplete one has not found it. --complete leaves incomplete arms out of the search."
    )


def success_table(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> Table:
    """How many searches had found the best arm, at each share of the exhaustive cost."""
    rows = [
        (str(setting), *(_hits(success(group, share)) for share in shares))
        for setting, group in by_setting(trials).items()
    ]
    title = f"Searches whose arm is within {WITHIN:.0%} of the best, after a share of the exhaustive cost"
    return Table(("policy", *map(_percent, shares)), tuple(rows), title)


def cost_table(trials: Sequence[ReplayTrial], clock: bool) -> Table:
    """Cost and time until the best arm is found."""
    rows = []
    for setting, group in by_setting(trials).items():
        cost = until_found(group, lambda step: step.share)
        lasting = until_found(group, lambda step: step.share, lasting=True)
        time = until_found(group, lambda step: step.seconds)
        columns = [(cost, _percent), (lasting, _percent), *([(time, duration)] if clock else [])]
        cells = [
            form(at) if math.isfinite(at := quantile(values, q)) else "-"
            for values, form in columns
            for q in (0.5, 0.9)
        ]
        busy = f"{sum(trial.utilisation for trial in group) / len(group):.2f}"
        rows.append((str(setting), *cells, busy))
    header = ("policy", "cost", "p90", "lasting", "p90", *(("time", "p90") if clock else ()), "busy")
    note = (
        "Medians, each with its 90th percentile. 'lasting': the arm stayed within this distance to the end. "
        "'-': not within the budget."
    )
    return Table(header, tuple(rows), f"Spent until within {WITHIN:.0%} of the best", (note,))


def confidence_table(trials: Sequence[ReplayTrial]) -> Table:
    """Stated confidence against how often the arm was good."""
    rows = []
    for setting, group in by_setting(trials).items():
        for band in confidence_bands(group):
            stated = f"{band.low:.2f}-{band.high:.2f}" if band.high < 1 else f"≥ {band.low:.2f}"
            correct = f"{band.correct.value:.3f}", _interval(band.interval), str(band.correct.of)
            first = _hits(band.first), _interval(band.first.interval)
            lost = [f"{100 * loss:.2g} %" for loss in (band.expected_loss, band.loss)]
            rows.append((str(setting), stated, f"{band.mean:.3f}", *correct, *first, *lost))
    found = ("stated", "mean", "true", "95 % interval", "moments", "first", "95 % interval")
    header = ("policy", *found, "expected loss", "true loss")
    note = (
        "Moments of one search are not independent, so the interval is computed by search. 'first': the first moment "
        "of each search. Losses are means over the moments: by how much the best arm's mean score exceeds that of the "
        "recommended arm, as the posterior expects and in truth."
    )
    return Table(header, tuple(rows), f"Confidence that the arm is within {WITHIN:.0%} of the best", (note,))


def ablation_table(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> Table:
    """With and without metrics as features, on the same seeds."""
    groups = by_setting(trials)
    rows, notes = [], []
    for setting, without in groups.items():
        if setting.metrics:
            continue
        with_ = groups[Setting(setting.policy, setting.workers)]
        differences = [paired_difference(with_, without, share) for share in shares]
        notes.append(f"{setting.policy}: {conclusion(differences, len(without))}")
        for share, each in zip(shares, differences, strict=True):
            low, high = each.interval
            hits = (_hits(success(group, share)) for group in (with_, without))
            rows.append((setting.policy, _percent(share), *hits, f"{each.value:+.2f}", f"{low:+.2f} to {high:+.2f}"))
    header = ("policy", "cost", "with metrics", "without", "difference", "95 % interval")
    title = f"Do metrics help? Searches within {WITHIN:.0%} of the best, on the same seeds"
    return Table(header, tuple(rows), title, tuple(notes))


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


COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#000000")  # Okabe and Ito (2008)
STYLES = ("-", "--", ":", "-.")
POINTS = 80  #: number of points of a curve


def draw(trials: Sequence[ReplayTrial], path: Path) -> Path:
    """Write a PNG: success rate and median loss, both against the share of the exhaustive cost."""
    from matplotlib.figure import Figure

    groups = by_setting(trials)
    least = min(trial.path[0].share for trial in trials)
    most = max(trial.path[-1].share for trial in trials)
    shares = np.geomspace(max(least, 1e-5), most, POINTS)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _curves(left, groups, shares, lambda group, share: success(group, share).value)
    _curves(right, groups, shares, _median_loss)
    left.set(ylabel=f"searches within {WITHIN:.0%} of the best", ylim=(-0.02, 1.02))
    right.set(ylabel="median loss, share of the best score", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _curves(
    ax: Axes,
    groups: dict[Setting, list[ReplayTrial]],
    shares: np.ndarray,
    height: Callable[[Sequence[ReplayTrial], float], float],
) -> None:
    for i, (setting, group) in enumerate(groups.items()):
        colour, style = COLOURS[i % len(COLOURS)], STYLES[i // len(COLOURS) % len(STYLES)]
        heights = [height(group, share) for share in shares]
        ax.plot(shares, heights, label=str(setting), color=colour, linestyle=style)
    ax.set(xscale="log", xlabel="share of the exhaustive cost")
    ax.grid(alpha=0.3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _median_loss(trials: Sequence[ReplayTrial], share: float) -> float:
    """Median over the searches that have started; at least a thousandth of `WITHIN`, since a log axis has no zero."""
    losses = [step.loss for trial in trials if (step := trial.after(share))]
    return max(quantile(losses, 0.5), WITHIN / 1000) if losses else np.nan
