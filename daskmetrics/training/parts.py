"""Files and folders that appear as a whole, and what is left of those that a killed process was writing.

A part is locked by the process that writes it, and the kernel frees the lock with the process: whatever can be locked
belongs to nobody any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

SUFFIX = ".part"


@contextmanager
def appears(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes its name only when the block is done; the first to finish wins.

    Examples
    --------
    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "step8"
    >>> with appears(place) as part:
    ...     _ = (part / "a.txt").write_text("whole")
    ...     place.exists()
    False
    >>> (place / "a.txt").read_text()
    'whole'
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    part, lock = _own(folder)
    try:
        yield part
        with suppress(OSError):  # it is there already: another process wrote the same content
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        os.close(lock)


@contextmanager
def replaces(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into that takes its name, from an older one if there is one, when the block is done."""
    part = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    try:
        with _locked_file(part) as file:
            yield file
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove what processes that are gone were writing in a folder."""
    for part in folder.glob(f".*{SUFFIX}"):
        lock = _locked(part)
        if lock is not None:
            shutil.rmtree(part) if part.is_dir() else part.unlink(missing_ok=True)
            os.close(lock)


def _locked_file(part: Path) -> IO[bytes]:
    """A new file, locked; one that was swept before it was locked is made again."""
    while True:
        file = part.open("wb")
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if part.exists():
            return file
        file.close()


def _own(folder: Path) -> tuple[Path, int]:
    """A new folder, locked; one that was swept before it was locked is made again."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}{SUFFIX}")
    while True:
        part.mkdir(exist_ok=True)
        lock = _locked(part)
        if lock is not None and part.is_dir():
            return part, lock
        if lock is not None:
            os.close(lock)


def _locked(part: Path) -> int | None:
    """The lock of a part, or None if somebody has it or the part is gone."""
    try:
        file = os.open(part, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
