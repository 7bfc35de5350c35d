"""How far a map is, from its folder, with a summary of what earlier calls have read."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.machine import environment
from daskmetrics.core.serialization import build
from daskmetrics.domain.events import (
    AttemptFailed,
    Event,
    ItemsRetried,
    MapStarted,
    UnitAsked,
    UnitsRetried,
    from_json,
    to_json,
)
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import Contents, no_collection, scan
from daskmetrics.execution.map.folder import started
from daskmetrics.execution.map.result_table import add_rows, deaths, repeats, text_of
from daskmetrics.execution.map.source import ItemTracker

WORTH_KEEPING = 1.05  # growth of a journal since the summary of a map, before there is a new one
STARTS_AGAIN = (MapStarted, ItemsRetried, UnitsRetried)


@dataclass(frozen=True)
class MapStatus:
    """How far a map is: its results by status, aggregates and failures."""

    items: int
    finished: bool
    counts: Mapping[str, int]
    repeated: int  # attempts at items that failed and were repeated
    died: int  # workers
    text: str

    @classmethod
    @no_collection()
    def of(cls, folder: RunFolder) -> MapStatus:
        """How far a map is, as its files are now; errors as for `read_map`."""
        summary, contents, digest = _read_on(folder.must_exist())
        entries = [*map(from_json, summary.entries), *contents.entries]
        columns = {name: list(column) for name, column in summary.succeeded.items()}
        header, items = started(folder.path, entries, set(columns.get("index", ())))
        tracker = ItemTracker(items, header.retries, entries)
        results = tracker.results()
        add_rows(columns, (result for result in results if result.ok))
        failed = tracker.failed()
        repeated = summary.repeated + repeats(results)
        died = deaths(entries)
        if contents.length > summary.length * WORTH_KEEPING:
            others = _without_successes(entries, tracker)
            summary = _Summary(
                digest,
                contents.length,
                contents.checksum,
                columns,
                repeated - repeats(failed),
                others,
            )
            # it is of another user, or the disk is full
            with suppress(OSError):
                atomic_write(folder.summary, json.dumps(vars(summary)))
        counts = Counter(ok=len(columns.get("index", ())))
        counts.update(result.status for result in failed)
        text = text_of(columns, failed, header.items, repeated, died)
        finished = counts.total() == header.items
        return cls(header.items, finished, dict(counts), repeated, died, text)


@dataclass(frozen=True)
class _Summary:
    """What the first bytes of a map's journal come to.

    Kept in its folder: while these bytes are the same, only the entries after them are read.
    """

    digest: str = ""  # of these bytes, the items, and the version of this package
    length: int = 0
    checksum: int = 0
    succeeded: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # its columns
    repeated: int = 0  # attempts at these items
    # those of all entries that say more: the start, the batches with another item, and the failures
    # of whole batches
    entries: Sequence[Mapping[str, Any]] = ()


def _read_on(folder: RunFolder) -> tuple[_Summary, Contents, str]:
    """The summary, the entries after it, and the digest of all that was read.

    Without a summary that still holds, an empty one and all entries.
    """
    from pydantic_core import from_json as parse  # three times as fast as json

    with suppress(OSError, ValueError, TypeError, DataError):
        summary = build(_Summary, parse(folder.summary.read_bytes()))
        digest = _digest(folder, summary.length)
        if digest.hexdigest() == summary.digest:
            contents = scan(folder.journal, summary.length, summary.checksum, digest)
            # a new start or a retry can change what is summarised
            if not any(isinstance(entry, STARTS_AGAIN) for entry in contents.entries):
                return summary, contents, digest.hexdigest()
    digest = _digest(folder, 0)
    contents = scan(folder.journal, digest=digest)
    return _Summary(), contents, digest.hexdigest()


def _digest(folder: RunFolder, length: int) -> hashlib._Hash:
    """Of this version, the items, and the first bytes of the journal."""
    digest = hashlib.sha256(str(environment("daskmetrics")).encode())
    with suppress(OSError):
        digest.update(hashlib.sha256(folder.items.read_bytes()).digest())
    # `scan` says that it is missing
    with suppress(FileNotFoundError), folder.journal.open("rb") as journal:
        digest.update(journal.read(length))
    return digest


def _without_successes(entries: Sequence[Event], tracker: ItemTracker) -> list[dict[str, Any]]:
    """The JSON of the entries that the state of another item than the successful ones follows
    from.
    """
    unsuccessful = {
        key for key, state in tracker.states.items() if not (state.result and state.result.ok)
    }
    batches = {
        entry.key
        for entry in entries
        if isinstance(entry, UnitAsked) and not unsuccessful.isdisjoint(entry.note.get("items", ()))
    }
    return [
        to_json(entry)
        for entry in entries
        if isinstance(entry, (*STARTS_AGAIN, AttemptFailed))
        or (isinstance(entry, UnitAsked | Record) and entry.key in batches)
    ]
