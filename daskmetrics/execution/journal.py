"""Append-only file of checksummed lines; the only state a run needs to resume."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from daskmetrics.errors import DataError, LockedError
from daskmetrics.execution.units import Record

Entry = dict[str, Any]


def encode(entry: Mapping[str, Any]) -> bytes:
    """One line: eight hexadecimal digits of CRC-32, a space, JSON without NaN, a line feed."""
    text = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode(line: bytes) -> Entry | None:
    """The entry of a line, or None if the line is damaged."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    try:
        if len(checksum) == 8 and int(checksum, 16) == zlib.crc32(text):
            return dict(json.loads(text))
    except ValueError:
        pass
    return None


def read(path: Path) -> Iterator[Entry]:
    """The entries of a journal, oldest first; safe while a run is writing.

    Raises
    ------
    DataError
        For a damaged line, with its number. Half a line at the very end is what a killed writer leaves: it was never
        committed and is passed over.
    """
    for _, entry in _lines(path):
        yield entry


def _lines(path: Path) -> Iterator[tuple[int, Entry]]:
    """Entries with the offset at which each line ends."""
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            entry = decode(line)
            if entry is None:
                raise DataError(
                    f"Line {number} of '{path}' is damaged (checksum). Every line before it is sound: restore the file "
                    f"from a backup, or keep its first {number - 1} lines and run again to compute the rest."
                )
            offset += len(line)
            yield offset, entry


class Journal:
    """The journal of a run, opened by its one writer.

    Parameters
    ----------
    path : Path
        The journal file; made if it does not exist.
    lock : Path
        A lock file beside it. It says who holds the run.

    Raises
    ------
    LockedError
        If another driver has the run.
    DataError
        If a line is damaged.

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
        self._lock = _acquire(lock)
        try:
            self.entries = self._recover()
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except BaseException:
            os.close(self._lock)
            raise

    def _recover(self) -> list[Entry]:
        if not self.path.exists():
            return []
        sound, entries = 0, []
        for sound, entry in _lines(self.path):  # noqa: B007 - the last offset is used below
            entries.append(entry)
        if sound < self.path.stat().st_size:
            os.truncate(self.path, sound)  # a killed writer leaves half a line
        return entries

    def append(self, entry: Mapping[str, Any]) -> None:
        """Write an entry and wait until the disk has it; what this returns from is committed."""
        line = encode(entry)
        while line:  # a nearly full disk takes part of a line
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)
        self.entries.append(dict(entry))

    def records(self) -> Iterator[Record]:
        """The recorded work units, oldest first; of two records of one key the first counts."""
        seen = set()
        for entry in self.entries:
            if entry["type"] == "record" and entry["key"] not in seen:
                seen.add(entry["key"])
                yield Record.from_entry(entry)

    def close(self) -> None:
        os.close(self._file)
        os.ftruncate(self._lock, 0)
        os.close(self._lock)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _acquire(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 4096).decode(errors="replace").strip() or "another process"
        os.close(lock)
        raise LockedError(
            f"The run in '{path.parent}' is being driven by {holder}. Wait for it, or stop it first."
        ) from None
    os.ftruncate(lock, 0)
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    os.write(lock, f"process {os.getpid()} on {socket.gethostname()} since {since}".encode())
    return lock


def holder(lock: Path) -> str | None:
    """Who drives the run now, or None."""
    if not lock.exists():
        return None
    file = os.open(lock, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return os.read(file, 4096).decode(errors="replace").strip() or "another process"
    finally:
        os.close(file)
