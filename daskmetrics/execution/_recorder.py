"""Group commit: one append writes the entries of a step; only then does the source receive its records."""

from __future__ import annotations

from collections.abc import Callable

from daskmetrics.core._events import Event, Record, UnitAsked, WorkerJoined, to_json
from daskmetrics.core.names import Key, content_key
from daskmetrics.execution._units import EventLog, Source


class Recorder:
    """The records of a run, and the entries that wait for the next append.

    Parameters
    ----------
    journal : EventLog
    source : Source
    on_record : callable
        Called with each new record, after it was journaled.
    every : int
        Results after which an append waits for the disk; the earlier ones are committed with it.
    """

    def __init__(self, journal: EventLog, source: Source, on_record: Callable[[Record], None], every: int = 1) -> None:
        self.journal, self.source, self.on_record, self._every = journal, source, on_record, every
        self._not_durable = 0
        self.known: dict[Key, Record] = {record.key: record for record in journal.records()}
        self._once = {_identity(entry) for entry in journal.entries if isinstance(entry, UnitAsked | WorkerJoined)}
        self._entries: list[Event] = []

    def add(self, entry: Event) -> None:
        """Add an entry to the next append."""
        self._entries.append(entry)
        if isinstance(entry, Record):
            self.known[entry.key] = entry

    def add_once(self, entry: UnitAsked | WorkerJoined) -> None:
        """Add a decision or a worker, if the journal does not have it."""
        if (identity := _identity(entry)) not in self._once:
            self._once.add(identity)
            self.add(entry)

    def flush(self) -> bool:
        """Commit what was added, and pass the records on; returns whether there were any."""
        if not self._entries:
            return False
        entries, self._entries = self._entries, []
        # a lost decision is made again, and a lost worker answers again: these do not wait for the disk
        self._not_durable += sum(not isinstance(entry, UnitAsked | WorkerJoined) for entry in entries)
        wait = self._not_durable >= self._every
        self.journal.append(*entries, wait=wait)
        self._not_durable = 0 if wait else self._not_durable
        records = [entry for entry in entries if isinstance(entry, Record)]
        for record in records:
            self.source.tell(record)
            self.on_record(record)
        return bool(records)


def _identity(entry: UnitAsked | WorkerJoined) -> bytes:
    return bytes.fromhex(content_key(to_json(entry)))
