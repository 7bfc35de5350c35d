"""The folder of a map: its items lie beside the journal, so that results are read without the
function.
"""

from __future__ import annotations

import hashlib
import json
import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, islice
from pathlib import Path

from daskmetrics.core.errors import ConfigError, DataError, room_for
from daskmetrics.core.events import Event, ItemsRetried, MapStarted, RunStarted, latest
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.execution import Journal, Record
from daskmetrics.execution._lock import RunLock
from daskmetrics.execution.journal import mark_of, read
from daskmetrics.execution.map.items import Item, is_json
from daskmetrics.execution.map.source import ItemResult, ItemTracker, MapSpec


def begin(spec: MapSpec, journal: Journal) -> None:
    """Write the items and the header of a map; raises ConfigError if the folder belongs to an
    experiment.
    """
    folder = RunFolder(journal.path.parent)
    if latest(journal.entries, RunStarted):
        raise ConfigError(
            f"'{folder.path}' holds an experiment: choose another folder for the map."
        )
    text = _items_text(spec)
    atomic_write(folder.items, text)
    journal.append(replace(spec.event(), digest=_digest(text)))


def restore(spec: MapSpec, journal: Journal) -> None:
    """Write the items of a map that has nothing to do, if their file is not the one of its last
    start.
    """
    path = RunFolder(journal.path.parent).items
    header = latest(journal.entries, MapStarted)
    text = _items_text(spec)
    if header is None or header.digest != _digest(text):
        return
    if not path.is_file() or path.read_bytes() != text:
        atomic_write(path, text)


def _items_text(spec: MapSpec) -> bytes:
    rows = (
        [item.key, item.name, item.value if is_json(item.value) else None] for item in spec.items
    )
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def retry_failed(spec: MapSpec, journal: Journal) -> int:
    """Reset the items that failed, so that they run again with all their retries; returns how many."""
    tracker = ItemTracker(spec.items, spec.options.retries, journal.entries)
    failed = [result.key for result in tracker.failed()]
    if failed:
        journal.append(ItemsRetried(failed))
    return len(failed)


def earlier_state(spec: MapSpec, entries: Sequence[Event], state: str) -> int:
    """How many entries of a journal make up an older state of a map.

    Parameters
    ----------
    spec : MapSpec
    entries : sequence of Event
    state : str
        The state with at most so many finished items, or the one at a time, such as
        ``2026-05-01T16:30``.

    Raises
    ------
    ConfigError
        If it is neither, or nothing was recorded later.
    """
    if state.isdigit():

        def finished(length: int) -> int:
            return len(ItemTracker(spec.items, spec.options.retries, entries[:length]).results())

        keep = bisect_right(range(len(entries) + 1), int(state), key=finished) - 1
    else:
        try:
            until = datetime.fromisoformat(state).timestamp()
        except ValueError:
            raise ConfigError(
                f"'--resume-from {state}' is neither a number of items (100) nor a time (2026-05-01T16:30)."
            ) from None
        later = (
            i for i, entry in enumerate(entries) if isinstance(entry, Record) and entry.at > until
        )
        keep = next(later, len(entries))
    if not any(isinstance(entry, Record) for entry in entries[keep:]):
        raise ConfigError(
            f"Nothing was recorded after '{state}': leave out --resume-from to continue."
        )
    return keep


def set_aside(path: Path, lock: Path, keep: int) -> Path:
    """Continue from an older state: a journal without what follows its first ``keep`` entries.

    The whole journal stays beside it, under the name that is returned. Raises LockedError if a
    driver has the run.
    """
    with room_for(f"the journal '{path}'"):
        run_lock = RunLock(lock)
        try:
            names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
            aside = next(name for name in names if not name.exists())
            lines = path.read_bytes().splitlines(keepends=True)
            os.link(path, aside)
            if mark_of(path).exists():  # it states the length of the whole journal
                mark_of(path).replace(mark_of(aside))
            atomic_write(path, b"".join(lines[: keep + 1]))  # the first holds the format
        finally:
            run_lock.release()
    return aside


def is_map(folder: str | Path) -> bool:
    """Whether a folder is that of a map, also if the file of its items is gone."""
    run = RunFolder(Path(folder))
    if run.items.is_file():
        return True
    with suppress(OSError), run.journal.open("rb") as file:
        return any(b' {"type":"map",' in line for line in islice(file, 2))
    return False


@dataclass(frozen=True)
class RecordedMap:
    """A map read from its folder: the header of its last start, its items, and the results so far."""

    header: MapStarted
    items: tuple[Item, ...]
    results: tuple[ItemResult, ...]
    altered: bool = False  # whether the file of the items is another one than the map wrote


def read_map(folder: str | Path, strict: bool = True) -> RecordedMap:
    """Read a map from its folder; raises ConfigError if there is none.

    Raises DataError if a line is damaged or the items are missing, and with ``strict`` if they were
    changed.
    """
    run = RunFolder(Path(folder)).must_exist()
    entries = list(read(run.journal))
    header = latest(entries, MapStarted)
    if header is None:
        raise ConfigError(
            f"The run in '{run.path}' is not a map. Start one with: daskmetrics map module.py:function"
        )
    remedy = "Run the same map again to write the file again."
    if not run.items.is_file():
        raise DataError(f"'{run.items}' is missing. {remedy}")
    items = []
    text = run.items.read_bytes()
    for index, line in enumerate(text.splitlines()):
        try:
            key, name, value = json.loads(line)
        except ValueError:
            raise DataError(f"Line {index + 1} of '{run.items}' is damaged. {remedy}") from None
        items.append(Item(key, index, value, name, seed=0))
    altered = bool(header.digest) and header.digest != _digest(text)
    if altered and strict:
        raise DataError(f"'{run.items}' was changed. {remedy}")
    tracker = ItemTracker(items, header.retries, entries)
    return RecordedMap(header, tuple(items), tuple(tracker.results()), altered)


def results(folder: str | Path) -> list[ItemResult]:
    """The results of a map so far, read from its folder, in the order of its items.

    Raises
    ------
    ConfigError
        If there is no map in the folder.
    DataError
        If a line is damaged.
    """
    return list(read_map(folder).results)
