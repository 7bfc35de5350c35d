"""Append-only file of checksummed lines; the only state a run needs to resume.

A line is eight hexadecimal digits of CRC-32, a space, one JSON object and a line feed. The checksum
continues that of the line before, so that a lost, doubled or misplaced line is detected like a
flipped bit. The first line holds the number of the format; the others hold the entries of
`core.events`.

Beside the journal lies its *mark*: how long it was after the last commit. A writer that is killed
leaves half a line *beyond* the mark, which was never committed and is dropped; a journal that ends
*before* its mark was cut, and is refused, as is a mark without a journal. The mark is written
without waiting for the disk: after a power failure it may lag behind, never run ahead.

The writer compares its open file with the path at every commit. If the journal was deleted or
replaced meanwhile, it writes what it committed beside the path and stops.
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
from typing import Any

from daskmetrics.core.errors import DataError, LockedError, StorageError, room_for
from daskmetrics.core.events import Event, Record, from_json, records, to_json
from daskmetrics.core.files import atomic_write
from daskmetrics.core.serialization import parse
from daskmetrics.execution._lock import RunLock
from daskmetrics.execution._lock import holder as holder
from daskmetrics.execution._lock import unlock as unlock

FORMAT = 1  #: of the journal; docs/faults.md says which formats a version reads

# after a power failure, zeros can follow the part that was written
_HALF_A_LINE = re.compile(rb"([0-9a-f]{0,8}|[0-9a-f]{8} (\{[\x20-\x7e]*)?)\x00*")


def encode(plain: Mapping[str, Any], before: int = 0) -> bytes:
    """The line of a JSON object; ``before`` is the checksum of the line before it."""
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text, before), text)


def decode(line: bytes, before: int = 0) -> dict[str, Any] | None:
    """The JSON object of a line, or None if the line is damaged."""
    text = line[9:].removesuffix(b"\n")
    if line[:9] != b"%08x " % zlib.crc32(text, before):
        return None
    try:
        return dict(parse(text))
    except (TypeError, ValueError):
        return None


def _lines(entries: Iterable[Event], checksum: int = 0, begins: bool = True) -> tuple[bytes, int]:
    """The lines of entries, after the line with the format where they begin a journal; and the
    checksum of the last.
    """
    objects = [to_json(entry) for entry in entries]
    if begins:
        objects.insert(0, {"type": "format", "number": FORMAT})
    text = b""
    for plain in objects:
        line = encode(plain, checksum)
        checksum = int(line[:8], 16)
        text += line
    return text, checksum


@dataclass(frozen=True)
class Contents:
    """What a journal holds."""

    entries: list[Event]  # the oldest one at the start, without the line that holds the format
    length: int = 0  # bytes of all whole lines
    checksum: int = 0  # of the last line; the next one continues it
    torn: int = 0  # bytes of half a line at the end, which was never committed


def read(path: Path) -> Iterator[Event]:
    """The entries of a journal, oldest first; safe while a run is writing.

    Raises DataError for a damaged line, with its number; for missing committed lines; and for a
    format or a kind of entry that this version does not know. Half a line at the very end is what a
    killed writer leaves: it was never committed and is passed over.
    """
    return iter(scan(path).entries)


def numbered(path: Path) -> list[tuple[int, Event]]:
    """The entries of a journal with the numbers of their lines in the file."""
    return list(enumerate(read(path), start=2))


def scan(path: Path) -> Contents:
    """Everything that a journal holds; errors as for `read`."""
    committed, mark_checksum = _read_mark(path)  # before the lines: a writer may add some meanwhile
    entries: list[Event] = []
    length = checksum = torn = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            plain = decode(line, checksum)
            if not line.endswith(b"\n"):
                # a committed line that lost its line feed is damage
                if not _HALF_A_LINE.fullmatch(line) or decode(line[:-1], checksum) is not None:
                    raise _damaged(path, number)
                torn = len(line)
                break
            if plain is None:
                raise _damaged(path, number)
            if number == 1:
                _require_format(path, plain)
            else:
                entries.append(_entry(path, number, plain))
            length, checksum = length + len(line), int(line[:8], 16)
            if length == committed and checksum != mark_checksum:
                raise _damaged(path, number)
    if length < committed:
        raise DataError(
            f"'{path}' ends after line {len(entries) + bool(length)}, but {committed - length} "
            "more bytes were committed: it was cut. Restore it from a backup; or delete "
            f"'{mark_of(path)}' to continue from here: the missing results are computed again."
        )
    return Contents(entries, length, checksum, torn)


def _require_format(path: Path, header: Mapping[str, Any]) -> None:
    number = header.get("number")
    if header.get("type") != "format" or not isinstance(number, int):
        raise DataError(
            f"'{path}' was written by an earlier version of daskmetrics, whose results this one "
            "cannot read. Run again in another folder, with --folder."
        )
    if number > FORMAT:
        reads = f"this version of daskmetrics reads format {FORMAT}"
        raise _newer(path, f"is written in format {number}, and {reads}")


def _entry(path: Path, number: int, plain: Mapping[str, Any]) -> Event:
    try:
        return from_json(plain)
    except ValueError as error:
        text = f"has in line {number} what this version of daskmetrics cannot read, {error}"
        raise _newer(path, text) from None


def _newer(path: Path, what: str) -> DataError:
    return DataError(
        f"'{path}' {what}. A newer version wrote it: upgrade daskmetrics, or use another folder, "
        "with --folder."
    )


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"Line {number} of '{path}' is damaged (checksum). All lines before it are intact. Restore "
        f"the file from a backup; or keep its first {number - 1} lines, delete '{mark_of(path)}', "
        "and run again to compute the rest."
    )


class Journal:
    """The journal of a run, opened by its one writer.

    Parameters
    ----------
    path : Path
        The journal file; made if it does not exist.
    lock : Path
        A lock file beside it, which says who holds the run.

    Attributes
    ----------
    entries : list of Event
    notices : list of str
        What was repaired on opening: the lock of a dead driver taken over, half a line dropped.

    Raises
    ------
    LockedError
        If another driver has the run.
    DataError
        If a line is damaged, committed lines are missing, there is a mark without a journal, or
        another version wrote the journal.

    Examples
    --------
    >>> import tempfile
    >>> from daskmetrics.core.events import UnitsRetried
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Journal(folder / "journal.jsonl", folder / "lock") as journal:
    ...     journal.append(UnitsRetried(["a"]))
    >>> list(read(folder / "journal.jsonl"))
    [UnitsRetried(keys=['a'])]
    """

    def __init__(self, path: Path, lock: Path) -> None:
        self.path = path
        with room_for(f"the journal '{path}'"):
            self._run_lock = RunLock(lock)
            try:
                contents = _contents(path)
                self._file = _open_at(path, contents.length, _read_mark(path)[0])
                opened = os.fstat(self._file)
                self._mark = os.open(mark_of(path), os.O_WRONLY | os.O_CREAT, 0o600)
            except BaseException:
                self._run_lock.release()
                raise
        self._identity = opened.st_dev, opened.st_ino
        self.entries, self._checksum = contents.entries, contents.checksum
        # bytes of all lines, of those on the disk, and of the file
        self._length = self._safe = self._size = contents.length
        self._tail = b""  # the lines after those on disk
        self._writing = False
        self._move_mark()
        self.notices = [self._run_lock.notice] if self._run_lock.notice else []
        if contents.torn:
            self.notices.append(
                f"Dropped half a line ({contents.torn} bytes) at the end of '{path}', which was "
                "never committed."
            )

    def append(self, *entries: Event, wait: bool = True) -> None:
        """Write entries at once and wait until they are on disk: then they are committed.

        Parameters
        ----------
        *entries : Event
            With JSON values.
        wait : bool
            Without waiting they are committed with the next entry that waits: good enough for a
            decision, which is taken again in the same way if it is lost.

        Raises
        ------
        StorageError
            If there is no room, or the place cannot be written. The entries can be appended again.
        DataError
            If the journal was deleted, replaced or cut meanwhile: what it held is written beside
            it.
        LockedError
            If the run was taken from this process.
        """
        text, checksum = _lines(entries, self._checksum, begins=not self._length)
        with room_for(f"the journal '{self.path}'"):
            self._require_sole_writer()
            try:
                self._writing = True
                # what was withdrawn is written again
                rest = self._tail[self._size - self._safe :] + text
                while rest:  # a nearly full disk takes a part
                    rest = rest[os.write(self._file, rest) :]
                if wait:
                    os.fsync(self._file)
            except BaseException:  # also Ctrl-C
                with suppress(OSError):
                    self._withdraw()
                raise
        self._length, self._checksum = self._length + len(text), checksum
        self._tail += text
        self._size, self._writing = self._length, False
        self.entries.extend(entries)
        if wait:
            self._safe, self._tail = self._length, b""
            self._move_mark()
            with suppress(StorageError):  # they are committed; the next append compares again
                self._require_in_place()

    def _require_sole_writer(self) -> None:
        size = self._require_in_place()
        self._run_lock.check()
        if self._writing:
            self._withdraw()  # the last append was interrupted
        elif size > self._size:
            raise LockedError(
                f"Another process wrote to '{self.path}'. This one stops, so that lines do not mix."
            )

    def _require_in_place(self) -> int:
        """The size of the file at the path; if it is not the open one or was cut, keep what it
        held: DataError.
        """
        with room_for(f"the journal '{self.path}'"):
            try:
                status = self.path.stat()
            except FileNotFoundError:
                event = "deleted or moved"
            else:
                expected = self._safe if self._writing else self._size
                event = "cut"
                if (status.st_dev, status.st_ino) != self._identity:
                    event = "replaced"
                elif status.st_size >= expected:
                    return status.st_size
            kept = kept_of(self.path)
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            atomic_write(kept, _lines(self.entries)[0])
        raise DataError(
            f"The journal '{self.path}' was {event} while this run wrote it. The run ends. All its "
            f"{len(self.entries)} entries are kept in '{kept}': {_put_back(self.path)}"
        )

    def _withdraw(self) -> None:
        """Truncate to the lines that are on disk; repeated before the next append if it fails.

        After a failed `fsync` the system may drop what it has not written, so the tail does not
        count as written.
        """
        if os.fstat(self._file).st_size > self._safe:  # otherwise it would grow by zeros
            os.ftruncate(self._file, self._safe)
        self._size, self._writing = self._safe, False

    def _move_mark(self) -> None:
        text = b"%016x %08x" % (self._length, self._checksum)
        with suppress(OSError):  # the disk is full: the mark lags behind
            os.pwrite(self._mark, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    def records(self) -> Iterator[Record]:
        """The records that count, oldest first (`records`)."""
        return records(self.entries)

    def close(self) -> None:
        """Commit what was appended without waiting, and release the run."""
        # the disk is full or gone, or another process has the run
        with suppress(OSError, LockedError):
            if self._tail and self._size == self._length and not self._writing:
                self._run_lock.check()
                os.fsync(self._file)
                self._move_mark()
        os.close(self._mark)
        os.close(self._file)
        self._run_lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:  # after the last commit, too
                self._require_in_place()
        finally:
            self.close()


def _put_back(path: Path) -> str:
    """The remedy for a journal whose entries are kept beside it."""
    return f"put it back with: mv '{kept_of(path)}' '{path}', then run the same command again."


def _contents(path: Path) -> Contents:
    """What the journal holds, nothing if it is new; raises DataError if a mark says that there was
    one.
    """
    with suppress(FileNotFoundError):
        return scan(path)
    committed, _ = _read_mark(path)
    if not committed:
        return Contents([])
    kept = kept_of(path)
    remedy = "put it back, or restore it from a backup."
    if kept.exists() and kept.stat().st_size >= committed:
        remedy = _put_back(path)
    raise DataError(
        f"'{path}' is missing, but {committed} bytes were committed to it: it was deleted or moved. "
        f"If you have it, {remedy} To compute everything again, delete '{mark_of(path)}'."
    )


def kept_of(path: Path) -> Path:
    """The file that holds what was committed to a journal that was deleted or replaced during its
    run.
    """
    return path.with_suffix(".kept.jsonl")


def mark_of(path: Path) -> Path:
    """The file of the mark of a journal; it has a checksum, too."""
    return path.with_suffix(".mark")


def _read_mark(path: Path) -> tuple[int, int]:
    """Length and last checksum of a journal after its last commit; zeros if there is no intact
    mark.
    """
    with suppress(OSError, ValueError):
        text, _, checked = mark_of(path).read_bytes().rstrip(b"\n").rpartition(b" ")
        if checked == b"%08x" % zlib.crc32(text):
            length, checksum = text.split()
            return int(length, 16), int(checksum, 16)
    return 0, 0


def _open_at(path: Path, length: int, committed: int) -> int:
    """Open the file for appending at this length; half a line beyond it is removed.

    What lies behind the committed length is written again.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    size = os.fstat(file).st_size
    if size < length:
        os.close(file)
        raise DataError(f"'{path}' was deleted or cut while it was read. Restore it from a backup.")
    if size > length:
        os.ftruncate(file, length)
    # a process that was killed after a failed `fsync` leaves lines that are in memory and not on
    # the disk; on Linux, `pwrite` to a file that is open for appending ignores the offset
    if rest := os.pread(file, max(0, length - committed), committed):
        rewritten = os.open(path, os.O_WRONLY)
        while rest:
            written = os.pwrite(rewritten, rest, length - len(rest))
            rest = rest[written:]
        os.fsync(rewritten)
        os.close(rewritten)
    os.fsync(file)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)  # otherwise a power failure can remove the name of the file
    os.close(folder)
    return file
