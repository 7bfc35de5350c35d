"""Tables of a plan and of a bench, and the figure of a bench."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from daskmetrics.core.costs import Interval
from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, plural, size_text
from daskmetrics.planning import scaling
from daskmetrics.planning.bench import Bench
from daskmetrics.planning.options import Option, available_now, break_even, front
from daskmetrics.planning.plan import Proposal
from daskmetrics.planning.scaling import Amdahl, ScalingRow

UNITS = (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172_800), ("days", 86_400, float("inf")))
OFFER_KEYS = ("profile", "device", "nodes", "workers", "partition", "free", "price", "wait")
OPTION_KEYS = (
    *("number", "run", "total", "worker_hours", "cost", "efficiency"),
    *("walltime", "jobs", "possible", "problems"),
)


def proposal_tables(proposal: Proposal, now: float) -> Iterator[Table]:
    """The options of a plan, where their numbers come from, what the run needs, and the commands."""
    if proposal.is_finished:
        yield Table((), (("state", "finished: nothing is left to do"),), f"Plan of {proposal.name}")
        return
    yield _option_table(proposal)
    yield _source_table(proposal.options, now)
    yield _need_table(proposal)
    chosen = dict.fromkeys(suggestion.option for suggestion in proposal.suggestions)
    commands = tuple((str(option.number), proposal.command(option)) for option in chosen)
    note = "Add --submit NUMBER to run an option; its prediction is kept in the run's folder."
    if commands:
        yield Table(("#", "command"), commands, notes=(note,))


def _option_table(proposal: Proposal) -> Table:
    columns: dict[str, list[str]] = defaultdict(list)
    for option in proposal.options:
        walltime = option.walltime
        if option.jobs > 1:
            walltime += f" x {option.jobs}"
        cells = {
            "#": str(option.number),
            "workers": option.offer.label,
            "free": "?" if option.offer.free is None else str(option.offer.free),
            "wait": "none" if option.free_now else duration(option.offer.wait.value),
            "run": times(option.run.interval),
            "total": times(option.total),
            "worker hours": amount(option.worker_hours.value),
            "cost": amount(option.cost.value) if option.cost else "",
            "eff.": f"{option.efficiency:.0%}",
            "walltime": walltime,
            "worth a wait below": _worth_waiting(option, proposal.options),
            "": _remark(option, proposal),
        }
        for name, cell in cells.items():
            columns[name].append(cell)
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    rows = tuple(zip(*filled.values(), strict=True))
    title = f"Plan of {proposal.name} (nothing is submitted)"
    return Table(tuple(filled), rows, title, tuple(_notes(proposal)))


def _remark(option: Option, proposal: Proposal) -> str:
    """What an option is best in, or why it cannot be used."""
    if option.problems:
        return f"cannot be used: {'; '.join(option.problems)}"
    labels = [
        suggestion.label for suggestion in proposal.suggestions if suggestion.option == option
    ]
    if proposal.chosen and proposal.chosen.option == option:
        labels.append(f"chosen for {proposal.purpose}")
    return ", ".join(labels)


def _worth_waiting(option: Option, options: Sequence[Option]) -> str:
    """The longest wait with which an option finishes before the one that is free now."""
    free_now = available_now(options)
    if free_now is None or option.free_now or not option.possible:
        return ""
    limit = break_even(free_now, option)
    wait = option.offer.wait.interval
    if limit.value <= 0:
        return "never"
    advice = "do not wait"
    if wait.overlaps(limit):
        advice = "too close to call"
    elif wait.high < limit.low:
        advice = "wait"
    return f"{times(Interval(max(0.0, limit.low), limit.value, limit.high))}: {advice}"


def _notes(proposal: Proposal) -> Iterator[str]:
    if not proposal.suggestions:
        yield "No option can be used."
    for suggestion in proposal.suggestions:
        if suggestion.ties:
            ties = _numbers(suggestion.ties)
            yield f"{suggestion.label}: the difference from {ties} is within the error"
    workload = proposal.pairs[0][1]
    limit = next((phase.chains for phase in workload.phases if phase.name == "search"), None)
    if limit and any(option.offer.workers > limit for option in proposal.options):
        yield f"search: more than {limit} workers bring no earlier answer"
    for option, (offer, work) in zip(proposal.options, proposal.pairs, strict=True):
        for phase in work.phases:
            if phase.samples:
                alone = replace(work, phases=(phase,), download=None)
                rate = phase.units * phase.samples / alone.on(offer.workers, offer.device).value
                note = f"{phase.name} with option {option.number}: {rate:,.0f} samples/s"
                if phase.epoch:
                    note += f", an epoch takes {duration(phase.epoch / rate)}"
                yield note


def _numbers(options: Sequence[Option]) -> str:
    return listed([str(option.number) for option in options])


def _source_table(options: Sequence[Option], now: float) -> Table:
    """Where the numbers come from, and when they were measured."""
    sources: dict[tuple[str, str, str], list[Option]] = {}
    for option in options:
        estimates = {"run": option.run, "wait": option.offer.wait}
        for number, estimate in estimates.items():
            age = ""
            if estimate.at is not None:
                age = f"{duration(max(0.0, now - estimate.at))} ago"
            sources.setdefault((number, estimate.source, age), []).append(option)
        if record := option.offer.success:
            sources.setdefault(("chance of success", str(record), ""), []).append(option)
    ordered = sorted(sources.items(), key=lambda row: row[0][0])
    rows = tuple((number, _numbers(same), source, age) for (number, source, age), same in ordered)
    return Table(("number", "options", "from", "age"), rows)


def _need_table(proposal: Proposal) -> Table:
    workload = proposal.pairs[0][1]
    needs = {
        "units": str(workload.units),
        "GPU memory": f"{workload.vram_gib:.1f} GiB of a worker (estimated)",
        "host memory": f"{workload.host_gib:.1f} GiB of a worker (estimated)",
        "disk": f"{size_text(workload.disk_bytes)} of results",
        "texts": workload.texts,
        "not on this machine": ", ".join(workload.missing),
    }
    return Table(("needs", ""), tuple((name, text) for name, text in needs.items() if text))


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """A plan for other programs; see docs/json.md."""
    suggestions = []
    for suggestion in proposal.suggestions:
        ties = [option.number for option in suggestion.ties]
        number = suggestion.option.number
        suggestions.append({"label": suggestion.label, "option": number, "ties": ties})
    return {
        "name": proposal.name,
        "at": proposal.at,
        "options": [_option_document(proposal, option) for option in proposal.options],
        "suggestions": suggestions,
        "front": [option.number for option in front(proposal.options)],
        "purpose": proposal.purpose,
        "chosen": proposal.chosen.option.number if proposal.chosen else None,
    }


def _option_document(proposal: Proposal, option: Option) -> dict[str, Any]:
    record = option.offer.success
    return {
        **{name: getattr(option.offer, name) for name in OFFER_KEYS},
        **{name: getattr(option, name) for name in OPTION_KEYS},
        "success": record and {**vars(record), "chance": record.chance},
        "command": proposal.command(option) if option.possible else None,
    }


def amount(number: float) -> str:
    """Hours or money, rounded to the digits that matter.

    >>> amount(0.0123), amount(4.56), amount(1234.5)
    ('0.012', '4.6', '1,234')
    """
    if number >= 20:
        return f"{number:,.0f}"
    return f"{number:.2g}"


def times(interval: Interval) -> str:
    """A duration with its bounds, all in one unit.

    >>> times(Interval(3600.0, 7200.0, 14400.0)), times(Interval.exactly(60.0))
    ('2.0 (1.0-4.0) h', '60 s')
    """
    if interval.low == interval.high:
        return duration(interval.value)
    unit, size = next((name, size) for name, size, end in UNITS if interval.value < end)
    low, value, high = (_three_digits(bound / size) for bound in interval.bounds)
    return f"{value} ({low}-{high}) {unit}"


def _three_digits(number: float) -> str:
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}"


def bench_table(bench: Bench) -> Table:
    """What was measured."""
    repeats = len({trial.repeat for trial in bench.trials})
    units = plural(sum(map(len, bench.chains)), "unit")
    title = f"{bench.name}: {units}, {plural(repeats, 'repeat')}, measured"
    error = "bounds are 90 % intervals of the geometric mean"
    if repeats == 1:
        error = "one repeat does not show the spread: bounds assume a factor of 1.25 either way"
    fastest = scaling.fastest(bench.rows)
    cheapest = min(fastest, key=lambda row: row.worker_hours).workers
    names = listed([str(row.workers) for row in fastest])
    ranking = f"fastest within the error: {names} workers; of these the cheapest: {cheapest}"
    return Table(*_scaling_columns(bench.rows), title, (ranking, law_text(bench.law), error))


def simulation_table(bench: Bench, most: int) -> Table:
    """What a simulation with the measured unit times gives."""
    rows, law = bench.simulation(most)
    fewest = plural(min(trial.workers for trial in bench.trials))
    dispatch = f"{bench.dispatch * 1e3:.1f} ms of the driver for each unit"
    source = f"unit times as measured on {fewest}, and {dispatch}"
    if bench.is_shared:
        source = "Amdahl's law, fitted to the measured times; the batch of a step stays the same"
    title = f"{bench.name}: SIMULATED, not measured"
    return Table(*_scaling_columns(rows), title, (source, law_text(law)))


def size_table(
    bench: Bench,
    cores: Sequence[int],
    memory: Sequence[float | None],
    most: int,
) -> Table:
    """What larger workers would change: how many units fit side by side, and the simulated time."""
    rows = []
    for size, alone, together in bench.sizes(cores, memory, most):
        limit = "any" if size.memory is None else size_text(size.memory)
        seconds = ["no unit fits"] * 2
        if size.units:
            seconds = [duration(alone), duration(together)]
        rows.append((str(size.cores), limit, str(size.units), size.limit, *seconds))
    unit = f"{plural(bench.cores, 'core')} and the peak memory ({size_text(bench.memory)})"
    notes = (
        f"a unit takes the {unit} of the worker that was measured",
        "units side by side also share caches and the bus to the memory, which is not simulated",
    )
    header = ("cores", "memory", "units side by side", "limit")
    times_header = ("time, 1 worker", f"time, {plural(most)}")
    title = f"{bench.name}: larger workers, SIMULATED, not measured"
    return Table((*header, *times_header), tuple(rows), title, notes)


def _scaling_columns(
    rows: Sequence[ScalingRow],
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Header and rows; simulated numbers have no bounds."""
    trains = any(row.samples for row in rows)
    priced = any(row.cost is not None for row in rows)
    columns: dict[str, list[str]] = {
        "workers": [str(row.workers) for row in rows],
        "time": [times(row.seconds) for row in rows],
        "speed-up": [_bounded(row.speedup, "{:.2f}") for row in rows],
        "efficiency": [_bounded(row.efficiency, "{:.0%}") for row in rows],
        "worker hours": [f"{row.worker_hours:.3g}" for row in rows],
    }
    if priced:
        columns["cost"] = [f"{row.cost or 0:,.3g}" for row in rows]
    if trains:
        columns["samples/s"] = [f"{row.samples / row.seconds.value:,.3g}" for row in rows]
        if priced:
            costs = [f"{(row.cost or 0) / row.samples * 1e6:,.3g}" for row in rows]
            columns["cost per million samples"] = costs
        columns["verdict"] = [row.verdict for row in rows]
    else:
        columns["units/s"] = [f"{row.throughput:.3g}" for row in rows]
    return tuple(columns), tuple(zip(*columns.values(), strict=True))


