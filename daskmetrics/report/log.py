"""The journal as text, line by line, and the history of one work unit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from textwrap import shorten

from daskmetrics.core.errors import ConfigError, did_you_mean, unknown
from daskmetrics.core.files import RunFolder
from daskmetrics.core.keys import Key
from daskmetrics.core.table import printable
from daskmetrics.core.text import plural, shortened
from daskmetrics.domain import events
from daskmetrics.domain.events import JOURNAL, KINDS, to_json
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured
from daskmetrics.execution.journal import read

INDENT = " " * 8
LAST_LINES = 40  #: shown of a worker's log
LONGEST = 300  #: characters shown of an entry
HIDDEN = ("key", "type", "value", "trace")  #: fields of an entry that are long
FIRST_LINE = 2  #: of the journal that holds an entry; the first holds its format

Numbered = tuple[int, events.Event]
NAMED = events.UnitAsked | Record | events.AttemptFailed | events.InputRecovered


def journal_lines(
    folder: RunFolder, types: Sequence[str] = (), tail: int | None = None
) -> list[Numbered]:
    """Entries of a journal with their line numbers.

    Only those of the given types, and only the last ones if asked.
    """
    for name in types:
        if name not in JOURNAL:
            raise unknown("type of entry", name, JOURNAL)
    entries = list(enumerate(read(folder.must_exist().journal), FIRST_LINE))
    if types:
        entries = [(number, entry) for number, entry in entries if KINDS[type(entry)] in types]
    if tail:
        entries = entries[-tail:]
    return entries


def journal_text(lines: Sequence[Numbered]) -> str:
    """One line per entry, the reason of a failure last."""
    rows = []
    for number, entry in lines:
        if isinstance(entry, Plan):
            asked = f"{plural(len(entry.arms), 'candidate')}, {plural(len(entry.tasks), 'task')}"
            rows.append(f"{number:>6}  {'plan':<8}  {printable(entry.name)} {asked}")
            continue
        plain = {
            name: value for name, value in to_json(entry).items() if value and name not in HIDDEN
        }
        texts = [str(plain.pop(name)) for name in ("kind", "name", "status") if name in plain]
        reason = plain.pop("reason", "")
        fields = json.dumps(plain, ensure_ascii=False)
        texts += [shorten(fields, LONGEST, placeholder=" ..."), reason]
        text = printable(" ".join(texts))
        rows.append(f"{number:>6}  {KINDS[type(entry)]:<8}  {text}")
    return "\n".join(rows)


def log_text(folder: RunFolder, query: str) -> str:
    """The history of a unit: attempts, result, logs of workers.

    ``query`` is the key or name of a unit, or the beginning of one, such as ``tiny@step8``.
    """
    entries = journal_lines(folder)
    named = [entry for _, entry in entries if isinstance(entry, NAMED)]
    log_folders = [folder.path / "logs"]
    plan = events.latest([entry for _, entry in entries], Plan)
    if plan and plan.config["cluster"]["kind"] == "slurm":
        log_folders.append(Path(plan.config["cluster"]["logs"]))
    paths = chain.from_iterable(sorted(path.glob("*")) for path in log_folders)
    logs = [path for path in paths if path.is_file()]
    lines = []
    units = find(query, {entry.key: entry.name for entry in named})
    for key, name in units.items():
        lines.append(f"{printable(name)}  (key {key})")
        workers: dict[str, None] = {}
        for number, entry in entries:
            keys = [getattr(entry, "key", None), *getattr(entry, "keys", ())]
            if key not in keys:
                continue
            lines.append(journal_text([(number, entry)]))
            match entry:
                case events.AttemptFailed(trace=trace):
                    lines += _indented(trace.splitlines())
                case Record(value=Measured(reasons=reasons)):
                    whys = (f"{name} of layer {layer}: {why}" for layer, name, why in reasons)
                    lines += _indented(whys)
            if worker := getattr(entry, "worker", None):
                workers[worker] = None
        for worker, log in product(workers, logs):
            text = log.read_text(errors="replace")
            if worker in text:
                lines.append(f"\nlog of {printable(worker)}, {log}, last lines:")
                lines += _indented(text.splitlines()[-LAST_LINES:])
        lines.append("")
    return "\n".join(lines).rstrip()


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"{INDENT}{printable(line)}" for line in lines]


def find(query: str, units: Mapping[Key, str]) -> dict[Key, str]:
    """The units with this key or name.

    The beginning of a name is enough if it is the only one. `ConfigError` without a match.
    """
    exact = {key: name for key, name in units.items() if query in (key, name)}
    if exact:
        return exact
    matches = {
        key: name for key, name in units.items() if key.startswith(query) or name.startswith(query)
    }
    names = sorted(set(matches.values()))
    if len(names) == 1:
        return matches
    if names:
        raise ConfigError(
            f"'{query}' matches {len(names)} units: {shortened(names, 8)}. Give more of the name."
        )
    raise ConfigError(
        f"Unknown unit '{query}'.{did_you_mean(query, units.values())} 'daskmetrics runs journal RUN' lists all units."
    )
