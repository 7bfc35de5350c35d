"""Tables of a plan and of a bench."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from daskmetrics.core.table import Table
from daskmetrics.core.text import duration, listed, plural, size_text
from daskmetrics.planning import scaling
from daskmetrics.planning.bench import Bench
from daskmetrics.planning.options import Option, bounded
from daskmetrics.planning.plan import Proposal
from daskmetrics.planning.scaling import Amdahl, ScalingRow

OFFER_KEYS = ("profile", "device", "nodes", "workers", "partition", "free", "price", "wait")
OPTION_KEYS = (
    *("number", "run", "total", "worker_hours", "cost", "efficiency"),
    *("walltime", "jobs", "possible", "problems"),
)


def proposal_tables(proposal: Proposal, now: float) -> Iterator[Table]:
    """The options of a plan, where their numbers come from, what the run needs, and the
    commands.
    """
    title = f"Plan of {proposal.name} (nothing is submitted)"
    if proposal.is_finished:
        yield Table((), (("state", "finished: nothing is left to do"),), title)
        return
    columns: dict[str, list[str]] = defaultdict(list)
    for option in proposal.options:
        walltime = option.walltime
        if option.jobs > 1:
            walltime += f" x {option.jobs}"
        # what an option is best in, or why it cannot be used
        remarks = [
            suggestion.label for suggestion in proposal.suggestions if suggestion.option == option
        ]
        if option == proposal.chosen:
            remarks.append("chosen")
        if option.problems:
            remarks = [f"cannot be used: {'; '.join(option.problems)}"]
        cells = {
            "#": str(option.number),
            "workers": option.offer.label,
            "free": "?" if option.offer.free is None else str(option.offer.free),
            "wait": "none"
            if option.offer.wait.interval.high == 0
            else duration(option.offer.wait.value),
            "run": bounded(option.run.interval),
            "total": bounded(option.total),
            "worker hours": amount(option.worker_hours.value),
            "cost": amount(option.cost.value) if option.cost else "",
            "eff.": f"{option.efficiency:.0%}",
            "walltime": walltime,
            "": ", ".join(remarks),
        }
        for name, cell in cells.items():
            columns[name].append(cell)
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    rows = tuple(zip(*filled.values(), strict=True))
    yield Table(tuple(filled), rows, title, tuple(_notes(proposal)))
    yield _source_table(proposal.options, now)
    workload = proposal.pairs[0][1]
    needs = {
        "units": str(workload.units),
        "GPU memory": f"{workload.vram_gib:.1f} GiB of a worker (estimated)",
        "host memory": f"{workload.host_gib:.1f} GiB of a worker (estimated)",
        "disk": f"{size_text(workload.disk_bytes)} of results",
        "texts": workload.texts,
        "not on this machine": ", ".join(workload.missing),
    }
    yield Table(("needs", ""), tuple((name, text) for name, text in needs.items() if text))
    suggested = dict.fromkeys(suggestion.option for suggestion in proposal.suggestions)
    commands = tuple((str(option.number), proposal.command(option)) for option in suggested)
    note = "Add --submit NUMBER to run an option; its prediction is kept in the run's folder."
    if commands:
        yield Table(("#", "command"), commands, notes=(note,))


def _notes(proposal: Proposal) -> Iterator[str]:
    if not proposal.suggestions:
        yield "No option can be used."
    for suggestion in proposal.suggestions:
        if suggestion.ties:
            ties = listed([str(option.number) for option in suggestion.ties])
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


def _source_table(options: Sequence[Option], now: float) -> Table:
    """Where the numbers come from, and when they were measured."""
    numbers: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for option in options:
        for name, estimate in (("run", option.run), ("wait", option.offer.wait)):
            age = ""
            if estimate.at is not None:
                age = f"{duration(max(0.0, now - estimate.at))} ago"
            numbers[name, estimate.source, age].append(str(option.number))
        if record := option.offer.success:
            numbers["chance of success", str(record), ""].append(str(option.number))
    rows = [(name, listed(of), source, age) for (name, source, age), of in numbers.items()]
    return Table(("number", "options", "from", "age"), tuple(sorted(rows)))


def proposal_document(proposal: Proposal) -> dict[str, Any]:
    """A plan for other programs; see docs/json.md."""
    suggestions = []
    for suggestion in proposal.suggestions:
        ties = [option.number for option in suggestion.ties]
        number = suggestion.option.number
        suggestions.append({"label": suggestion.label, "option": number, "ties": ties})
    options = []
    for option in proposal.options:
        record = option.offer.success
        document = {name: getattr(option.offer, name) for name in OFFER_KEYS}
        document |= {name: getattr(option, name) for name in OPTION_KEYS}
        document["success"] = record and {**vars(record), "chance": record.chance}
        document["command"] = proposal.command(option) if option.possible else None
        options.append(document)
    return {
        "name": proposal.name,
        "at": proposal.at,
        "options": options,
        "suggestions": suggestions,
        "purpose": proposal.purpose,
        "chosen": proposal.chosen and proposal.chosen.number,
    }


def amount(number: float) -> str:
    """Hours, money or rates, rounded to the digits that matter.

    >>> amount(0.0123), amount(4.56), amount(1234.5)
    ('0.0123', '4.56', '1,234')
    """
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}"


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
    columns: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        columns["workers"].append(str(row.workers))
        columns["time"].append(bounded(row.seconds))
        columns["speed-up"].append(bounded(row.speedup, "{:.2f}".format, "-"))
        columns["efficiency"].append(bounded(row.efficiency, "{:.0%}".format, "-"))
        columns["worker hours"].append(amount(row.worker_hours))
        if row.cost is not None:
            columns["cost"].append(amount(row.cost))
        if not row.samples:
            columns["units/s"].append(amount(row.throughput))
            continue
        columns["samples/s"].append(amount(row.samples / row.seconds.value))
        if row.cost is not None:
            columns["cost per million samples"].append(amount(row.cost / row.samples * 1e6))
        verdicts = scaling.VERDICTS.items()
        used = row.efficiency.value
        columns["verdict"].append(next(word for share, word in verdicts if used >= share))
    return tuple(columns), tuple(zip(*columns.values(), strict=True))


def law_text(law: Amdahl | None) -> str:
    """Amdahl's law in words.

    >>> from daskmetrics.planning.scaling import Interval
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