def _bounded(interval: Interval, form: str) -> str:
    low, value, high = (form.format(bound) for bound in interval.bounds)
    if low == high:
        return value
    return f"{value} ({low}-{high})"


def law_text(law: Amdahl | None) -> str:
    """Amdahl's law in words.

    >>> law_text(Amdahl(100.0, Interval(0.08, 0.1, 0.12)))
    'serial share 10 % (8 % to 12 %); beyond 11 workers, less than half of an added worker is used'
    """
    if law is None:
        return "serial share: unknown, since it takes two numbers of workers to fit it"
    low, value, high = (f"{100 * share:.3g} %" for share in law.serial.bounds)
    share = f"serial share {value} ({low} to {high})"
    if law.knee is None:
        return f"{share}; no knee was found"
    return f"{share}; beyond {plural(law.knee)}, less than half of an added worker is used"


def draw(bench: Bench, path: Path, simulate: int | None = None) -> Path:
    """Write a PNG of the speed-up with its 90 % intervals, beside the ideal one and that of simulated
    workers if requested.
    """
    from matplotlib.figure import Figure

    counts = [row.workers for row in bench.rows]
    low, value, high = np.array([row.speedup.bounds for row in bench.rows]).T
    largest = max(counts[-1], simulate or 1)
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    ax = figure.subplots()
    ax.errorbar(counts, value, [value - low, high - value], fmt="o", label="measured, 90 %")
    if simulate:
        rows, _ = bench.simulation(simulate)
        speedup = [row.speedup.value for row in rows]
        ax.plot([row.workers for row in rows], speedup, "--", label="simulated")
    ax.plot([1, largest], [1, largest], ":", color="black", label="ideal")
    ax.set(xlabel="workers", ylabel="speed-up", xscale="log", yscale="log")
    ax.legend(frameon=False)
    figure.savefig(path, dpi=150)
    return path
