"""Append-only file of checksummed lines; the only state a run needs to resume.

A line is eight hexadecimal digits of CRC-32, a space, one JSON object and a line feed. The checksum
continues that of the line before, so that a lost, doubled or misplaced line is detected like a
flipped bit. The first line holds the number of the format; the others hold the entries of
`domain.events`.

Beside the journal lies its *mark*: how long it was after the last commit. A writer that is killed
leaves half a line *beyond* the mark, which was never committed and is dropped; a journal that ends
*before* its mark was cut, and is refused, as is a mark without a journal. The mark is written
without waiting for the disk: after a power failure it may lag behind, never run ahead.

The writer compares its open file with the path at every commit, and stops if the journal was
deleted, replaced or cut meanwhile. What it wrote after that does not count.

Only one process drives a run: `RunLock` is a lock of the kernel, and an owner file for machines
that the kernel's lock does not reach. ``flock`` ends with its process, but not every network file
system shares it with other machines. The owner file, which only one process can create, is visible
to them. It outlives a killed process, so its owner is checked before it counts.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import hashlib
import json
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from daskmetrics.core.errors import (
    OTHER_VERSION,
    DaskmetricsError,
    DataError,
    LockedError,
    StorageError,
    room_for,
)
from daskmetrics.core.files import atomic_write, opened, require_regular
from daskmetrics.core.holder import Holder
from daskmetrics.core.serialization import build, parse
from daskmetrics.domain.events import KINDS, Event, from_json, records, to_json
from daskmetrics.domain.record import Record

FORMAT = 1  #: of the journal; docs/faults.md says which formats a version reads
_FIRST = {"type": "format", "number": FORMAT}  # the first line

NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # errors of file systems without flock
# after a power failure, zeros can follow the part that was written
_HALF_A_LINE = re.compile(rb"([0-9a-f]{0,8}|[0-9a-f]{8} (\{[\x20-\x7e]*)?)\x00*")

PUT_BACK = (
    "Put it back, from where it was moved to or from a backup, and run the same command again."
)


def encode(plain: Mapping[str, Any], before: int = 0) -> bytes:
    """The line of a JSON object.

    ``before`` is the checksum of the line before it.
    """
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text, before), text)


def decode(line: bytes, before: int = 0) -> dict[str, Any] | None:
    """The JSON object of a line, or None if the line is damaged."""
    text = line[9:].removesuffix(b"\n")
    if not _is_intact(line, before):
        return None
    try:
        return dict(parse(text.decode()))
    except (TypeError, ValueError):
        return None


def _is_intact(line: bytes, before: int) -> bool:
    return line[:9] == b"%08x " % zlib.crc32(line[9:].removesuffix(b"\n"), before)


def entry_at(file: IO[bytes], place: int) -> Event:
    """The entry of the line that begins at a place where a `JournalReading` has found one."""
    file.seek(place)
    return from_json(parse(file.readline()[9:]))


@dataclass(frozen=True)
class Contents:
    """What a journal holds."""

    # the oldest one at the start, without the line that holds the format and what was skipped
    entries: list[Event]
    length: int = 0  # bytes of all whole lines
    checksum: int = 0  # of the last line; the next one continues it
    torn: int = 0  # bytes of half a line at the end, which was never committed


def read(path: Path, skipped: tuple[type[Event], ...] = ()) -> Iterator[Event]:
    """The entries of a journal, oldest first; errors as for `JournalReading`."""
    return iter(scan(path, skipped=skipped).entries)


@contextmanager
def no_collection() -> Iterator[None]:
    """Within the block, Python does not look for garbage.

    What is read stays, and looking through all of it again and again takes as long as reading.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class JournalReading:
    """The entries of a journal, oldest first, none of which is held; safe while a run is writing.

    Parameters
    ----------
    path : Path
    length, checksum : int
        Those of an earlier reading: only the entries after it are read. Whether the bytes
        before are still the same is for the caller to know; an error may name another line.
    digest : hash of hashlib, optional
        Takes every whole line that is read.
    skipped : tuple of classes
        Of entries that are passed over: their checksums are compared, and nothing else.

    Attributes
    ----------
    place : int
        Where the line of the latest entry begins.
    length, checksum, torn : int
        As in `Contents`, of what was read so far.

    Raises
    ------
    DataError
        For a damaged line, with its number; for missing committed lines; for a mark without a
        journal; and for a format or a kind of entry that this version does not know. Half a line
        at the very end is what a killed writer leaves: it was never committed and is passed over.
    """

    def __init__(
        self,
        path: Path,
        length: int = 0,
        checksum: int = 0,
        digest: hashlib._Hash | None = None,
        skipped: tuple[type[Event], ...] = (),
    ) -> None:
        self.path = path
        self.place = 0
        self.length = length
        self.checksum = checksum
        self.torn = 0
        self._digest = digest
        self._skipped = tuple(b'{"type":"%s",' % KINDS[kind].encode() for kind in skipped)

    def __iter__(self) -> Iterator[Event]:
        path = self.path
        require_regular(path)
        require_regular(mark_of(path))
        # before the lines: a writer may add some meanwhile
        committed, mark_checksum = _read_mark(path)
        if 0 < committed <= self.length and (committed, mark_checksum) != (
            self.length,
            self.checksum,
        ):
            raise _damaged(path, 1)  # the mark is compared with its line, which is not read
        try:
            file = path.open("rb")
        except FileNotFoundError:
            if not committed:
                return
            raise DataError(
                f"'{path}' is missing, but {committed} bytes were committed to it. {PUT_BACK} To "
                f"compute everything again, delete '{mark_of(path)}'."
            ) from None
        number = int(self.length > 0)
        with file:
            file.seek(self.length)
            for line in file:
                if not line.endswith(b"\n"):
                    self._require_half(line, number + 1)
                    self.torn = len(line)
                    break
                number += 1
                self.place = self.length
                entry = self._entry(line, number)
                self.length, self.checksum = self.length + len(line), int(line[:8], 16)
                if self._digest:
                    self._digest.update(line)
                if self.length == committed and self.checksum != mark_checksum:
                    raise _damaged(path, number)
                if entry is not None:
                    yield entry
        if self.length < committed:
            raise DataError(
                f"'{path}' ends after line {number}, but {committed - self.length} "
                "more bytes were committed: it was cut. Restore it from a backup; or delete "
                f"'{mark_of(path)}' to continue from here: the missing results are computed again."
            )

    def _require_half(self, line: bytes, number: int) -> None:
        # a committed line that lost its line feed is damage
        if not _HALF_A_LINE.fullmatch(line) or decode(line[:-1], self.checksum) is not None:
            raise _damaged(self.path, number)

    def _entry(self, line: bytes, number: int) -> Event | None:
        """The entry of a whole line; None for the format, and for what is skipped."""
        if line.startswith(self._skipped, 9) and _is_intact(line, self.checksum):
            return None
        plain = decode(line, self.checksum)
        if plain is None:
            raise _damaged(self.path, number)
        if number == 1:
            if plain != _FIRST:
                raise DataError(
                    f"'{self.path}' begins with {plain!s:.100}, and this version of daskmetrics "
                    f"reads format {FORMAT}. {OTHER_VERSION}"
                )
            return None
        try:
            return from_json(plain)
        except ValueError as error:
            raise DataError(
                f"'{self.path}' has in line {number} what this version of daskmetrics cannot "
                f"read, {error}. {OTHER_VERSION}"
            ) from None


