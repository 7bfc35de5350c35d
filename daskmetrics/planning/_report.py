"""Plans and benches as text: sheets of rows, and the sentences below them."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from daskmetrics.core._estimate import Estimate, Interval
from daskmetrics.core._text import duration, listed, plural
from daskmetrics.planning import Amdahl, Option, ScalingRow
from daskmetrics.planning._bench import Bench
from daskmetrics.planning._plan import Proposal, waits

SECONDS = {"s": 1, "min": 60, "h": 3600, "days": 86_400}


@dataclass(frozen=True)
class Sheet:
    """A table and what is said of it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def proposal_sheet(proposal: Proposal, now: float) -> Sheet:
    """The options, one row each, with the suggestions and what they rest on."""
    options = proposal.options
    costs = any(option.cost is not None for option in options)
    header = (
        "",
        "workers",
        "free",
        "wait",
        "run",
        "total",
        "GPU-h",
        *(("cost",) if costs else ()),
        "eff.",
        "ask for",
        "",
    )
    best: dict[int, list[str]] = {choice.option.number: [] for choice in proposal.suggestions}
    for choice in proposal.suggestions:
        best[choice.option.number].append(choice.what)
    pareto = {option.number for option in proposal.front}
    rows = tuple(_option_row(option, costs, best.get(option.number, []), option.number in pareto) for option in options)
    return Sheet(f"{proposal.name}: nothing is submitted", header, rows, tuple(_notes(proposal, now)))


def _option_row(option: Option, costs: bool, best: list[str], on_front: bool) -> tuple[str, ...]:
    offer = option.offer
    marks = "; ".join(option.problems) or ", ".join([*best, *(["front"] if on_front else [])])
    cost = (amount(option.cost.value) if option.cost else "?",) if costs else ()
    return (
        str(option.number),
        offer.label,
        "?" if offer.free is None else str(offer.free),
        waiting(offer.wait),
        times(option.run.interval),
        times(option.total),
        amount(option.worker_hours.value),
        *cost,
        f"{option.efficiency:.0%}",
        option.walltime + (f" x {option.jobs}" if option.jobs > 1 else ""),
        marks,
    )


def amount(number: float) -> str:
    """Hours or money, with no more digits than they deserve.

    Examples
    --------
    >>> amount(0.0123), amount(4.56), amount(1234.5)
    ('0.012', '4.6', '1,234')
    """
    return f"{number:,.0f}" if number >= 20 else f"{number:.2g}"


def waiting(wait: Estimate) -> str:
    """A wait in words.

    Examples
    --------
    >>> waiting(Estimate(Interval.exactly(0.0))), waiting(Estimate(Interval(0.0, 3600.0, 86400.0)))
    ('none', '60.0 min')
    """
    return "none" if wait.interval.high == 0 else duration(wait.value)


def times(interval: Interval) -> str:
    """A time with its bounds, all in one unit.

    Examples
    --------
    >>> times(Interval(3600.0, 7200.0, 14400.0)), times(Interval.exactly(60.0))
    ('2.0 (1.0-4.0) h', '60 s')
    """
    if interval.low == interval.high:
        return duration(interval.value)
    unit = duration(interval.value).rpartition(" ")[2]
    size = SECONDS[unit]
    low, value, high = (f"{number / size:,.{0 if number / size >= 100 else 1}f}" for number in bounds(interval))
    return f"{value} ({low}-{high}) {unit}"


def bounds(interval: Interval) -> tuple[float, float, float]:
    """Its three numbers."""
    return interval.low, interval.value, interval.high


def span(interval: Interval, form: str) -> str:
    """A number with its bounds."""
    if interval.low == interval.high:
        return form.format(interval.value)
    return f"{form.format(interval.value)} ({form.format(interval.low)}-{form.format(interval.high)})"


def _notes(proposal: Proposal, now: float) -> Iterator[str]:
    for choice in proposal.suggestions:
        yield f"{choice.what}: option {choice.option.number}, {choice.reason}"
    if not proposal.suggestions:
        yield "No option will do; the last column says why."
    if len(proposal.front) > 1:
        numbers = listed([str(option.number) for option in proposal.front])
        yield f"front: no option is both sooner and cheaper than {numbers}"
    for option, worth in waits(proposal.options):
        yield f"option {option.number} {worth}"
    for source in dict.fromkeys(option.run.source for option in proposal.options):
        own = [option for option in proposal.options if option.run.source == source]
        yield f"run time of {_numbers(own)}: {source}{age(own[0].run, now)}"
    for source in dict.fromkeys(option.offer.wait.source for option in proposal.options):
        own = [option for option in proposal.options if option.offer.wait.source == source]
        yield f"wait of {_numbers(own)}: {source}{age(own[0].offer.wait, now)}"
    yield from _needs(proposal)
    possible = [choice.option for choice in proposal.suggestions]
    if proposal.config is not None:
        for option in dict.fromkeys(possible):
            yield f"run option {option.number}: {proposal.command(option)}"
        yield "With --submit NUMBER it is run, and the prediction is kept beside it."


def _numbers(options: list[Option]) -> str:
    return f"option {listed([str(option.number) for option in options])}"


