"""What the workers used over time, with the work units that they ran below it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from daskmetrics.core.colours import COLOURS
from daskmetrics.core.events import Event, Record, WorkerJoined
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetrySample
from daskmetrics.report.plots._style import STYLE, blank, thinned

PANELS = (
    ("CPU, % of one", 1.0, ("cpu",), False),
    ("memory, GB", 1e9, ("memory",), False),
    (
        "network, MB/s",
        1e6,
        ("received", "sent"),
        True,
    ),  # of a machine: each of its workers reports the same
    ("disk, MB/s", 1e6, ("read", "written"), True),
    ("GPU, %", 1.0, ("gpu",), False),
    ("GPU memory, GB", 1e9, ("gpu_memory",), False),
    ("GPU power, W", 1.0, ("power",), False),
    ("GPU, °C", 1.0, ("temperature",), False),
)
"""Label, unit, quantities (the second one dashed), and whether they are those of the whole machine."""

# colours of units, none of which is a worker's
KINDS = (
    "#6b7580",
    "#b9c2cb",
    "#8c6bb1",
    "#2b2f33",
)
MOST_WORKERS = 24  # that have a row of units
MOST_NAMED = 10  # that the legend names
GAP = 4  # median intervals without a sample: the run was not running


@rc_context(STYLE)
def telemetry_panels(samples: Sequence[TelemetrySample], entries: Sequence[Event]) -> Figure:
    """One panel for each quantity that was reported, with a line for each worker; below, the units
    of the workers.
    """
    host = {entry.name: entry.host for entry in entries if isinstance(entry, WorkerJoined)}
    workers: set[str] = set()
    reported: set[str] = set()
    for sample in samples:
        workers.update(sample.readings)
        reported.update(*sample.readings.values())
    names = sorted(workers, key=lambda name: (len(name), name))
    panels = [panel for panel in PANELS if reported.intersection(panel[2])]
    rows = thinned(names, MOST_WORKERS)
    heights = [1.25] * len(panels) + [0.5 + 0.2 * len(rows)]
    figure = blank(sum(heights) + 0.5)
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    start = samples[0].at
    minutes = [(sample.at - start) / 60 for sample in samples]
    records = [entry for entry in entries if isinstance(entry, Record) and entry.at]
    for (label, unit, quantities, of_machine), ax in zip(panels, axes, strict=False):
        shown = names
        if of_machine:  # one worker speaks for all of its machine
            by_host = {host.get(name, name): name for name in reversed(names)}
            shown = [by_host[machine] for machine in sorted(by_host)]
        for number, worker in enumerate(shown):
            for quantity, dash in zip(quantities, ("-", "--"), strict=False):
                colour = COLOURS[number % len(COLOURS)]
                ax.plot(minutes, _line(samples, worker, quantity, unit), dash, color=colour, lw=1.2)
        ax.set_ylabel(label)
        ax.set_ylim(bottom=0)
        if len(quantities) > 1:
            ax.set_title(
                f"{quantities[0]} (solid), {quantities[1]} (dashed), by machine",
                loc="right",
                color="0.4",
            )
    if len(names) <= MOST_NAMED:
        lines = [
            Patch(color=COLOURS[i % len(COLOURS)], label=f"worker {name}")
            for i, name in enumerate(names)
        ]
        figure.legend(handles=lines, loc="outside upper left", ncols=len(lines), handlelength=1)
    _units(axes[-1], rows, records, samples)
    axes[-1].set_xlabel("minutes since the first sample")
    axes[-1].set_xlim(0, max(minutes[-1], *((record.at - start) / 60 for record in records), 0.1))
    return figure


def _line(
    samples: Sequence[TelemetrySample], worker: str, quantity: str, unit: float
) -> np.ndarray:
    """A quantity of a worker at every sample; NaN where it is not known, or the run was not running
    before.
    """
    usual = median([b.at - a.at for a, b in pairwise(samples)] or [0.0])
    late = [False, *(b.at - a.at > GAP * usual for a, b in pairwise(samples))]
    values = [sample.readings.get(worker, {}).get(quantity, np.nan) / unit for sample in samples]
    return np.where(late, np.nan, values)


def _units(
    ax: Axes, workers: Sequence[str], records: Sequence[Record], samples: Sequence[TelemetrySample]
) -> None:
    """A bar for each record of a worker, and for the time from sample to sample while its rank
    trained.
    """
    start, usual = samples[0].at, median([b.at - a.at for a, b in pairwise(samples)])
    trained = [(a, b.at - a.at) for a, b in pairwise(samples) if b.at - a.at <= GAP * usual]
    kinds = list(dict.fromkeys(record.kind for record in records if record.worker))
    if any(PROCESS_GROUP in sample.doing.values() for sample in samples):
        kinds.insert(0, PROCESS_GROUP)
    rows = {name: i for i, name in enumerate(reversed(workers))}
    for number, kind in enumerate(kinds):
        for name, row in rows.items():
            spans = [
                ((record.at - record.seconds - start) / 60, record.seconds / 60)
                for record in records
                if record.kind == kind and record.worker == name
            ]
            spans += [
                ((a.at - start) / 60, took / 60)
                for a, took in trained
                if kind == PROCESS_GROUP and a.doing.get(name) == kind
            ]
            ax.broken_barh(spans, (row - 0.4, 0.8), color=KINDS[number % len(KINDS)], lw=0)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylabel("units")
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.grid(visible=False, axis="y")
    patches = [Patch(color=KINDS[i % len(KINDS)], label=kind) for i, kind in enumerate(kinds)]
    ax.legend(handles=patches, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=1)
