"""The folder of a map: its items lie beside the journal, so that results are read without the function."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from daskmetrics.core._events import Event, ItemsRetried, MapStarted, RunStarted
from daskmetrics.core._files import RunFolder, atomic_write
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution import Journal, Record
from daskmetrics.execution._journal import latest, read
from daskmetrics.execution.map._items import Item, is_json
from daskmetrics.execution.map._source import MapSpec
from daskmetrics.execution.map._tracker import ItemResult, ItemTracker


def begin(spec: MapSpec, journal: Journal) -> None:
    """Write the items and the header of a map; raises ConfigError if the folder belongs to an experiment."""
    folder = RunFolder(journal.path.parent)
    if latest(journal.entries, RunStarted):
        raise ConfigError(f"'{folder.path}' holds an experiment: choose another folder for the map.")
    rows = ([item.key, item.name, item.value if is_json(item.value) else None] for item in spec.items)
    atomic_write(folder.items, "".join(json.dumps(row) + "\n" for row in rows))
    journal.append(spec.event())


def retry_failed(spec: MapSpec, journal: Journal) -> int:
    """Reset the items that failed, so that they run again with all their retries; returns how many."""
    failed = [result.key for result in ItemTracker(spec.items, spec.options.retries, journal.entries).failed()]
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
        The state with at most so many finished items, or the one at a time, such as ``2026-05-01T16:30``.

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
        later = (i for i, entry in enumerate(entries) if isinstance(entry, Record) and entry.at > until)
        keep = next(later, len(entries))
    if not any(isinstance(entry, Record) for entry in entries[keep:]):
        raise ConfigError(f"Nothing was recorded after '{state}': leave out --resume-from to continue.")
    return keep


def is_map(folder: str | Path) -> bool:
    """Whether a folder is that of a map."""
    return RunFolder(Path(folder)).items.is_file()


@dataclass(frozen=True)
class RecordedMap:
    """A map read from its folder: the header of its last start, its items, and the results so far."""

    header: MapStarted
    items: tuple[Item, ...]
    results: tuple[ItemResult, ...]


def read_map(folder: str | Path) -> RecordedMap:
    """Read a map from its folder; raises ConfigError if there is none, DataError if a line is damaged."""
    place = RunFolder(Path(folder)).must_exist()
    entries = list(read(place.journal))
    header = latest(entries, MapStarted)
    if header is None or not place.items.is_file():
        raise ConfigError(f"The run in '{place.path}' is not a map. Start one with: daskmetrics map module.py:function")
    items = []
    for index, line in enumerate(place.items.read_text(encoding="utf-8").splitlines()):
        try:
            key, name, value = json.loads(line)
        except ValueError:
            raise DataError(
                f"Line {index + 1} of '{place.items}' is damaged. Run the same map again to rewrite the file."
            ) from None
        items.append(Item(key, index, value, name, seed=0))
    return RecordedMap(header, tuple(items), tuple(ItemTracker(items, header.retries, entries).results()))


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
