"""Tables of a plan and of a bench, and the plot and page of a bench."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._table import Table
from daskmetrics.core._text import duration, plural, size_text
from daskmetrics.planning import _scaling as scaling
from daskmetrics.planning._bench import Bench
from daskmetrics.planning._options import Option, available_now, break_even, named
from daskmetrics.planning._plan import Proposal
from daskmetrics.planning._scaling import Amdahl, ScalingRow

SECONDS = {"s": 1, "min": 60, "h": 3600, "days": 86_400}


def proposal_table(proposal: Proposal, now: float) -> Table:
    """One row for each option; the notes hold the suggestions and the sources of the numbers."""
    cost = ("cost",) if any(option.cost is not None for option in proposal.options) else ()
    header = ("#", "workers", "free", "wait", "run", "total", "worker hours", *cost, "eff.", "walltime")
    rows = [
        (
            str(option.number),
            option.offer.label,
            "?" if option.offer.free is None else str(option.offer.free),
            "none" if option.free_now else duration(option.offer.wait.value),
            times(option.run.interval),
            times(option.total),
            amount(option.worker_hours.value),
            *((amount(option.cost.value) if option.cost else "?",) if cost else ()),
            f"{option.efficiency:.0%}",
            option.walltime + (f" x {option.jobs}" if option.jobs > 1 else ""),
        )
        for option in proposal.options
    ]
    return Table(header, tuple(rows), f"Plan of {proposal.name} (nothing is submitted)", tuple(_notes(proposal, now)))


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """A plan for other programs; see docs/json.md."""
    return {
        "name": proposal.name,
        "at": proposal.at,
        "options": [_option_document(proposal, option) for option in proposal.options],
        "suggestions": [
            {"label": each.label, "option": each.option.number, "reason": each.reason} for each in proposal.suggestions
        ],
        "front": [option.number for option in proposal.front],
        "purpose": proposal.purpose,
        "chosen": proposal.chosen.option.number if proposal.chosen else None,
    }


def _option_document(proposal: Proposal, option: Option) -> dict[str, Any]:
    offer = ("profile", "device", "nodes", "workers", "partition", "free", "price", "wait")
    own = ("number", "run", "total", "worker_hours", "cost", "efficiency", "walltime", "jobs", "possible", "problems")
    return {
        **{name: getattr(option.offer, name) for name in offer},
        **{name: getattr(option, name) for name in own},
        "success": (record := option.offer.success) and {**vars(record), "chance": record.chance},
        "command": proposal.command(option) if proposal.config and option.possible else None,
    }


def amount(number: float) -> str:
    """Hours or money, rounded to the digits that matter.

    >>> amount(0.0123), amount(4.56), amount(1234.5)
    ('0.012', '4.6', '1,234')
    """
    return f"{number:,.0f}" if number >= 20 else f"{number:.2g}"


def times(interval: Interval) -> str:
    """A duration with its bounds, all in one unit.

    >>> times(Interval(3600.0, 7200.0, 14400.0)), times(Interval.exactly(60.0))
    ('2.0 (1.0-4.0) h', '60 s')
    """
    if interval.low == interval.high:
        return duration(interval.value)
    unit = duration(interval.value).rpartition(" ")[2]
    numbers = [bound / SECONDS[unit] for bound in interval.bounds]
    low, value, high = (f"{number:,.{0 if number >= 100 else 1}f}" for number in numbers)
    return f"{value} ({low}-{high}) {unit}"


def _notes(proposal: Proposal, now: float) -> Iterator[str]:
    options = proposal.options
    if chosen := proposal.chosen:
        yield f"for the purpose '{proposal.purpose}': option {chosen.option.number}, the {chosen.label} one"
    for suggestion in proposal.suggestions:
        yield f"{suggestion.label}: option {suggestion.option.number} {suggestion.reason}"
    if not proposal.suggestions:
        yield "No option can be used."
    for option in options:
        if option.problems:
            yield f"option {option.number} cannot be used: {'; '.join(option.problems)}"
    if len(proposal.front) > 1:
        yield f"front: {named(proposal.front)}; no other option is both faster and cheaper"
    yield from _waits(options)
    for what, of in {"run time": attrgetter("run"), "wait": attrgetter("offer.wait")}.items():
        for source in dict.fromkeys(of(option).source for option in options):
            same = [option for option in options if of(option).source == source]
            yield f"{what} of {named(same)}: {source}{age(of(same[0]), now)}"
    for record in dict.fromkeys(str(option.offer.success) for option in options if option.offer.success):
        same = [option for option in options if str(option.offer.success) == record]
        yield f"chance of success of {named(same)}: {record}"
    yield from _search_limit(proposal)
    yield from _paces(proposal)
    yield from _needs(proposal)
    if proposal.config is not None:
        for option in dict.fromkeys(suggestion.option for suggestion in proposal.suggestions):
            yield f"run option {option.number}: {proposal.command(option)}"
        yield "Add --submit NUMBER to run an option; its prediction is kept in the run's folder."


def _waits(options: Sequence[Option]) -> Iterator[str]:
    """For each option that has to wait, the longest wait with which it finishes before the one that is free now."""
    now = available_now(options)
    for later in options:
        if now is None or not later.possible or later.free_now:
            continue
        wait = later.offer.wait
        limit = break_even(now, later)
        if limit.value <= 0:
            yield f"option {later.number} finishes after option {now.number} even without a wait"
            continue
        sure = "wait" if wait.interval.high < limit.low else "do not wait"
        advice = "too close to call" if wait.interval.overlaps(limit) else sure
        bounds = f"{duration(max(0.0, limit.low))} to {duration(limit.high)}"
        yield (
            f"option {later.number} finishes before option {now.number} if it waits less than {duration(limit.value)} "
            f"({bounds}); expected wait {duration(wait.value)} ({wait.source}): {advice}"
        )


def _search_limit(proposal: Proposal) -> Iterator[str]:
    """How many workers a search can use, if an option has more."""
    for phase in proposal.pairs[0][1].phases:
        larger = [option for option in proposal.options if phase.chains and option.offer.workers > phase.chains]
        if phase.name == "search" and larger:
            yield (
                f"search: more than {phase.chains} workers bring no earlier answer, so {named(larger)} "
                f"{'takes' if len(larger) == 1 else 'take'} as long for it as {phase.chains} workers"
            )


def _paces(proposal: Proposal) -> Iterator[str]:
    """Samples per second and the time of an epoch of each training that ranks share, by option."""
    for option, (offer, work) in zip(proposal.options, proposal.pairs, strict=True):
        for phase in work.phases:
            if phase.samples:
                seconds = replace(work, phases=(phase,), download=None).on(offer.workers, offer.device)
                rate = phase.units * phase.samples / seconds.value
                epoch = f", an epoch takes {duration(phase.epoch / rate)}" if phase.epoch else ""
                how = "" if seconds.measured else " (assumed)"
                yield f"{phase.name} with option {option.number}: {rate:,.0f} samples/s{epoch}{how}"


def _needs(proposal: Proposal) -> Iterator[str]:
    work = proposal.pairs[0][1]
    needs = [plural(work.units, "unit")]
    needs += [f"{work.vram_gib:.1f} GiB of GPU memory"] if work.vram_gib else []
    needs += [f"{work.host_gib:.1f} GiB of host memory per worker (both assumed)"] if work.host_gib else []
    needs += [f"{size_text(work.disk_bytes)} of disk for results"] if work.disk_bytes else []
    yield f"needs: {', '.join(needs)}"
    if work.texts:
        yield f"texts: {work.texts}"
    if work.missing:
        yield f"not on this machine: {', '.join(work.missing)}"


def age(estimate: Estimate, now: float) -> str:
    """How long ago a number was measured.

    >>> age(Estimate(Interval.exactly(1.0), at=0.0), 7200.0), age(Estimate(Interval.exactly(1.0)), 0.0)
    (', 2.0 h ago', '')
    """
    return "" if estimate.at is None else f", {duration(max(0.0, now - estimate.at))} ago"


def bench_table(bench: Bench) -> Table:
    """What was measured."""
    repeats = len({trial.repeat for trial in bench.trials})
    title = f"{bench.name}: {plural(sum(map(len, bench.chains)), 'unit')}, {plural(repeats, 'repeat')}, measured"
    error = "bounds are 90 % intervals of the geometric mean"
    if repeats == 1:
        error = "one repeat does not show the spread: bounds assume a factor of 1.25 either way"
    return _scaling_table(title, bench.rows, (scaling.verdict(bench.rows), law_text(bench.law), error))


def simulation_table(bench: Bench, most: int, units: int | None = None) -> Table:
    """What a simulation with the measured unit times gives."""
    rows, law = bench.simulation(most, units)
    fewest = plural(min(trial.workers for trial in bench.trials))
    source = f"unit times as measured on {fewest}, and {bench.dispatch * 1e3:.1f} ms of the driver for each unit"
    if bench.is_shared:
        source = "Amdahl's law, fitted to the measured times; the batch of a step stays the same"
    return _scaling_table(f"{bench.name}: SIMULATED, not measured", rows, (source, law_text(law)), simulated=True)


def size_table(
    bench: Bench, cores: Sequence[int], memory: Sequence[float | None], most: int, units: int | None = None
) -> Table:
    """What larger workers would change: how many units fit side by side, and the simulated time."""
    rows = tuple(
        (
            str(size.cores),
            "any" if size.memory is None else size_text(size.memory),
            str(size.units),
            size.limit,
            *(duration(seconds) if size.units else "no unit fits" for seconds in times),
        )
        for size, *times in bench.sizes(cores, memory, most, units)
    )
    notes = (
        f"a unit takes the {plural(bench.cores, 'core')} and the peak memory ({size_text(bench.memory)}) of the worker "
        "that was measured",
        "units side by side also share caches and the bus to the memory, which is not simulated",
    )
    header = ("cores", "memory", "units side by side", "limit", "time, 1 worker", f"time, {plural(most)}")
    return Table(header, rows, f"{bench.name}: larger workers, SIMULATED, not measured", notes)


def _scaling_table(title: str, rows: Sequence[ScalingRow], notes: tuple[str, ...], simulated: bool = False) -> Table:
    def span(interval: Interval, form: str) -> str:
        low, value, high = (form.format(bound) for bound in interval.bounds)
        return value if simulated or interval.low == interval.high else f"{value} ({low}-{high})"

    cost = ("cost",) if any(row.cost is not None for row in rows) else ()
    trains = any(row.samples for row in rows)
    million = ("cost per million samples",) if trains and cost else ()
    last = ("samples/s", *million, "verdict") if trains else ("units/s",)
    header = ("workers", "time", "speed-up", "efficiency", "worker hours", *cost, *last)

    def tail(row: ScalingRow) -> tuple[str, ...]:
        if not trains:
            return (f"{row.throughput:.3g}",)
        per_million = [] if row.cost is None else [f"{row.cost / row.samples * 1e6:,.3g}"]
        return (f"{row.samples / row.seconds.value:,.3g}", *per_million, row.verdict)

    cells = [
        (
            str(row.workers),
            duration(row.seconds.value) if simulated else times(row.seconds),
            span(row.speedup, "{:.2f}"),
            span(row.efficiency, "{:.0%}"),
            f"{row.worker_hours:.3g}",
            *([] if row.cost is None else [f"{row.cost:,.3g}"]),
            *tail(row),
        )
        for row in rows
    ]
    return Table(header, tuple(cells), title, notes)


def law_text(law: Amdahl | None) -> str:
    """Amdahl's law in words.

    >>> law_text(Amdahl(100.0, Interval(0.08, 0.1, 0.12)))
    'serial share 10 % (8 % to 12 %); beyond 11 workers, less than half of an added worker is used'
    """
    if law is None:
        return "serial share: unknown, since it takes two numbers of workers to fit it"
    low, value, high = (f"{100 * share:.3g} %" for share in law.serial.bounds)
    knee = "no knee was found"
    if law.knee is not None:
        knee = f"beyond {plural(law.knee)}, less than half of an added worker is used"
    return f"serial share {value} ({low} to {high}); {knee}"


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}img{max-width:100%}"
)


def write_page(title: str, tables: Sequence[Table], path: Path, picture: Path | None = None) -> Path:
    """Write tables and a picture as one HTML file that loads nothing from elsewhere."""
    body = "".join(table.as_html() for table in tables)
    if picture is not None:
        png = base64.b64encode(picture.read_bytes()).decode()
        body += f'<img alt="time and speed-up against number of workers" src="data:image/png;base64,{png}">'
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    path.write_text(f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>', encoding="utf-8")
    return path


MEASURED, LAW, SIMULATED = "#0072b2", "#999999", "#e69f00"  # Okabe and Ito (2008)


def draw(bench: Bench, path: Path, simulate: int | None = None, units: int | None = None) -> Path:
    """Write a PNG: seconds and speed-up with their 90 % intervals, Amdahl's law, and the simulation if requested."""
    from matplotlib.figure import Figure

    rows, law = bench.rows, bench.law
    counts = [row.workers for row in rows]
    most = max(counts[-1], simulate or 1)
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for ax, intervals in ((left, [row.seconds for row in rows]), (right, [row.speedup for row in rows])):
        low, value, high = np.array([interval.bounds for interval in intervals]).T
        error = [value - low, high - value]
        ax.errorbar(counts, value, error, fmt="o", color=MEASURED, capsize=3, label="measured, 90 %")
        ax.set(xlabel="workers", xscale="log", yscale="log")
    if law:
        grid = np.geomspace(counts[0], most, 100)
        fitted = np.array([law.seconds(n) for n in grid])
        left.plot(grid, fitted, color=LAW, label=f"Amdahl, serial {law.serial.value:.1%}")
        right.plot(grid, counts[0] * rows[0].seconds.value / fitted, color=LAW)
    if simulate:
        simulation = bench.simulation(simulate, units)[0]
        numbers = [row.workers for row in simulation]
        left.plot(numbers, [row.seconds.value for row in simulation], "--", color=SIMULATED, label="simulated")
        right.plot(numbers, [row.speedup.value for row in simulation], "--", color=SIMULATED)
    right.plot([1, most], [1, most], ":", color="black", lw=0.8, label="ideal")
    left.set(ylabel="seconds")
    right.set(ylabel="speed-up")
    lines = {line.get_label(): line for ax in (left, right) for line in ax.get_legend_handles_labels()[0]}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)
    return path