def _needs(proposal: Proposal) -> Iterator[str]:
    work = proposal.pairs[0][1]
    needs = [plural(work.units, "unit")]
    needs += [f"{work.vram_gib:.1f} GiB of GPU memory"] if work.vram_gib else []
    needs += [f"{work.host_gib:.1f} GiB of host memory per worker (both assumed)"] if work.host_gib else []
    needs += [f"{work.disk_bytes / 1e6:,.1f} MB of disk"] if work.disk_bytes else []
    yield f"needs: {', '.join(needs)}"
    if work.missing:
        yield f"missing here: {', '.join(work.missing)}"


def age(figure: Estimate, now: float) -> str:
    """How old a number is.

    Examples
    --------
    >>> age(Estimate(Interval.exactly(1.0), at=0.0), 7200.0), age(Estimate(Interval.exactly(1.0)), 0.0)
    (', 2.0 h ago', '')
    """
    return "" if figure.at is None else f", {duration(max(0.0, now - figure.at))} ago"


def bench_sheet(bench: Bench) -> Sheet:
    """What was measured."""
    repeats = len({trial.repeat for trial in bench.trials})
    title = f"{bench.name}: {plural(sum(map(len, bench.chains)), 'unit')}, {plural(repeats, 'repeat')}, measured"
    return Sheet(title, *_table(bench.rows), (bench.verdict, law_text(bench.law), _unsure(repeats)))


def simulation_sheet(bench: Bench, most: int, units: int | None = None) -> Sheet:
    """What a simulation makes of the measured unit times."""
    rows, law = bench.simulation(most, units)
    fewest = plural(min(trial.workers for trial in bench.trials))
    source = f"unit times as {fewest} took them, {bench.dispatch * 1e3:.1f} ms of the driver for each unit"
    return Sheet(f"{bench.name}: SIMULATED, not measured", *_table(rows, simulated=True), (source, law_text(law)))


def _table(
    rows: tuple[ScalingRow, ...], simulated: bool = False
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    costs = any(row.cost is not None for row in rows)
    header = ("workers", "time", "speed-up", "efficiency", "worker-h", *(("cost",) if costs else ()), "units/s")
    return header, tuple(_row(row, costs, simulated) for row in rows)


def _row(row: ScalingRow, costs: bool, simulated: bool) -> tuple[str, ...]:
    def shown(interval: Interval, form: str) -> str:
        return form.format(interval.value) if simulated else span(interval, form)

    return (
        str(row.workers),
        duration(row.seconds.value) if simulated else times(row.seconds),
        shown(row.speedup, "{:.2f}"),
        shown(row.efficiency, "{:.0%}"),
        f"{row.worker_hours:.3g}",
        *((f"{row.cost:,.3g}" if row.cost is not None else "",) if costs else ()),
        f"{row.throughput:.3g}",
    )


def law_text(law: Amdahl | None) -> str:
    """Amdahl's law in words.

    Examples
    --------
    >>> law_text(Amdahl(100.0, Interval(0.08, 0.1, 0.12)))
    'serial share 10 % (8 % to 12 %); beyond 11 workers, less than half of a worker is used'
    """
    if law is None:
        return "serial share: not known, it needs two numbers of workers"
    serial = law.serial
    share = f"serial share {_percent(serial.value)} ({_percent(serial.low)} to {_percent(serial.high)})"
    if law.knee is None:
        return f"{share}; no knee was seen"
    return f"{share}; beyond {plural(law.knee)}, less than half of a worker is used"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _unsure(repeats: int) -> str:
    if repeats == 1:
        return "one repeat says nothing of the spread: a factor of 1.25 either way is taken for it"
    return "bounds are 90 % intervals of the geometric mean"


def as_text(sheet: Sheet) -> str:
    """A sheet for a terminal: aligned columns, and its notes below."""
    lines = [sheet.header, *sheet.rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([sheet.title, "", *table, "", *sheet.notes])


def as_csv(sheet: Sheet) -> str:
    """A sheet for a spreadsheet."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([sheet.header, *sheet.rows])
    return text.getvalue()


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}img{max-width:100%}"
)


def write_page(title: str, sheets: Sequence[Sheet], path: Path, picture: Path | None = None) -> Path:
    """Write the page; nothing in it is loaded from anywhere."""
    body = "".join(part for sheet in sheets for part in _section(sheet))
    if picture is not None:
        png = base64.b64encode(picture.read_bytes()).decode()
        body += f'<img alt="time and speed-up against number of workers" src="data:image/png;base64,{png}">'
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>', encoding="utf-8")
    return path


def _section(sheet: Sheet) -> Iterator[str]:
    yield f"<h2>{escape(sheet.title)}</h2><table><tr>"
    yield from (f"<th>{escape(name)}</th>" for name in sheet.header)
    yield "</tr>"
    for row in sheet.rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"
    yield from (f"<p>{escape(note)}</p>" for note in sheet.notes)


MEASURED, LAW, SIMULATED = "#0072b2", "#999999", "#e69f00"  # Okabe and Ito (2008)


def draw(bench: Bench, path: Path, simulate: int | None = None, units: int | None = None) -> Path:
    """Write a PNG: seconds and speed-up with their 90 % intervals, Amdahl's law, and the simulation if one is asked."""
    from matplotlib.figure import Figure as Canvas

    rows = bench.rows
    most = max(rows[-1].workers, simulate or 1)
    figure = Canvas(figsize=(10, 4.2), layout="constrained")
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
