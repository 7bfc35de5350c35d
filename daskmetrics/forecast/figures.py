"""Time and speed-up against number of workers, measured and simulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from daskmetrics.forecast.bench import Bench

MEASURED, LAW, SIMULATED = "#0072b2", "#999999", "#e69f00"  # Okabe and Ito (2008)


def draw(bench: Bench, path: Path, simulate: int | None = None, units: int | None = None) -> Path:
    """Write a PNG: seconds and speed-up with their 90 % intervals, Amdahl's law, and the simulation if one is asked."""
    rows = bench.rows
    most = max(rows[-1].workers, simulate or 1)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts = [row.workers for row in rows]
    for ax, intervals in ((left, [row.seconds for row in rows]), (right, [row.speedup for row in rows])):
        values = np.array([interval.value for interval in intervals])
        bars = [
            [value - interval.low for value, interval in zip(values, intervals, strict=True)],
            [interval.high - value for value, interval in zip(values, intervals, strict=True)],
        ]
        ax.errorbar(counts, values, bars, fmt="o", color=MEASURED, capsize=3, label="measured, 90 %")
        ax.set(xlabel="workers", xscale="log", yscale="log")
    law = bench.law
    if law:
        grid = np.geomspace(counts[0], most, 100)
        times = np.array([law.total * (law.serial.value + (1 - law.serial.value) / n) for n in grid])
        left.plot(grid, times, color=LAW, label=f"Amdahl, serial {law.serial.value:.1%}")
        right.plot(grid, counts[0] * rows[0].seconds.value / times, color=LAW)
    if simulate:
        shown = bench.simulation(simulate, units)[0]
        numbers = [row.workers for row in shown]
        left.plot(numbers, [row.seconds.value for row in shown], "--", color=SIMULATED, label="simulated")
        right.plot(numbers, [row.speedup.value for row in shown], "--", color=SIMULATED)
    right.plot([1, most], [1, most], ":", color="black", lw=0.8, label="ideal")
    left.set(ylabel="seconds")
    right.set(ylabel="speed-up")
    handles = [handle for ax in (left, right) for handle in ax.get_legend_handles_labels()[0]]
    labels = [label for ax in (left, right) for label in ax.get_legend_handles_labels()[1]]
    once = dict(zip(labels, handles, strict=True))
    figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
