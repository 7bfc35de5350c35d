"""Append-only file of checksummed lines; the only state a run needs to resume.

A line is eight hexadecimal digits of CRC-32, a space, one JSON object and a line feed. The checksum goes on from that
of the line before, so that a line which is lost, doubled or out of place is seen like a flipped bit.

Beside the journal lies its *mark*: how long it was after the last commit. A writer that is killed leaves half a line
*beyond* the mark, which was never committed and is dropped; a journal that ends *before* its mark was cut, and is
refused. The mark is written without waiting for the disk: after a power failure it may lag behind, never run ahead.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from daskmetrics.core.errors import DataError, LockedError, room_for
from daskmetrics.execution._lock import Lease, holder, unlock
from daskmetrics.execution._units import Record

__all__ = [
    "Contents",
    "Entry",
    "Journal",
    "decode",
    "encode",
    "holder",
    "read",
    "records",
    "scan",
    "standing",
    "unlock",
]

Entry = dict[str, Any]

# after a power failure, zeros can stand where the rest was to come
_HALF_A_LINE = re.compile(rb"([0-9a-f]{0,8}|[0-9a-f]{8} (\{[\x20-\x7e]*)?)\x00*")


def encode(entry: Mapping[str, Any], before: int = 0) -> bytes:
    """The line of an entry; ``before`` is the checksum of the line before it."""
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text, before), text)


def decode(line: bytes, before: int = 0) -> Entry | None:
    """The entry of a line, or None if the line is damaged."""
    text = line[9:].removesuffix(b"\n")
    if line[:9] != b"%08x " % zlib.crc32(text, before):
        return None
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True)
class Contents:
    """What a journal holds.

    Attributes
    ----------
    entries : list of dict
        Oldest first.
    length : int
        Bytes of all whole lines.
    checksum : int
        Of the last line; the next one goes on from it.
    torn : int
        Bytes of half a line at the end, which was never committed.
    """

    entries: list[Entry]
    length: int = 0
    checksum: int = 0
    torn: int = 0


def read(path: Path) -> Iterator[Entry]:
    """The entries of a journal, oldest first; safe while a run is writing.

    Raises
    ------
    DataError
        For a damaged line, with its number, and for a journal that lacks lines which were committed. Half a line at the
        very end is what a killed writer leaves: it was never committed and is passed over.
    """
    return iter(scan(path).entries)


def scan(path: Path) -> Contents:
    """Everything that a journal holds; errors as for `read`."""
    committed = _Mark.read(path)  # before the lines: a writer may add some meanwhile
    entries: list[Entry] = []
    length = checksum = torn = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            entry = decode(line, checksum)
            if not line.endswith(b"\n"):
                # a committed line whose line feed is gone is no half line
                if not _HALF_A_LINE.fullmatch(line) or decode(line[:-1], checksum) is not None:
                    raise _damaged(path, number)
                torn = len(line)
                break
            if entry is None:
                raise _older(path) if number == 2 and decode(line) is not None else _damaged(path, number)
            entries.append(entry)
            length, checksum = length + len(line), int(line[:8], 16)
            if length == committed[0] and checksum != committed[1]:
                raise _damaged(path, number)
    if length < committed[0]:
        raise DataError(
            f"'{path}' ends after line {len(entries)}, but {committed[0] - length} more bytes were committed: it was "
            f"cut. Restore it from a backup; or delete '{mark_of(path)}' to go on from here, and what is lacking is "
            "computed again."
        )
    return Contents(entries, length, checksum, torn)


def _older(path: Path) -> DataError:
    return DataError(
        f"'{path}' was written by an earlier version of daskmetrics, or its first line is doubled. Results of earlier "
        "versions cannot be gone on from: run anew in another folder, with --folder."
    )


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"Line {number} of '{path}' is damaged (checksum). Every line before it is sound: restore the file from a "
        f"backup; or keep its first {number - 1} lines, delete '{mark_of(path)}', and run again to compute the rest."
    )


def standing(entries: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries without what a later ``retry`` entry took back.

    These are failures and attempts of the units that it names, and that the run was finished.
    """
    again: set[str] = set()
    kept = []
    for entry in reversed(list(entries)):
        if entry["type"] == "retry":
            again.update(entry["keys"])
        if not _is_taken_back(entry, again):
            kept.append(entry)
    return kept[::-1]


def _is_taken_back(entry: Mapping[str, Any], again: set[str]) -> bool:
    match entry["type"]:
        case "record":
            return entry["key"] in again and entry["status"] != "ok"
        case "attempt":
            return entry["key"] in again
        case "finished":
            return bool(again)
    return False


