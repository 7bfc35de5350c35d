"""Checkpoints of the hub on a disk that is smaller than the suite: fetched before they are needed,
removed after.

A checkpoint has a folder beside those of its model, and a file that is locked: shared by who uses
the checkpoint, and exclusively by who downloads or removes it. The kernel releases the locks of a
killed process. Space is reserved before a download begins, so that all folders together never
exceed the limit.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Self

from daskmetrics.checkpoints.download import DownloadStopped, Part, Remote, fetch, parts_of
from daskmetrics.checkpoints.locations import Location
from daskmetrics.core.errors import NO_ROOM, DaskmetricsError, DataError
from daskmetrics.core.files import atomic_write, private
from daskmetrics.core.machine import variable
from daskmetrics.core.results import Download

POLL = 0.1  # seconds between two looks at files
AT_ONCE = 2  # downloads of the driver
LONG = 5.0  # seconds of a pause that the user gets a message about
FULL = 5.0  # seconds after which a full disk is tried again

OnMessage = Callable[[str], None]

_PARTS: dict[Location, tuple[Part, ...]] = {}


class _CheckpointFiles:
    """The files of one checkpoint, and those beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.complete = folder / ".complete"  # bytes and seconds of the download; written last
        self.used = folder / ".used"  # written when it was used
        self.reserved = folder / ".reserved"  # bytes of the download that has begun
        beside = folder.parent / ".state"
        self.lock = beside / f"{folder.name}.lock"
        # written by a worker that waits for the driver
        self.wanted = beside / f"{folder.name}.wanted"
        self.failed = beside / f"{folder.name}.failed"  # why the driver could not download it

    @property
    def bytes(self) -> int:
        """Bytes of the files, also of those that are not downloaded yet."""
        with suppress(OSError, ValueError, KeyError):
            return int(json.loads(self.complete.read_bytes())["bytes"])
        with suppress(OSError, ValueError):
            return int(self.reserved.read_bytes())
        with suppress(OSError):  # it is being removed
            return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())
        return 0

    def remove(self) -> bool:
        """Remove the files, unless the checkpoint is in use."""
        with _locked(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB) as is_free:
            if is_free:
                # first: what is left of a killed removal is not complete
                self.complete.unlink(missing_ok=True)
                shutil.rmtree(self.folder, ignore_errors=True)
        return is_free


@contextmanager
def held(location: Location, following: Location | None = None) -> Iterator[Download | None]:
    """Keep a checkpoint's files on this machine within the block; waits for their download.

    Gives what the download took, and the seconds that the caller waited for it; None for a
    checkpoint whose space is not limited. Workers that download themselves begin with the
    ``following`` checkpoint meanwhile. A `DataError` says why it cannot be downloaded.
    """
    if location.rolling is None:
        yield None
        return
    entry = _CheckpointFiles(Path(location.rolling.folder))
    began = time.monotonic()
    with _complete(location, entry):
        try:
            waited = round(time.monotonic() - began, 3)
            taken = Download(**json.loads(entry.complete.read_bytes()), waited=waited)
            if following and following.rolling and following.rolling.by == "workers":
                threading.Thread(target=_ahead, args=(following,), daemon=True).start()
            yield taken
        finally:
            with suppress(OSError):
                entry.used.touch()
                os.utime(entry.used, ns=(time.time_ns(),) * 2)  # the kernel's own times are coarse


@contextmanager
def _complete(location: Location, entry: _CheckpointFiles) -> Iterator[None]:
    """Hold the shared lock of a checkpoint that is complete; waits for that."""
    assert location.rolling is not None
    while True:
        with _locked(entry.lock, fcntl.LOCK_SH):
            if entry.complete.is_file():
                yield
                return
        if location.rolling.by == "workers":
            download(location)
        else:
            _ask_driver(location, entry)


def _ask_driver(location: Location, entry: _CheckpointFiles) -> None:
    entry.failed.unlink(missing_ok=True)
    try:
        while not entry.complete.is_file():
            if entry.failed.is_file():
                raise DataError(entry.failed.read_text(encoding="utf-8"))
            # again, if a download that began before this one was wanted has failed
            if not entry.wanted.is_file():
                entry.wanted.touch()
            time.sleep(POLL)
    finally:
        entry.wanted.unlink(missing_ok=True)