@no_collection()
def scan(path: Path, skipped: tuple[type[Event], ...] = ()) -> Contents:
    """Everything that a journal holds, nothing if it is new; errors as for `JournalReading`."""
    reading = JournalReading(path, skipped=skipped)
    entries = list(reading)
    return Contents(entries, reading.length, reading.checksum, reading.torn)


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
    skipped : tuple of classes
        Of entries that stay in the file alone, and are read from there (`JournalReading`).

    Attributes
    ----------
    entries : list of Event
        Without those that are skipped.
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
    >>> from daskmetrics.domain.events import UnitsRetried
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Journal(folder / "journal.jsonl", folder / "lock") as journal:
    ...     journal.append(UnitsRetried(["a"]))
    >>> list(read(folder / "journal.jsonl"))
    [UnitsRetried(keys=['a'])]
    """

    def __init__(self, path: Path, lock: Path, skipped: tuple[type[Event], ...] = ()) -> None:
        self.path = path
        self._skipped = skipped
        with room_for(f"the journal '{path}'"), ExitStack() as stack:
            self._run_lock = RunLock(lock)
            stack.callback(self._run_lock.close)
            contents = scan(path, skipped)
            self._file = _open_at(path, contents)
            stack.callback(os.close, self._file)
            status = os.fstat(self._file)
            self._mark = opened(mark_of(path), os.O_WRONLY | os.O_CREAT)
            stack.pop_all()
        self._identity = status.st_dev, status.st_ino
        self.entries = contents.entries
        self._checksum = contents.checksum
        self._safe = contents.length  # bytes that are on the disk
        self._tail = b""  # the lines after those, which wait for the disk
        self._writing = False  # an append has begun: what follows the safe bytes is not known
        self._commit_tail()
        self.notices = self._run_lock.notices
        if contents.torn:
            self.notices.append(
                f"Dropped half a line ({contents.torn} bytes) at the end of '{path}', which was "
                "never committed."
            )

    def append(self, *entries: Event, wait: bool = True) -> None:
        """Write entries and wait until they are on disk, which commits them.

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
            If the journal was deleted, replaced or cut meanwhile.
        LockedError
            If the run was taken from this process.
        """
        objects = [to_json(entry) for entry in entries]
        if not (self._safe or self._tail):
            objects.insert(0, _FIRST)
        checksum = self._checksum
        lines = []
        for plain in objects:
            lines.append(encode(plain, checksum))
            checksum = int(lines[-1][:8], 16)
        text = b"".join(lines)
        with room_for(f"the journal '{self.path}'"):
            size = self._require_in_place()
            unwritten = text
            if self._writing:
                # the last append failed or was interrupted; a disk that failed may have dropped all
                # that was not safe, so that it is written again
                unwritten = self._tail + text
                if os.fstat(self._file).st_size > self._safe:  # otherwise it would grow by zeros
                    os.ftruncate(self._file, self._safe)
            elif size > self._safe + len(self._tail):
                raise LockedError(
                    f"Another process wrote to '{self.path}'. This one stops, so that lines do not "
                    "mix."
                )
            self._writing = True
            while unwritten:  # a nearly full disk takes a part
                unwritten = unwritten[os.write(self._file, unwritten) :]
            if wait:
                os.fsync(self._file)
            self._tail, self._checksum, self._writing = self._tail + text, checksum, False
        if wait:
            with suppress(StorageError):  # they are committed; the next append compares again
                self._require_in_place()
            self._commit_tail()
        self.entries.extend(entry for entry in entries if not isinstance(entry, self._skipped))

    def _require_in_place(self) -> int:
        """The size of the file at the path.

        DataError if it is not the open one, or was cut, and LockedError if the run was taken.
        """
        with room_for(f"the journal '{self.path}'"):
            try:
                status = self.path.stat()
            except FileNotFoundError:
                raise DataError(
                    f"The journal '{self.path}' was removed: stopped. {PUT_BACK}"
                ) from None
            self._run_lock.check()
        expected = self._safe
        if not self._writing:
            expected += len(self._tail)
        if (status.st_dev, status.st_ino) == self._identity and status.st_size >= expected:
            return status.st_size
        raise DataError(f"The journal '{self.path}' was replaced or cut: stopped. {PUT_BACK}")

    def _commit_tail(self) -> None:
        self._safe += len(self._tail)
        self._tail = b""
        text = b"%016x %08x" % (self._safe, self._checksum)
        with suppress(OSError):  # the disk is full: the mark lags behind
            os.pwrite(self._mark, b"%s %08x\n" % (text, zlib.crc32(text)), 0)

    def records(self) -> Iterator[Record]:
        """The records that count, oldest first (`records`)."""
        return records(self.entries)

    def close(self) -> None:
        """Commit what was appended without waiting, and release the run."""
        # the disk is full or gone, or another process has the run
        with suppress(OSError, DaskmetricsError):
            if self._tail and not self._writing:
                self._require_in_place()
                os.fsync(self._file)
                self._commit_tail()
        os.close(self._mark)
        os.close(self._file)
        self._run_lock.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:  # after the last commit, too
                self._require_in_place()
        finally:
            self.close()


def mark_of(path: Path) -> Path:
    """The file of the mark of a journal; it has a checksum, too."""
    return path.with_suffix(".mark")


def _read_mark(path: Path) -> tuple[int, int]:
    """Length and last checksum of a journal after its last commit.

    Zeros if there is no intact mark.
    """
    with suppress(OSError, ValueError):
        text, _, checked = mark_of(path).read_bytes().rstrip(b"\n").rpartition(b" ")
        if checked == b"%08x" % zlib.crc32(text):
            length, checksum = text.split()
            return int(length, 16), int(checksum, 16)
    return 0, 0


def _open_at(path: Path, contents: Contents) -> int:
    if contents.torn or contents.length > _read_mark(path)[0]:
        # a killed writer leaves half a line; and, if its `fsync` failed, lines that are in memory
        # and not on the disk: what was read is written as a new file
        with suppress(FileNotFoundError):
            atomic_write(path, path.read_bytes()[: contents.length])
    file = opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    with ExitStack() as stack:
        stack.callback(os.close, file)
        if os.fstat(file).st_size != contents.length:
            raise DataError(f"'{path}' was changed while it was opened. {PUT_BACK}")
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)  # otherwise a power failure can remove the name of the file
        os.close(folder)
        stack.pop_all()
    return file


class RunLock:
    """The exclusive right to drive a run until it is released.

    Raises LockedError, naming the holder, if it is taken.

    The kernel locks the file ``lock``; the owner file lies beside it (`owner_file`).
    """

    def __init__(self, lock: Path) -> None:
        self.path = owner_file(lock)
        self.holder = Holder.this_process()
        self._text = json.dumps(asdict(self.holder)).encode()
        self.notices: list[str] = []  # whose lock was taken over
        with ExitStack() as stack:
            self._lock = _flock(lock)
            stack.callback(os.close, self._lock)
            for _ in range(3):  # another process may take over the same lock
                before = _read(self.path)
                if before is not None:
                    if not before.is_dead:
                        raise _locked(self.path, before)
                    self.notices = [f"Took the run over from {before}, which has ended."]
                    _remove(self.path, before)
                if _create(self.path, self.holder.nonce, self._text):
                    stack.pop_all()
                    return
            raise _locked(self.path, _read(self.path))

    def check(self) -> None:
        """Raise LockedError if this process does not hold the lock any more.

        ``unlock`` or another process took it.
        """
        with suppress(FileNotFoundError):
            if self.path.read_bytes() == self._text:  # the usual case, at every commit
                return
        holder = _read(self.path)
        if holder is None or holder.nonce != self.holder.nonce:
            raise LockedError(
                f"The lock '{self.path}' was removed (daskmetrics runs unlock) and is held by "
                f"{holder or 'no one'} now. This process stops, so that only one process writes."
            )

    def close(self) -> None:
        """Release the lock for the next driver."""
        os.close(self._lock)  # first: to check takes a descriptor, of which there may be no other
        # this process ends, so its lock does not count any more
        with suppress(LockedError, OSError):
            self.check()
            self.path.unlink(missing_ok=True)


def owner_file(lock: Path) -> Path:
    """The owner file that belongs to a lock file."""
    return lock.with_name(lock.name + ".owner")


def holder(lock: Path, dead: bool = False) -> str | None:
    """The process that drives the run, or None.

    It may have ended if it is of another machine.

    With ``dead``, the one that drove it last and ended without releasing it, as a killed one does.
    """
    owner = _read(owner_file(lock))
    if owner is None or owner.is_dead != dead:
        return None
    return str(owner)


def unlock(lock: Path) -> str | None:
    """Remove the lock of a process that has ended and return its holder.

    Raises LockedError if that is alive here.
    """
    owner = _read(owner_file(lock))
    if owner is None:
        return None
    if not owner.is_elsewhere and not owner.is_dead:
        raise LockedError(
            f"The run in '{lock.parent}' is being driven by {owner}, which is alive. Stop it first."
        )
    _remove(owner_file(lock), owner)
    return str(owner)


def _locked(path: Path, by: Holder | None) -> LockedError:
    run = path.parent
    text = f"The run in '{run}' is being driven by {by or 'another process'}."
    if by is None or not by.is_elsewhere:
        remedy = "Wait for it, or stop it."
        if by and by.pid == os.getpid():
            remedy = (
                "That is this process: call stop() or wait() of the run that it drives in the "
                "background, or start the process again."
            )
        return LockedError(f"{text} {remedy}")
    return LockedError(
        f"{text} Whether that process is alive is not visible from here: if it has ended, remove "
        f"its lock with: daskmetrics runs unlock {run}"
    )


def _flock(lock: Path) -> int:
    file = opened(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_FLOCK:
            return file  # the owner file is the only lock
        os.close(file)
        if not isinstance(error, BlockingIOError):
            raise
        raise _locked(owner_file(lock), _read(owner_file(lock))) from None
    return file


def _read(path: Path) -> Holder | None:
    try:
        return build(Holder, parse(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError):
        # unreadable: treat it as of another machine, so that only `unlock` removes it
        since = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(path.stat().st_mtime))
        return Holder(0, "an unknown machine", since, None, "")


def _create(path: Path, nonce: str, text: bytes) -> bool:
    temporary = path.with_name(f"{path.name}.{nonce}")
    try:
        _write(temporary, text)
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        try:
            _write(path, text)
        except FileExistsError:
            return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _write(path: Path, text: bytes) -> None:
    file = opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        while text:  # a nearly full disk takes a part
            text = text[os.write(file, text) :]
        os.fsync(file)
    except OSError:
        path.unlink()  # an empty owner file would name no process
        raise
    finally:
        os.close(file)


def _remove(path: Path, expected: Holder) -> None:
    """Remove the owner file of this holder, but not one that another process created meanwhile."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if _read(aside) != expected:
        with suppress(OSError):
            os.link(aside, path)
    aside.unlink()
