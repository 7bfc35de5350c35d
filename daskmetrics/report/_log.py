"""The journal as text: what happened in a run, line by line, and everything that is known of one unit."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from daskmetrics.core._events import (
    AttemptFailed,
    Event,
    InputRecovered,
    Record,
    RunFinished,
    RunStarted,
    SearchEnded,
    StorePlanned,
    StoreRepaired,
    UnitAsked,
    UnitsRetried,
    WorkerJoined,
    kind_of,
    to_json,
)
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import printable
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Arm, Key
from daskmetrics.execution._journal import numbered

LAST_LINES = 40  #: of a worker's log
LONGEST = 300  #: characters of a line of the journal that has no words of its own

NO_REASON = "no reason was recorded"

Numbered = tuple[int, Event]


def journal_lines(folder: RunFolder, types: Sequence[str] = (), tail: int | None = None) -> list[Numbered]:
    """Lines of a run's journal with their numbers, of these types only, and the last ones only.

    Raises
    ------
    ConfigError
        If there is no run, or it has no entry of a type.
    """
    entries = numbered(folder.must_exist().journal)
    there = {kind_of(entry) for _, entry in entries}
    for name in types:
        if name not in there:
            raise unknown("type of entry", name, there)
    kept = [(number, entry) for number, entry in entries if not types or kind_of(entry) in types]
    return kept if tail is None else kept[max(0, len(kept) - tail) :]


def journal_text(lines: Sequence[Numbered]) -> str:
    """One readable line per entry."""
    return "\n".join(f"{number:>6}  {kind_of(entry):<8}  {printable(_said(entry))}" for number, entry in lines)


def journal_json(lines: Sequence[Numbered]) -> str:
    """One JSON object per entry, with its line number."""
    return "\n".join(json.dumps({"line": number, **to_json(entry)}) for number, entry in lines)


def _said(entry: Event) -> str:
    """An entry in words; one that has none as JSON."""
    match entry:
        case Record():
            return _say_record(entry)
        case AttemptFailed(name=name, fault=fault, reason=reason):
            where = f" on {entry.worker}" if entry.worker else ""
            blame = "" if entry.blamed else " (not its fault)"
            return f"{name}  {fault}{where}{blame}: {reason or NO_REASON}"
        case UnitAsked(name=name, note=note, pick=pick):
            return f"{name}  decision {pick['index']} ({pick['stage']}), seed {note.get('seed')}" if pick else name
        case RunStarted():
            machine = ", ".join(f"{name} {value}" for name, value in entry.environment.items())
            return f"{entry.name}: {entry.checkpoints:,} checkpoints, {len(entry.tasks)} tasks; {machine}"
        case SearchEnded(best=best):
            return f"best arm {Arm(**best['arm'])}, probability {entry.probability_best:.2f}"
        case StorePlanned(measure=measure, files=files):
            return f"store of {len(measure):,} checkpoints, {len(files):,} files beside the values"
        case WorkerJoined():
            return "  ".join(f"{name} {value}" for name, value in vars(entry).items())
        case RunFinished():
            return "nothing is left to do"
        case UnitsRetried(keys=keys):
            return f"{len(keys)} failed units get another chance"
        case StoreRepaired(parts=parts):
            return f"rewritten: {', '.join(parts)}"
    text = json.dumps(vars(entry))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def _say_record(record: Record) -> str:
    attempts = f", attempt {record.attempts}" if record.attempts > 1 else ""
    where = f" on {record.worker}" if record.worker else ""
    end = f"ok after {record.seconds:.1f} s{where}" if record.ok else f"{record.status}: {record.reason or NO_REASON}"
    return f"{record.kind} {record.name}  {end}{attempts}"


@dataclass(frozen=True)
class Unit:
    """A work unit as the journal knows it."""

    key: Key
    name: str


def log_text(folder: RunFolder, wanted: str) -> str:
    """Everything that is known of a unit: its attempts with their tracebacks, its end, its workers' logs.

    Parameters
    ----------
    folder : RunFolder
    wanted : str
        A unit's key or name, or the beginning of one, such as ``tiny@step8``.

    Raises
    ------
    ConfigError
        If there is no such unit, naming the nearest, or if the beginning fits several.
    """
    entries = numbered(folder.must_exist().journal)
    units = {
        Unit(entry.key, entry.name): None
        for _, entry in entries
        if isinstance(entry, UnitAsked | Record | AttemptFailed | InputRecovered)
    }
    return "\n\n".join("\n".join(_story(folder, unit, entries)) for unit in find(wanted, units))


def find(wanted: str, units: Mapping[Unit, Any]) -> list[Unit]:
    """The units of this key or name, or of the only name that begins so.

    Raises
    ------
    ConfigError
        If there is none, or several names begin so.
    """
    exact = [unit for unit in units if wanted in (unit.key, unit.name)]
    if exact:
        return exact
    begun = [unit for unit in units if unit.key.startswith(wanted) or unit.name.startswith(wanted)]
    names = sorted({unit.name for unit in begun})
    if len(names) == 1:
        return begun
    if names:
        raise ConfigError(f"'{wanted}' may be any of {len(names)} units: {_some(names)}. Say more of the name.")
    near = difflib.get_close_matches(wanted, [unit.name for unit in units], n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(repr(name) for name in dict.fromkeys(near))}?" if near else ""
    raise ConfigError(f"Unknown unit '{wanted}'.{hint} 'daskmetrics journal RUN' names them all.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _story(folder: RunFolder, unit: Unit, entries: Sequence[Numbered]) -> Iterator[str]:
    yield f"{printable(unit.name)}  (key {unit.key})"
    workers: dict[str | None, None] = {}
    for number, entry in entries:
        if unit.key == getattr(entry, "key", None) or (isinstance(entry, UnitsRetried) and unit.key in entry.keys):
            yield f"{number:>6}  {kind_of(entry):<8}  {printable(_said(entry))}"
            if isinstance(entry, AttemptFailed):
                yield from _indented(entry.trace)
            if isinstance(entry, Record):
                yield from _undefined(entry)
            workers[getattr(entry, "worker", None)] = None
    for worker in filter(None, workers):
        for log in _logs(folder, worker):
            yield f"\nlog of {printable(worker)}, {log}, last lines:"
            yield from _indented("\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:]))


def _indented(text: str) -> Iterator[str]:
    return (f"        {printable(line)}" for line in text.splitlines())


def _undefined(record: Record) -> Iterator[str]:
    """Metrics of a measured checkpoint that have no value."""
    value = record.value
    for layer, name, reason in value.get("reasons", ()) if isinstance(value, Mapping) else ():
        yield f"        {name} of layer {layer}: {printable(reason)}"


def _logs(folder: RunFolder, worker: str) -> Iterator[Path]:
    """Logs that speak of a worker: of Slurm jobs, or what lies in the run's own folder of logs."""
    places = [folder.path / "logs"]
    if folder.config.is_file():
        cluster = yaml.safe_load(folder.config.read_text(encoding="utf-8"))["cluster"]
        places += [Path(cluster["logs"])] if cluster["kind"] == "slurm" else []
    for place in places:
        for log in sorted(place.glob("*")) if place.is_dir() else ():
            if log.is_file() and worker in log.read_text(errors="replace"):
                yield log