def _ahead(location: Location) -> None:
    # who needs it tries again and reports what is wrong
    with suppress(DaskmetricsError, OSError):
        download(location, wait=False)


def download(
    location: Location,
    wait: bool = True,
    on_message: OnMessage = lambda text: None,
    on_chunk: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Download a checkpoint into its folder; returns False if there is no space for it and ``wait``
    is false.

    Checkpoints that were used make room, those used longest ago first. With ``wait`` also others do
    that nobody uses.
    """
    rolling = location.rolling
    assert rolling is not None

    def on_wait(reason: str, seconds: float) -> None:
        if seconds >= LONG:
            on_message(f"{reason}; trying again in {seconds:.0f} s")

    entry = _CheckpointFiles(Path(rolling.folder))
    if not wait and not _has_room(entry, rolling.limit):
        return False
    mode = fcntl.LOCK_EX
    if not wait:
        mode |= fcntl.LOCK_NB
    with _locked(entry.lock, mode) as is_free:
        if not is_free or entry.complete.is_file():
            return is_free
        remote = Remote(location.path, rolling.commit, on_wait, on_chunk, sleep)
        if location not in _PARTS:  # kept, since what is at a commit does not change
            _PARTS[location] = parts_of(location, remote)
        files = _PARTS[location]
        size = sum(file.size for file in files)
        while not _reserve(entry, rolling.limit, size, wait):
            if not wait:
                return False
            on_chunk()
            sleep(POLL)
        began = time.monotonic()
        with private():
            for file in files:
                fetch(file, remote, entry.folder)
        taken = {
            "bytes": size,
            "whole": sum(file.at_hub for file in files),
            "seconds": time.monotonic() - began,
        }
        atomic_write(entry.complete, json.dumps(taken))
        return True


def _has_room(entry: _CheckpointFiles, limit: int) -> bool:
    """Whether some space would be free once the checkpoints that were used are removed; nothing is
    removed.
    """
    unused = [other for other in _others(entry) if not other.used.is_file()]
    return sum(other.bytes for other in unused) < limit


def _reserve(entry: _CheckpointFiles, limit: int, size: int, wanted: bool) -> bool:
    """Reserve space for a download, and remove checkpoints to make room for it."""
    with _locked(entry.lock.with_name("space.lock"), fcntl.LOCK_EX):
        others = _others(entry)
        free = limit - size - sum(other.bytes for other in others)
        for victim in _removable(others, wanted):
            if free >= 0:
                break
            freed = victim.bytes
            if victim.remove():
                free += freed
        if free < 0:
            return False
        entry.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(entry.reserved, str(size))
        return True


def _others(entry: _CheckpointFiles) -> list[_CheckpointFiles]:
    folders = entry.folder.parent.glob("[!.]*")
    return [
        _CheckpointFiles(folder) for folder in folders if folder != entry.folder and folder.is_dir()
    ]


def _removable(entries: Sequence[_CheckpointFiles], wanted: bool) -> list[_CheckpointFiles]:
    """Checkpoints in the order in which they make room; those that were not used yet only for a
    ``wanted`` one.
    """
    used = [entry for entry in entries if entry.used.is_file()]
    used.sort(key=lambda entry: _written(entry.used))
    if not wanted:
        return used
    unused = [entry for entry in entries if not entry.used.is_file()]
    # the latest of those that were downloaded ahead is needed last; an interrupted download may be
    # resumed
    ahead = [entry for entry in unused if entry.complete.is_file()]
    ahead.sort(key=lambda entry: -_written(entry.complete))
    interrupted = [entry for entry in unused if not entry.complete.is_file()]
    return [*used, *ahead, *interrupted]


def _written(path: Path) -> float:
    """When a file was written; 0 if it was removed meanwhile."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


@contextmanager
def _locked(path: Path, mode: int) -> Iterator[bool]:
    """Hold a lock on a file, which is created; gives False if another process has it and ``mode``
    does not wait.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        is_free = True
        try:
            fcntl.flock(file, mode)
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(file)


class Downloads:
    """The downloads of the driver, which run beside the work: what a worker waits for, then what is
    needed next.

    As a context manager, it downloads within the block; it does nothing if there is nothing for it
    to download.
    """

    def __init__(self, locations: Iterable[Location], on_message: OnMessage) -> None:
        self._by_folder = {
            location.rolling.folder: location
            for location in locations
            if location.rolling and location.rolling.by == "driver"
        }
        self._ahead: list[str] = []  # folders
        self._running: set[str] = set()
        self._lock, self._stop, self._on_message = threading.Lock(), threading.Event(), on_message
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for folder in self._by_folder:  # of a run that was killed
            _CheckpointFiles(Path(folder)).wanted.unlink(missing_ok=True)
        if not self._by_folder:
            return self
        for number in range(AT_ONCE):
            self._threads.append(
                threading.Thread(target=self._work, name=f"download-{number}", daemon=True)
            )
            self._threads[-1].start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(FULL)

    def expect(self, locations: Iterable[Location]) -> None:
        """Download these next, in this order, as far as there is room."""
        with self._lock:
            for folder in [location.rolling.folder for location in locations if location.rolling]:
                if folder in self._by_folder and folder not in self._ahead:
                    _CheckpointFiles(Path(folder)).used.unlink(missing_ok=True)
                    self._ahead.append(folder)

    def _work(self) -> None:
        while not self._stop.is_set():
            location, wanted = self._next()
            done = location is not None and self._download(location, wanted)
            if not done:
                self._stop.wait(POLL)

    def _next(self) -> tuple[Location | None, bool]:
        """The next checkpoint to download, and whether a worker waits for it."""
        with self._lock:
            for parent in {Path(folder).parent for folder in self._by_folder}:
                for path in sorted((parent / ".state").glob("*.wanted")):
                    folder = str(parent / path.stem)
                    if folder in self._by_folder and folder not in self._running:
                        self._running.add(folder)
                        return self._by_folder[folder], True
            for folder in list(self._ahead):
                if (Path(folder) / ".complete").is_file():
                    self._ahead.remove(folder)
                elif folder not in self._running:
                    self._running.add(folder)
                    return self._by_folder[folder], False
        return None, False

    def _download(self, location: Location, wanted: bool) -> bool:
        assert location.rolling is not None
        entry = _CheckpointFiles(Path(location.rolling.folder))
        done = True
        try:
            done = download(location, wanted, self._on_message, self._on_chunk, self._sleep)
        except DownloadStopped:
            return False
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                self._on_message(
                    f"No room on the disk of '{entry.folder.parent}': downloads wait until"
                    " there is."
                )
                self._stop.wait(FULL)
                done = False
            elif wanted:  # else who needs it asks for it, and gets the reason
                atomic_write(entry.failed, " ".join(str(error).split()) or type(error).__name__)
        finally:
            with self._lock:
                self._running.discard(location.rolling.folder)
                if done and location.rolling.folder in self._ahead:
                    self._ahead.remove(location.rolling.folder)
        if done:
            entry.wanted.unlink(missing_ok=True)
        return done

    def _on_chunk(self) -> None:
        if self._stop.is_set():
            raise DownloadStopped

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise DownloadStopped


def offline_workers(missing: Iterable[Location]) -> AbstractContextManager[None]:
    """Keep new workers from sending requests to the hub, which can take minutes, unless they
    download ``missing``.
    """
    by_driver = all(location.rolling and location.rolling.by == "driver" for location in missing)
    if by_driver:
        return variable("HF_HUB_OFFLINE", "1")
    return nullcontext()


def drop(locations: Iterable[Location]) -> None:
    """Remove the downloaded files of these checkpoints, unless another process uses them."""
    for location in locations:
        if location.rolling and Path(location.rolling.folder).is_dir():
            _CheckpointFiles(Path(location.rolling.folder)).remove()
