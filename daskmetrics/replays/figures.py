"""Curves of a replay: how often the best arm is found, and how much is lost, against what was spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from daskmetrics.replays.summary import by_setting, quantile, success
from daskmetrics.replays.trials import WITHIN, Setting, Trial

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
