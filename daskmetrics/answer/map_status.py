"""How far a map is, computed again only from what was added to its journal."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daskmetrics.core.errors import DataError
from daskmetrics.core.events import Event, ItemsRetried, MapStarted, UnitsRetried
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.machine import environment
from daskmetrics.core.names import Key
from daskmetrics.core.serialization import build, parse
from daskmetrics.execution.journal import Contents, scan
from daskmetrics.execution.map.folder import read_map
from daskmetrics.execution.map.function import Item
from daskmetrics.execution.map.result_table import flatten, frame, text_of
from daskmetrics.execution.map.source import ItemResult, ItemTracker

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MapStatus:
    """How far a map is: all its items, its results by status, and a text of aggregates and
    failures.
    """

    items: int
    finished: bool
    counts: Mapping[str, int]
    text: str

    @classmethod
    def of(cls, folder: RunFolder) -> MapStatus:
        """How far a map is, as its files are now; errors as for `read_map`.

        It is kept in the folder of the map with what it was computed from, and a digest of every
        byte of that. While these bytes are the same, only the entries after them are read.
        """
        return _status(folder.must_exist())


@dataclass(frozen=True)
class _Summary:
    """The status of a map whose journal has so many bytes; the first line of the file."""

    digest: str  # of these bytes, the items, and the version of this package
    length: int
    checksum: int
    status: MapStatus


@dataclass(frozen=True)
class _Progress:
    """What the status of a longer journal is computed from; the second line of the file."""

    retries: int
    asked: Mapping[Key, Sequence[Key]] = field(default_factory=dict)  # batches without a record
    # index, key, name and failures of each item without a result
    unfinished: Sequence[tuple[int, Key, str, Mapping[str, int]]] = ()
    # index, name, status and reason of each item that failed
    failed: Sequence[tuple[int, str, str, str | None]] = ()
    numbers: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # `frame` of the others
    texts: Sequence[str] = ()  # its columns that are not numbers


def _status(folder: RunFolder) -> MapStatus:
    with suppress(OSError, ValueError, TypeError, LookupError), folder.summary.open("rb") as file:
        kept = build(_Summary, parse(file.readline()))
        digest = _digest(folder, kept.length)
        if digest.hexdigest() == kept.digest:
            # after damage a whole reading names the line
            with suppress(DataError):
                before = Contents([], kept.length, kept.checksum)
                contents = scan(folder.journal, before, digest)
                if not contents.entries:
                    return kept.status
                progress = build(_Progress, parse(file.readline()))
                if tracker := _continued(progress, contents.entries):
                    items = kept.status.items
                    return _keep(folder, items, progress, tracker, contents, digest)
    digest = _digest(folder, 0)
    contents = scan(folder.journal, digest=digest)
    header, _, tracker = read_map(folder.path, contents.entries)
    return _keep(folder, len(tracker.states), _Progress(header.retries), tracker, contents, digest)


def _digest(folder: RunFolder, length: int) -> hashlib._Hash:
    """A digest of this version, the items, and the first bytes of the journal."""
    digest = hashlib.sha256(str(environment("daskmetrics")).encode())
    with suppress(OSError), folder.items.open("rb") as items:
        digest.update(hashlib.file_digest(items, "sha256").digest())
    with suppress(OSError), folder.journal.open("rb") as journal:
        digest.update(journal.read(length))
    return digest


def _continued(progress: _Progress, entries: Sequence[Event]) -> ItemTracker | None:
    """The unfinished items with what the entries add; None if they change others, too."""
    items = [Item(key, index, None, name) for index, key, name, *_ in progress.unfinished]
    tracker = ItemTracker(items, progress.retries)
    tracker.asked.update(progress.asked)
    for _, key, _, failures in progress.unfinished:
        tracker.states[key].failures.update(failures)
    tracker.replay(entries)
    starts_again = any(
        isinstance(entry, MapStarted | ItemsRetried | UnitsRetried) for entry in entries
    )
    if starts_again or not tracker.seen <= tracker.asked.keys():
        return None
    if _has_large(tracker):
        return None
    return tracker


def _has_large(tracker: ItemTracker) -> bool:
    """Whether there are integers of more than 64 bits, whose column depends on what else it holds."""
    values = (value for result in tracker.results() for _, value in flatten(result.value))
    return any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values)


def _frame(tracker: ItemTracker) -> pd.DataFrame:
    return frame([result for result in tracker.results() if result.ok])


def _keep(
    folder: RunFolder,
    items: int,
    before: _Progress,
    tracker: ItemTracker,
    contents: Contents,
    digest: hashlib._Hash,
) -> MapStatus:
    """The status with the tracker's results added to those before; both are kept."""
    import pandas as pd

    kept, added = pd.DataFrame(dict(before.numbers)), _frame(tracker)
    # as objects, so that columns get the types of a whole reading
    table = pd.concat([kept.astype(object), added.astype(object)]).drop(
        columns=[*before.texts, "item", "attempts"], errors="ignore"
    )
    failed = [
        ItemResult("", index, name, None, status, reason=reason)
        for index, name, status, reason in before.failed
    ]
    failed += tracker.failed()
    failed.sort(key=lambda result: result.index)
    counts = Counter(result.status for result in failed)
    if len(table):
        table = table.sort_values("index", ignore_index=True).infer_objects()
        new = set(added.get("index", ()))

        def first(name: object) -> tuple[int, int]:
            """The first item with a field, and its place there."""
            index = int(table["index"][table[name].notna().to_numpy().argmax()])
            columns = (added if index in new else kept).columns
            return index, list(map(str, columns)).index(str(name))

        table = table[sorted(table, key=first)]
        counts["ok"] = len(table)
    text = text_of(table, failed, items)
    status = MapStatus(items, counts.total() == items, dict(counts), text)
    numbers = table.convert_dtypes().select_dtypes(["number", "boolean"]).columns
    texts = table.columns.difference([*numbers, "seconds"])
    progress = _Progress(
        before.retries,
        {key: asked for key, asked in tracker.asked.items() if key not in tracker.seen},
        [
            (item.index, item.key, item.name, state.failures)
            for state in tracker.states.values()
            if state.result is None and (item := state.item)
        ],
        [(result.index, result.name, result.status, result.reason) for result in failed],
        {str(name): column.tolist() for name, column in table.drop(columns=texts).items()},
        [*before.texts, *texts],
    )
    if _has_large(tracker):
        return status
    summary = _Summary(digest.hexdigest(), contents.length, contents.checksum, status)
    lines = [json.dumps(vars(summary) | {"status": vars(status)}), json.dumps(vars(progress))]
    # it is of another user, or the disk is full
    with suppress(OSError):
        atomic_write(folder.summary, "\n".join(lines))
    return status
