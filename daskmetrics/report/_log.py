"""The journal as text: what happened in a run, line by line, and everything that is known of one unit."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import printable
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Arm, Key
from daskmetrics.execution._journal import read

LAST_LINES = 40  #: of a worker's log
LONGEST = 300  #: characters of a line of the journal that has no words of its own

Numbered = tuple[int, Mapping[str, Any]]


def journal_lines(folder: RunFolder, types: Sequence[str] = (), tail: int | None = None) -> list[Numbered]:
    """Lines of a run's journal with their numbers, of these types only, and the last ones only.

    Raises
    ------
    ConfigError
        If there is no run, or it has no entry of a type.
    """
    entries: list[Numbered] = list(enumerate(read(folder.must_exist().journal), start=1))
    there = {entry["type"] for _, entry in entries}
    for name in types:
        if name not in there:
            raise unknown("type of entry", name, there)
    kept = [(number, entry) for number, entry in entries if not types or entry["type"] in types]
    return kept if tail is None else kept[max(0, len(kept) - tail) :]


def journal_text(lines: Sequence[Numbered]) -> str:
    """One readable line per entry."""
    return "\n".join(f"{number:>6}  {entry['type']:<8}  {printable(_said(entry))}" for number, entry in lines)


def journal_json(lines: Sequence[Numbered]) -> str:
    """One JSON object per entry, with its line number."""
    return "\n".join(json.dumps({"line": number, **entry}) for number, entry in lines)


def _said(entry: Mapping[str, Any]) -> str:
    say = _SAY.get(entry["type"])
    if say is not None:
        return say(entry)
    text = json.dumps({name: value for name, value in entry.items() if name != "type"})
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def _say_record(entry: Mapping[str, Any]) -> str:
    attempts = f", attempt {entry['attempts']}" if entry["attempts"] > 1 else ""
    where = f" on {entry['worker']}" if entry["worker"] else ""
    end = (
        f"ok after {entry['seconds']:.1f} s{where}"
        if entry["status"] == "ok"
        else f"{entry['status']}: {_reason(entry)}"
    )
    return f"{entry['kind']} {entry['name']}  {end}{attempts}"


def _say_attempt(entry: Mapping[str, Any]) -> str:
    where = f" on {entry['worker']}" if entry.get("worker") else ""
    blame = "" if entry.get("blamed", True) else " (not its fault)"
    return f"{entry['name']}  {entry['fault']}{where}{blame}: {_reason(entry)}"


def _say_ask(entry: Mapping[str, Any]) -> str:
    pick = entry["note"].get("pick")
    why = f"  decision {pick['index']} ({pick['stage']}), seed {entry['note'].get('seed')}" if pick else ""
    return f"{entry['name']}{why}"


def _say_start(entry: Mapping[str, Any]) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in entry["environment"].items())
    return f"{entry['name']}: {entry['checkpoints']:,} checkpoints, {len(entry['tasks'])} tasks; {machine}"


def _say_result(entry: Mapping[str, Any]) -> str:
    return f"best arm {Arm(**entry['best']['arm'])}, probability {entry['probability_best']:.2f}"


def _say_plan(entry: Mapping[str, Any]) -> str:
    return f"store of {len(entry['measure']):,} checkpoints, {len(entry['files']):,} files beside the values"


def _say_worker(entry: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in entry.items() if name != "type")


_SAY: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "record": _say_record,
    "attempt": _say_attempt,
    "ask": _say_ask,
    "start": _say_start,
    "result": _say_result,
    "plan": _say_plan,
    "worker": _say_worker,
    "finished": lambda entry: "nothing is left to do",
    "retry": lambda entry: f"{len(entry['keys'])} failed units get another chance",
    "repair": lambda entry: f"rewritten: {', '.join(entry['parts'])}",
}


def _reason(entry: Mapping[str, Any]) -> str:
    return entry["reason"] or "no reason was recorded"


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
    entries: list[Numbered] = list(enumerate(read(folder.must_exist().journal), start=1))
    own = [entry for _, entry in entries if "key" in entry and "name" in entry and entry["type"] != "start"]
    units = find(wanted, {Unit(entry["key"], entry["name"]): None for entry in own})
    return "\n\n".join("\n".join(_story(folder, unit, entries)) for unit in units)


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
        if unit.key in (entry.get("key"), *entry.get("keys", ())):
            yield f"{number:>6}  {entry['type']:<8}  {printable(_said(entry))}"
            yield from _indented(entry.get("trace") or "")
            yield from _undefined(entry)
            workers[entry.get("worker")] = None
    for worker in filter(None, workers):
        for log in _logs(folder, worker):
            yield f"\nlog of {printable(worker)}, {log}, last lines:"
            yield from _indented("\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:]))


def _indented(text: str) -> Iterator[str]:
    return (f"        {printable(line)}" for line in text.splitlines())


def _undefined(entry: Mapping[str, Any]) -> Iterator[str]:
    """Metrics of a measured checkpoint that have no value."""
    value = entry.get("value")
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