def records(entries: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    """The recorded work units, oldest first, without those that are to be tried again (`standing`).

    Of two records of one key the first counts.
    """
    seen = set()
    for entry in standing(entries):
        if entry["type"] == "record" and entry["key"] not in seen:
            seen.add(entry["key"])
            yield Record.from_entry(entry)


class Journal:
    """The journal of a run, opened by its one writer.

    Parameters
    ----------
    path : Path
        The journal file; made if it does not exist.
    lock : Path
        A lock file beside it. Its lease says who holds the run.

    Attributes
    ----------
    entries : list of dict
    notices : tuple of str
        What was put right on opening: a lease taken over, half a line dropped.

    Raises
    ------
    LockedError
        If another driver has the run.
    DataError
        If a line is damaged, or committed lines are lacking.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Journal(folder / "journal.jsonl", folder / "lock") as journal:
    ...     journal.append({"type": "note", "text": "hello"})
    >>> list(read(folder / "journal.jsonl"))
    [{'type': 'note', 'text': 'hello'}]
    """

    def __init__(self, path: Path, lock: Path) -> None:
        self.path = path
        with room_for(f"the journal '{path}'"):
            self._lease = Lease(lock)
            try:
                found = scan(path) if path.exists() else Contents([])
                self._file = _open_at(path, found.length)
                self._mark = _Mark(path)
            except BaseException:
                self._lease.release()
                raise
        self.entries, self._length, self._checksum = found.entries, found.length, found.checksum
        self._writing = False
        self._mark.move(self._length, self._checksum)
        half = f"Dropped half a line ({found.torn} bytes) at the end of '{path}', which was never committed."
        self.notices = tuple(filter(None, (self._lease.notice, half if found.torn else None)))

    def append(self, entry: Mapping[str, Any], wait: bool = True) -> None:
        """Write an entry and wait until the disk has it; what this returns from is committed.

        Parameters
        ----------
        entry : mapping
            JSON values.
        wait : bool
            Without waiting it is committed with the next entry that waits: good enough for a decision, which is taken
            again in the same way if it is lost.

        Raises
        ------
        DiskFullError
            If there is no room. The journal is as it was before, and the entry can be appended again.
        LockedError
            If the run was taken from this process.
        """
        line = encode(entry, self._checksum)
        self._require_sole_writer()
        self._writing = True
        try:
            with room_for(f"the journal '{self.path}'"):
                _write_whole(self._file, line)
                if wait:
                    os.fsync(self._file)
        except BaseException:  # also Ctrl-C
            self._withdraw()
            raise
        self._length, self._checksum = self._length + len(line), int(line[:8], 16)
        self.entries.append(dict(entry))
        self._writing = False
        if wait:
            self._mark.move(self._length, self._checksum)

    def _require_sole_writer(self) -> None:
        self._lease.check()
        if self._writing:
            self._withdraw()  # the last append was interrupted
        if os.fstat(self._file).st_size != self._length:
            raise LockedError(f"Another process wrote to '{self.path}'. This one stops, so that nothing is mixed up.")

    def _withdraw(self) -> None:
        """Back to the last committed line; tried again before the next append if the disk refuses now."""
        with suppress(OSError):
            os.ftruncate(self._file, self._length)
            self._writing = False

    def records(self) -> Iterator[Record]:
        """The recorded work units, oldest first (`records`)."""
        return records(self.entries)

    def close(self) -> None:
        self._mark.close()
        os.close(self._file)
        self._lease.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def mark_of(path: Path) -> Path:
    """Where the mark of a journal lies."""
    return path.with_suffix(".mark")


class _Mark:
    """Length and last checksum of a journal after its last commit, in one small file with a checksum of its own."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(mark_of(path), os.O_WRONLY | os.O_CREAT, 0o600)

    def move(self, length: int, checksum: int) -> None:
        text = b"%016x %08x" % (length, checksum)
        with suppress(OSError):  # no room: it lags behind
            os.pwrite(self._file, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    @staticmethod
    def read(path: Path) -> tuple[int, int]:
        """Length and checksum; zeros if there is no sound mark."""
        try:
            text, _, own = mark_of(path).read_bytes().rstrip(b"\n").rpartition(b" ")
            if own == b"%08x" % zlib.crc32(text):
                length, checksum = text.split()
                return int(length, 16), int(checksum, 16)
        except (OSError, ValueError):
            pass
        return 0, 0

    def close(self) -> None:
        os.close(self._file)


def _write_whole(file: int, line: bytes) -> None:
    while line:  # a nearly full disk takes part of a line
        line = line[os.write(file, line) :]


def _open_at(path: Path, length: int) -> int:
    """The file for appending at this length; half a line beyond it goes."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.ftruncate(file, length)
    os.fsync(file)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)  # otherwise a power failure can take the file's name with it
    os.close(folder)
    return file
