"""Append-only file of checksummed lines; the only state a run needs to resume.

A line is eight hexadecimal digits of CRC-32, a space, one JSON object and a line feed. The checksum continues that of
the line before, so that a lost, doubled or misplaced line is detected like a flipped bit. The first line holds the
number of the format; the others hold the entries of `core._events`.

Beside the journal lies its *mark*: how long it was after the last commit. A writer that is killed leaves half a line
*beyond* the mark, which was never committed and is dropped; a journal that ends *before* its mark was cut, and is
refused. The mark is written without waiting for the disk: after a power failure it may lag behind, never run ahead.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from daskmetrics.core._events import (
    AttemptFailed,
    Event,
    Record,
    RunFinished,
    RunStarted,
    UnitsRetried,
    from_json,
    to_json,
)
from daskmetrics.core._files import atomic_write
from daskmetrics.core._json import parse
from daskmetrics.core.errors import DataError, LockedError, room_for
from daskmetrics.core.names import Key
from daskmetrics.execution._lock import RunLock
from daskmetrics.execution._lock import holder as holder
from daskmetrics.execution._lock import unlock as unlock

FORMAT = 1  #: of the journal; docs/faults.md says which formats a version reads
E = TypeVar("E")

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


@dataclass(frozen=True)
class Contents:
    """What a journal holds."""

    entries: list[Event]  # oldest first, without the first line, which holds the number of the format
    length: int = 0  # bytes of all whole lines
    checksum: int = 0  # of the last line; the next one continues it
    torn: int = 0  # bytes of half a line at the end, which was never committed


def read(path: Path) -> Iterator[Event]:
    """The entries of a journal, oldest first; safe while a run is writing.

    Raises DataError for a damaged line, with its number; for missing committed lines; and for a format or a kind of
    entry that this version does not know. Half a line at the very end is what a killed writer leaves: it was never
    committed and is passed over.
    """
    return iter(scan(path).entries)


def numbered(path: Path) -> list[tuple[int, Event]]:
    """The entries of a journal with the numbers of their lines in the file."""
    return list(enumerate(read(path), start=2))


def scan(path: Path) -> Contents:
    """Everything that a journal holds; errors as for `read`."""
    committed = _read_mark(path)  # before the lines: a writer may add some meanwhile
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
            if length == committed[0] and checksum != committed[1]:
                raise _damaged(path, number)
    if length < committed[0]:
        raise DataError(
            f"'{path}' ends after line {len(entries) + bool(length)}, but {committed[0] - length} more bytes were "
            f"committed: it was cut. Restore it from a backup; or delete '{mark_of(path)}' to continue from here: the "
            "missing results are computed again."
        )
    return Contents(entries, length, checksum, torn)


def _require_format(path: Path, first: Mapping[str, Any]) -> None:
    number = first.get("number") if first.get("type") == "format" else None
    if not isinstance(number, int):
        raise DataError(
            f"'{path}' was written by an earlier version of daskmetrics, whose results this one cannot read. Run again "
            "in another folder, with --folder."
        )
    if number > FORMAT:
        raise _newer(path, f"is written in format {number}, and this version of daskmetrics reads format {FORMAT}")


def _entry(path: Path, number: int, plain: Mapping[str, Any]) -> Event:
    try:
        return from_json(plain)
    except ValueError as error:
        raise _newer(path, f"has in line {number} what this version of daskmetrics cannot read, {error}") from None


def _newer(path: Path, what: str) -> DataError:
    return DataError(
        f"'{path}' {what}. A newer version wrote it: upgrade daskmetrics, or use another folder, with --folder."
    )


def _damaged(path: Path, number: int) -> DataError:
    return DataError(
        f"Line {number} of '{path}' is damaged (checksum). All lines before it are intact. Restore the file from a "
        f"backup; or keep its first {number - 1} lines, delete '{mark_of(path)}', and run again to compute the rest."
    )


def standing(entries: Iterable[Event]) -> list[Event]:
    """The entries that count: without what a later `UnitsRetried` took back, and without second records of a key.

    It takes back the failures and attempts of the units that it names, and that the run was finished. Of several
    records of one key the first with a value counts, or else the first.
    """
    again: set[Key] = set()
    kept: list[Event] = []
    for entry in reversed(list(entries)):
        match entry:
            case UnitsRetried(keys=keys):
                again.update(keys)
            case Record(key=key, ok=False) | AttemptFailed(key=key) if key in again:
                continue
            case RunFinished() if again:
                continue
        kept.append(entry)
    first: dict[Key, Record] = {}
    for entry in reversed(kept):
        if isinstance(entry, Record) and not (entry.key in first and (first[entry.key].ok or not entry.ok)):
            first[entry.key] = entry
    return [entry for entry in reversed(kept) if not isinstance(entry, Record) or first[entry.key] is entry]


def records(entries: Iterable[Event]) -> Iterator[Record]:
    """The records that count (`standing`), oldest first."""
    return (entry for entry in standing(entries) if isinstance(entry, Record))


def is_finished(entries: Iterable[Event], key: Key | None = None) -> bool:
    """Whether a configuration has nothing left to do: it finished, and no failure was taken back since.

    The default is the configuration of the latest start: a run that finished, was enlarged and was then interrupted is
    not finished.
    """
    entries = list(entries)
    start = latest(entries, RunStarted)
    key = start.key if key is None and start else key
    return any(isinstance(entry, RunFinished) and entry.key == key for entry in standing(entries))


def latest(entries: Sequence[Event], kind: type[E]) -> E | None:
    """The last entry of a class, or None."""
    return next((entry for entry in reversed(entries) if isinstance(entry, kind)), None)


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
    notices : tuple of str
        What was repaired on opening: the lock of a dead driver taken over, half a line dropped.

    Raises
    ------
    LockedError
        If another driver has the run.
    DataError
        If a line is damaged, committed lines are missing, or another version wrote the journal.

    Examples
    --------
    >>> import tempfile
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
                contents = scan(path) if path.exists() else Contents([])
                self._file = _open_at(path, contents.length)
                self._mark = os.open(mark_of(path), os.O_WRONLY | os.O_CREAT, 0o600)
            except BaseException:
                self._run_lock.release()
                raise
        self.entries, self._length, self._checksum = contents.entries, contents.length, contents.checksum
        self._writing = self._behind = False
        self._move_mark()
        half = f"Dropped half a line ({contents.torn} bytes) at the end of '{path}', which was never committed."
        self.notices = tuple(filter(None, (self._run_lock.notice, half if contents.torn else None)))

    def append(self, *entries: Event, wait: bool = True) -> None:
        """Write entries at once and wait until they are on disk: then they are committed.

        Parameters
        ----------
        *entries : Event
            With JSON values.
        wait : bool
            Without waiting they are committed with the next entry that waits: good enough for a decision, which is
            taken again in the same way if it is lost.

        Raises
        ------
        DiskFullError
            If there is no room. The journal is as it was before, and the entries can be appended again.
        LockedError
            If the run was taken from this process.
        """
        lines, checksum = [], self._checksum
        for plain in (*([] if self._length else [{"type": "format", "number": FORMAT}]), *map(to_json, entries)):
            lines.append(encode(plain, checksum))
            checksum = int(lines[-1][:8], 16)
        self._require_sole_writer()
        self._writing = True
        try:
            with room_for(f"the journal '{self.path}'"):
                rest = text = b"".join(lines)
                while rest:  # a nearly full disk takes a part
                    rest = rest[os.write(self._file, rest) :]
                if wait:
                    os.fsync(self._file)
        except BaseException:  # also Ctrl-C
            self._withdraw()
            raise
        self._length, self._checksum = self._length + len(text), checksum
        self.entries.extend(entries)
        self._writing, self._behind = False, not wait
        if wait:
            self._move_mark()

    def _move_mark(self) -> None:
        text = b"%016x %08x" % (self._length, self._checksum)
        with suppress(OSError):  # the disk is full: the mark lags behind
            os.pwrite(self._mark, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    def _require_sole_writer(self) -> None:
        self._run_lock.check()
        if self._writing:
            self._withdraw()  # the last append was interrupted
        if os.fstat(self._file).st_size != self._length:
            raise LockedError(f"Another process wrote to '{self.path}'. This one stops, so that lines do not mix.")

    def _withdraw(self) -> None:
        """Truncate to the last committed line; repeated before the next append if it fails."""
        with suppress(OSError):
            os.ftruncate(self._file, self._length)
            self._writing = False

    def records(self) -> Iterator[Record]:
        """The records that count, oldest first (`records`)."""
        return records(self.entries)

    def close(self) -> None:
        """Commit what was appended without waiting, and release the run."""
        with suppress(OSError, LockedError):  # the disk is full or gone, or another process has the run
            if self._behind and not self._writing:
                self._run_lock.check()
                os.fsync(self._file)
                self._move_mark()
        os.close(self._mark)
        os.close(self._file)
        self._run_lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def set_aside(path: Path, lock: Path, keep: int) -> Path:
    """Continue from an older state: a journal without what follows its first ``keep`` entries.

    The whole journal stays beside it, under the name that is returned. Raises LockedError if a driver has the run.
    """
    with room_for(f"the journal '{path}'"):
        run_lock = RunLock(lock)
        try:
            names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
            aside = next(name for name in names if not name.exists())
            lines = path.read_bytes().splitlines(keepends=True)[: keep + 1]  # the first holds the format
            os.link(path, aside)
            if mark_of(path).exists():  # it states the length of the whole journal
                mark_of(path).replace(mark_of(aside))
            atomic_write(path, b"".join(lines))
        finally:
            run_lock.release()
    return aside


def mark_of(path: Path) -> Path:
    """The file of the mark of a journal; it has a checksum, too."""
    return path.with_suffix(".mark")


def _read_mark(path: Path) -> tuple[int, int]:
    """Length and last checksum of a journal after its last commit; zeros if there is no intact mark."""
    with suppress(OSError, ValueError):
        text, _, checked = mark_of(path).read_bytes().rstrip(b"\n").rpartition(b" ")
        if checked == b"%08x" % zlib.crc32(text):
            length, checksum = text.split()
            return int(length, 16), int(checksum, 16)
    return 0, 0


def _open_at(path: Path, length: int) -> int:
    """Open the file for appending at this length; half a line beyond it is removed."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    os.ftruncate(file, length)
    os.fsync(file)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)  # otherwise a power failure can remove the name of the file
    os.close(folder)
    return file
