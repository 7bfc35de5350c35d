"""How far a map is, from its folder, with a summary of what earlier calls have read."""

from __future__ import annotations

import hashlib
import json
from array import array
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain, takewhile
from typing import Any, Literal, TypeAlias

from daskmetrics.core.errors import DataError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.machine import environment
from daskmetrics.core.serialization import build
from daskmetrics.domain.events import Event, ItemsRetried, MapStarted, UnitAsked, UnitsRetried
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import JournalReading, entry_at
from daskmetrics.execution.map.folder import RecordedResults, placed, started
from daskmetrics.execution.map.result_table import Numbers, Successes, Summary, deaths
from daskmetrics.execution.map.source import RESULTS, ItemTracker

WORTH_KEEPING = 1.05  # growth of a journal since the summary of a map, before there is a new one
STARTS_AGAIN = (MapStarted, ItemsRetried, UnitsRetried)
Placed: TypeAlias = tuple[int, Event]  #: an entry, behind the place of its line


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
    def of(cls, folder: RunFolder) -> MapStatus:
        """How far a map is, as its files are now; errors as for `read_map`."""
        history = _History.of(folder.must_exist())
        total, summary, kept = history.summary()
        if kept is not history.kept:
            # it is of another user, or the disk is full
            with suppress(OSError):
                atomic_write(folder.summary, json.dumps(asdict(kept)))
        died = deaths(entry for _, entry in history.others)
        counts = Counter(ok=summary.successes.count)
        counts.update(result.status for result in summary.failed)
        text = summary.text(total, died)
        return cls(total, counts.total() == total, dict(counts), summary.repeated, died, text)


@dataclass(frozen=True)
class _Packed:
    """`Numbers` as JSON."""

    values: str
    is_numeric: bool
    is_too_large: bool

    @classmethod
    def of(cls, numbers: Numbers) -> _Packed:
        return cls(_packed(numbers.values), numbers.is_numeric, numbers.is_too_large)

    def unpacked(self) -> Numbers:
        return Numbers(_numbers("d", self.values), self.is_numeric, self.is_too_large)


def _packed(numbers: array[Any]) -> str:
    return b64encode(numbers).decode()


def _numbers(kind: Literal["q", "d"], packed: str) -> array[Any]:
    numbers: array[Any] = array(kind)
    numbers.frombytes(b64decode(packed))
    return numbers


@dataclass(frozen=True)
class _Kept:
    """What the first bytes of a map's journal come to.

    Kept in its folder: while these bytes are the same, only the entries after them are read.
    """

    digest: str = ""  # of these bytes, the items, and the version of this package
    length: int = 0
    checksum: int = 0
    succeeded: str = ""  # the indices of the items that are ok, packed
    fields: Mapping[str, _Packed] = field(default_factory=dict)  # theirs
    repeated: int = 0  # attempts at these items
    # of the lines of all entries that say more: the start, the batches with another item, and the
    # failures of whole batches
    places: Sequence[int] = ()


@dataclass(frozen=True)
class _History:
    """A journal up to a length: what is kept of it, and the lines after that."""

    folder: RunFolder
    kept: _Kept
    others: Sequence[Placed]  # entries that are not of batches
    digest: str
    length: int
    checksum: int

    @classmethod
    def of(cls, folder: RunFolder) -> _History:
        """The journal as it is now; what is kept does not count if it does not hold any longer."""
        from pydantic_core import from_json as parse  # three times as fast as json

        with suppress(OSError, ValueError, TypeError, DataError):
            kept = build(_Kept, parse(folder.summary.read_bytes()))
            digest = _digest(folder, kept.length)
            if digest.hexdigest() == kept.digest:
                history = cls._after(folder, kept, digest)
                new = [entry for place, entry in history.others if place >= kept.length]
                # a new start or a retry can change what is summarised
                if not any(isinstance(entry, STARTS_AGAIN) for entry in new):
                    return history
        return cls._after(folder, _Kept(), _digest(folder, 0))

    @classmethod
    def _after(cls, folder: RunFolder, kept: _Kept, digest: hashlib._Hash) -> _History:
        reading = JournalReading(folder.journal, kept.length, kept.checksum, digest, RESULTS)
        earlier = _entries_at(folder, kept.places)
        others = [pair for pair in earlier if not isinstance(pair[1], RESULTS)]
        others += placed(reading)
        return cls(folder, kept, others, digest.hexdigest(), reading.length, reading.checksum)

    def summary(self) -> tuple[int, Summary, _Kept]:
        """How many items there are, what is said of them, and what to keep of the journal."""
        kept = self.kept
        folder = self.folder
        succeeded = _numbers("q", kept.succeeded)
        others = (entry for _, entry in self.others)
        header, items = started(folder.path, others, {*succeeded})
        results = RecordedResults(folder.journal, items, header.retries, self._entries())
        fields = {name: packed.unpacked() for name, packed in kept.fields.items()}
        summary = Summary(Successes(len(succeeded), fields), repeated=kept.repeated)
        for result in results:
            summary.add(result)
            if result.ok:
                succeeded.append(result.index)
        if self.length > kept.length * WORTH_KEEPING:
            kept = _Kept(
                self.digest,
                self.length,
                self.checksum,
                _packed(succeeded),
                {name: _Packed.of(column) for name, column in fields.items()},
                summary.repeated - Summary.of(summary.failed).repeated,
                [*self._unsuccessful(results.tracker)],
            )
        return header.items, summary, kept

    def _entries(self) -> Iterator[Placed]:
        """What is kept of the journal, and all that follows."""
        later = placed(JournalReading(self.folder.journal, self.kept.length, self.kept.checksum))
        return chain(
            _entries_at(self.folder, self.kept.places),
            takewhile(lambda pair: pair[0] < self.length, later),
        )

    def _unsuccessful(self, tracker: ItemTracker) -> Iterator[int]:
        """Where the entries are that the state of another item than the successful ones follows
        from.
        """
        if tracker.counts["ok"] == len(tracker.items):
            yield from (place for place, _ in self.others)
            return
        batches = set()
        for place, entry in self._entries():
            match entry:
                case UnitAsked(key=key, note=note):
                    if tracker.has_unsuccessful(note.get("items", ())):
                        batches.add(key)
                        yield place
                case Record(key=key):
                    if key in batches:
                        yield place
                case _:
                    yield place


def _entries_at(folder: RunFolder, places: Sequence[int]) -> Iterator[Placed]:
    if places:
        with folder.journal.open("rb") as file:
            for place in places:
                yield place, entry_at(file, place)


def _digest(folder: RunFolder, length: int) -> hashlib._Hash:
    """Of this version, the items, and the first bytes of the journal."""
    digest = hashlib.sha256(str(environment("daskmetrics")).encode())
    with suppress(OSError):
        digest.update(hashlib.sha256(folder.items.read_bytes()).digest())
    # `JournalReading` says that it is missing
    with suppress(FileNotFoundError), folder.journal.open("rb") as journal:
        while part := journal.read(min(length, 2**20)):
            digest.update(part)
            length -= len(part)
    return digest
