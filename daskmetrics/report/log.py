"""The journal as text, line by line, and the history of one work unit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from daskmetrics.answer.analysis import NO_REASON
from daskmetrics.core import events as events
from daskmetrics.core.errors import ConfigError, did_you_mean, unknown
from daskmetrics.core.events import kind_of, kinds, to_json
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Key
from daskmetrics.core.results import Measured
from daskmetrics.core.table import printable
from daskmetrics.execution.journal import read

LAST_LINES = 40  #: shown of a worker's log
LONGEST = 300  #: characters shown of an entry as JSON
FIRST_LINE = 2  #: of the journal that holds an entry; the first holds its format

Numbered = tuple[int, events.Event]
NAMED = events.UnitAsked | events.Record | events.AttemptFailed | events.InputRecovered
OF_UNITS = NAMED | events.UnitsRetried


def journal_lines(
    folder: RunFolder, types: Sequence[str] = (), tail: int | None = None
) -> list[Numbered]:
    """Entries of a run's journal with their line numbers: of the given types, or only the last
    ones.
    """
    for name in types:
        if name not in kinds():
            raise unknown("type of entry", name, kinds())
    entries = list(enumerate(read(folder.must_exist().journal), FIRST_LINE))
    if types:
        entries = [(number, entry) for number, entry in entries if kind_of(entry) in types]
    if tail is None:
        return entries
    return entries[max(0, len(entries) - tail) :]


def journal_text(lines: Sequence[Numbered]) -> str:
    """One readable line per entry."""
    return "\n".join(
        f"{number:>6}  {kind_of(entry):<8}  {printable(_describe(entry))}"
        for number, entry in lines
    )


def journal_json(lines: Sequence[Numbered]) -> str:
    """One JSON object per entry, with its line number."""
    return "\n".join(json.dumps({"line": number, **to_json(entry)}) for number, entry in lines)


def _describe(entry: events.Event) -> str:
    """An entry in words, or as JSON."""
    worker = getattr(entry, "worker", None)
    where = f" on {worker}" if worker else ""
    match entry:
        case events.Record():
            end = f"{entry.status}: {entry.reason or NO_REASON}"
            if entry.ok:
                end = f"ok after {entry.seconds:.1f} s{where}"
            if entry.attempts > 1:
                end += f", attempt {entry.attempts}"
            return f"{entry.kind} {entry.name}  {end}"
        case events.AttemptFailed(name=name, fault=fault, reason=reason):
            blame = "" if entry.blamed else " (not its fault)"
            return f"{name}  {fault}{where}{blame}: {reason or NO_REASON}"
        case events.UnitAsked(name=name, note=note, pick=pick):
            if not pick:
                return name
            return f"{name}  decision {pick['index']} ({pick['stage']}), seed {note.get('seed')}"
        case events.RunStarted():
            machine = ", ".join(f"{name} {value}" for name, value in entry.environment.items())
            return (
                f"{entry.name}: {entry.checkpoints:,} checkpoints, {len(entry.tasks)} tasks;"
                f" {machine}"
            )
        case events.SearchEnded():
            name = "best candidate" if entry.confirmed else "expected to be the best:"
            return f"{name} {entry.best_arm}, probability {entry.probability_best:.2f}"
        case events.StorePlanned(measure=measure, files=files):
            return f"store of {len(measure):,} checkpoints, {len(files):,} metadata files"
        case events.UnitsRetried(keys=keys):
            return f"{len(keys)} failed units are tried again"
    text = json.dumps(vars(entry))
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} ... ({len(text):,} characters)"


@dataclass(frozen=True)
class UnitLog:
    """The key and the name of a work unit in a journal."""

    key: Key
    name: str


def log_text(folder: RunFolder, query: str) -> str:
    """The history of a unit: its attempts with tracebacks, its result and the logs of its workers.

    ``query`` is the key or name of a unit, or the beginning of one, such as ``tiny@step8``.
    """
    entries = list(enumerate(read(folder.must_exist().journal), FIRST_LINE))
    named = [entry for _, entry in entries if isinstance(entry, NAMED)]
    units = dict.fromkeys(UnitLog(entry.key, entry.name) for entry in named)
    return "\n\n".join(_history(folder, unit, entries) for unit in find(query, units))


def find(query: str, units: Iterable[UnitLog]) -> list[UnitLog]:
    """The units with this key or name, or with the only name that begins with it; `ConfigError`
    without a match.
    """
    units = list(units)
    if exact := [unit for unit in units if query in (unit.key, unit.name)]:
        return exact
    matches = [unit for unit in units if unit.key.startswith(query) or unit.name.startswith(query)]
    names = sorted({unit.name for unit in matches})
    if len(names) == 1:
        return matches
    if names:
        examples = names[:8]
        if len(names) > 8:
            examples.append("...")
        raise ConfigError(
            f"'{query}' matches {len(names)} units: {', '.join(examples)}. Give more of the name."
        )
    suggestion = did_you_mean(query, dict.fromkeys(unit.name for unit in units))
    raise ConfigError(
        f"Unknown unit '{query}'.{suggestion} 'daskmetrics runs journal RUN' lists all units."
    )


def _history(folder: RunFolder, unit: UnitLog, entries: Sequence[Numbered]) -> str:
    """The entries of a unit, with what is known beside them below each, and the logs of its
    workers.
    """
    lines = [f"{printable(unit.name)}  (key {unit.key})"]
    workers: dict[str, None] = {}
    for number, entry in entries:
        keys = [getattr(entry, "key", None), *getattr(entry, "keys", ())]
        if unit.key not in keys or not isinstance(entry, OF_UNITS):
            continue
        lines.append(journal_text([(number, entry)]))
        match entry:
            case events.AttemptFailed(trace=trace):
                lines += _indented(trace.splitlines())
            # the undefined metrics of a measured checkpoint
            case events.Record(value=Measured(reasons=reasons)):
                undefined = (f"{name} of layer {layer}: {text}" for layer, name, text in reasons)
                lines += _indented(undefined)
        if isinstance(entry, events.Record | events.AttemptFailed) and entry.worker:
            workers[entry.worker] = None
    for worker in workers:
        for log in _worker_logs(folder, worker):
            lines.append(f"\nlog of {printable(worker)}, {log}, last lines:")
            lines += _indented(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
    return "\n".join(lines)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"        {printable(line)}" for line in lines)


def _worker_logs(folder: RunFolder, worker: str) -> Iterator[Path]:
    """Logs that mention a worker, in the run's folder of logs and in that of its Slurm jobs."""
    folders = [folder.path / "logs"]
    if folder.config.is_file():
        cluster = yaml.safe_load(folder.config.read_text(encoding="utf-8"))["cluster"]
        if cluster["kind"] == "slurm":
            folders.append(Path(cluster["logs"]))
    for logs in folders:
        for log in sorted(logs.glob("*")):
            if log.is_file() and worker in log.read_text(errors="replace"):
                yield log
