"""Checkpoints of the hub on a disk that is smaller than the suite: fetched before they are needed,
removed after.

A checkpoint has a folder beside those of its model, and a file that is locked: shared by who uses
the checkpoint, and exclusively by who downloads or removes it. The kernel releases the locks of a
killed process. Space is reserved before a download begins, so that all folders together never
exceed the limit. The machine that drives the run downloads; its workers ask it by files.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from dask.utils import parse_bytes

from daskmetrics.checkpoints.digests import digest_of
from daskmetrics.checkpoints.hub import Listing, persist
from daskmetrics.config import Model
from daskmetrics.core.errors import (
    NO_ROOM,
    ConfigError,
    DaskmetricsError,
    DataError,
    foreign_errors,
)
from daskmetrics.core.files import atomic_write, cache_folder, opened, private
from daskmetrics.core.keys import Key
from daskmetrics.core.machine import variable
from daskmetrics.core.text import OnMessage, size_text
from daskmetrics.domain.results import Download

POLL = 0.1  # seconds between two looks at files
AT_ONCE = 2  # downloads at a time
FULL = 5.0  # seconds after which a full disk is tried again


@dataclass(frozen=True)
class Rolling:
    """A checkpoint of the hub, here only while it is needed."""

    source: str
    commit: str
    folder: str  # its files while they are here, beside those of other checkpoints of the model
    files: tuple[tuple[str, str, int], ...]  # name, digest and bytes
    limit: int  # bytes of all checkpoints of the model

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(size for _, _, size in self.files)

    @property
    def entry(self) -> CheckpointFiles:
        """Its files on this machine."""
        return CheckpointFiles(Path(self.folder))


def rolling_of(
    model: Model, identity: Key, commit: str, names: Iterable[str], listing: Listing
) -> Rolling:
    """A checkpoint with files of these names and limited space.

    It is a `ConfigError` if the hub did not list them, or they are too large.
    """
    source = str(model.source)
    if not listing:
        raise ConfigError(
            f"Model '{model.name}': the hub did not list the files of {source} at {commit[:7]}, so"
            " that their size is not known. Run the same command again later, or leave out 'disk'."
        )
    files = tuple((name, *listing[name]) for name in sorted(names))
    folder = cache_folder() / "checkpoints" / source.replace("/", "--") / identity
    checkpoint = Rolling(
        source, commit, str(folder.absolute()), files, int(parse_bytes(model.disk))
    )
    if checkpoint.bytes > checkpoint.limit:
        raise ConfigError(
            f"Model '{model.name}': 'disk: {model.disk}' is less than one checkpoint: {source} at"
            f" {commit[:7]} has {size_text(checkpoint.bytes)}. Give at least twice that, so that"
            " the next one is downloaded meanwhile."
        )
    return checkpoint


class DownloadStopped(DaskmetricsError):
    """The run ends: downloads stop where they are."""


class CheckpointFiles:
    """The files of one checkpoint, and those beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.complete = folder / ".complete"  # seconds of the download; written last
        self.used = folder / ".used"  # written when it was used
        self.reserved = folder / ".reserved"  # bytes of the download that has begun
        beside = folder.parent / ".state"
        self.lock = beside / f"{folder.name}.lock"
        # written by a worker that waits for the download
        self.wanted = beside / f"{folder.name}.wanted"
        self.failed = beside / f"{folder.name}.failed"  # why it could not be downloaded

    @property
    def bytes(self) -> int:
        """Bytes of the files, downloaded or not."""
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
def held(rolling: Rolling | None) -> Iterator[Download | None]:
    """Keep a checkpoint's files here within the block.

    It waits for their download. Gives what the download took, and the seconds that the caller
    waited for it; None for a checkpoint whose space is not limited. A `DataError` says why it
    cannot be downloaded.
    """
    if rolling is None:
        yield None
        return
    entry = rolling.entry
    began = time.monotonic()
    while True:
        with _locked(entry.lock, fcntl.LOCK_SH):
            if entry.complete.is_file():
                seconds = json.loads(entry.complete.read_bytes())["seconds"]
                waited = round(time.monotonic() - began, 3)
                try:
                    yield Download(rolling.bytes, seconds, waited)
                finally:
                    with suppress(OSError):
                        entry.used.touch()
                        # the kernel's own times are coarse
                        os.utime(entry.used, ns=(time.time_ns(),) * 2)
                return
        _ask_driver(entry)


def _ask_driver(entry: CheckpointFiles) -> None:
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


def download(
    rolling: Rolling, wait: bool = True, pause: Callable[[float], None] = time.sleep
) -> bool:
    """Download a checkpoint into its folder.

    Returns False if there is no space for it and ``wait`` is false. Checkpoints that were used make
    room, those used longest ago first. With ``wait`` also others do that no one uses. ``pause`` is
    called between steps and may raise to stop.
    """
    entry = rolling.entry
    mode = fcntl.LOCK_EX
    if not wait:
        mode |= fcntl.LOCK_NB
    with _locked(entry.lock, mode) as is_free:
        if not is_free or entry.complete.is_file():
            return is_free
        while not _reserve(rolling, wait):
            if not wait:
                return False
            pause(POLL)
        began = time.monotonic()
        with private():
            _fetch(rolling, pause)
        seconds = time.monotonic() - began
        atomic_write(entry.complete, json.dumps({"seconds": seconds}))
        return True


def _fetch(rolling: Rolling, pause: Callable[[float], None]) -> None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class SilentProgress(tqdm):
        """Shows nothing; called with every block of a file."""

        def __init__(self, *args: Any, **options: Any) -> None:
            options["disable"] = True
            super().__init__(*args, **options)  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            pause(0)

    where = f"{rolling.source} at {rolling.commit[:7]}"
    # halves of files, which the client does not continue in another process
    shutil.rmtree(Path(rolling.folder, ".cache"), ignore_errors=True)
    for name, digest, _ in rolling.files:
        path = Path(rolling.folder, name)
        for _ in range(2):
            if not path.is_file():
                request = partial(
                    hf_hub_download,
                    rolling.source,
                    name,
                    revision=rolling.commit,
                    local_dir=rolling.folder,
                    tqdm_class=SilentProgress,
                )
                persist(request, f"{name} of {where}", pause)
            if digest_of(path, digest) == digest:
                break
            path.unlink()
        else:
            raise DataError(
                f"{name} of {where} was downloaded twice, and its hash is not the one that the hub"
                " lists: something between here and the hub changes files."
                " 'daskmetrics runs retry' tries again."
            )


def _reserve(rolling: Rolling, wanted: bool) -> bool:
    """Make room for a download, and reserve it.

    Checkpoints that were not used yet are removed only for a ``wanted`` one.
    """
    entry = rolling.entry
    with _locked(entry.lock.with_name("space.lock"), fcntl.LOCK_EX):
        folders = entry.folder.parent.glob("[!.]*/")
        others = [CheckpointFiles(path) for path in folders if path != entry.folder]
        free = rolling.limit - rolling.bytes - sum(other.bytes for other in others)
        used = [other for other in others if other.used.is_file()]
        victims = sorted(used, key=lambda other: _written(other.used))
        if wanted:
            # the latest of those that were downloaded ahead is needed last; interrupted downloads,
            # which were never complete, are at the end, since they may go on
            unused = [other for other in others if other not in used]
            victims += sorted(unused, key=lambda other: -_written(other.complete))
        if free + sum(victim.bytes for victim in victims) < 0:
            return False
        for victim in victims:
            if free >= 0:
                break
            freed = victim.bytes
            if victim.remove():
                free += freed
        if free < 0:
            return False
        entry.folder.mkdir(parents=True, exist_ok=True)
        atomic_write(entry.reserved, str(rolling.bytes))
        return True


def _written(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


@contextmanager
def _locked(path: Path, mode: int) -> Iterator[bool]:
    """Hold a lock on a file, which is created.

    Gives False if another process has it and ``mode`` does not wait.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = opened(path, os.O_RDWR | os.O_CREAT)
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
    """The downloads of the driver, beside the work.

    First what a worker waits for, then what is needed next. As a context manager, it downloads
    within the block; it does nothing if there is nothing for it to download.
    """

    def __init__(
        self, checkpoints: Iterable[Rolling | None], on_message: OnMessage = print
    ) -> None:
        self._by_folder = {rolling.folder: rolling for rolling in checkpoints if rolling}
        self._ahead: list[str] = []  # folders
        self._running: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._on_message = on_message
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for rolling in self._by_folder.values():  # of a run that was killed
            rolling.entry.wanted.unlink(missing_ok=True)
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

    def expect(self, checkpoints: Iterable[Rolling | None]) -> None:
        """Download these next, in this order, while there is room."""
        with self._lock:
            for rolling in checkpoints:
                if rolling and rolling.folder not in self._ahead:
                    rolling.entry.used.unlink(missing_ok=True)
                    self._ahead.append(rolling.folder)

    def _work(self) -> None:
        while not self._stop.is_set():
            done = False
            try:
                with foreign_errors("A download failed", DaskmetricsError):
                    rolling, wanted = self._next()
                    done = rolling is not None and self._download(rolling, wanted)
            except DaskmetricsError as error:
                self._on_message(f"{error} It is tried again.")
            if not done:
                self._stop.wait(POLL)

    def _next(self) -> tuple[Rolling | None, bool]:
        """The next checkpoint, and whether a worker waits for it."""
        with self._lock:
            for parent in {Path(folder).parent for folder in self._by_folder}:
                for path in sorted((parent / ".state").glob("*.wanted")):
                    folder = str(parent / path.stem)
                    if folder in self._by_folder and folder not in self._running:
                        self._running.add(folder)
                        return self._by_folder[folder], True
            for folder in list(self._ahead):
                if self._by_folder[folder].entry.complete.is_file():
                    self._ahead.remove(folder)
                elif folder not in self._running:
                    self._running.add(folder)
                    return self._by_folder[folder], False
        return None, False

    def _download(self, rolling: Rolling, wanted: bool) -> bool:
        entry = rolling.entry
        done = False
        try:
            done = download(rolling, wanted, self._pause)
        except DownloadStopped:
            return False
        except Exception as error:
            done = not (isinstance(error, OSError) and error.errno in NO_ROOM)
            if not done:
                self._on_message(
                    f"No room on the disk of '{entry.folder.parent}': downloads wait until"
                    " there is."
                )
                self._stop.wait(FULL)
            elif wanted:  # else who needs it asks for it, and gets the reason
                reason = " ".join(str(error).split())
                atomic_write(entry.failed, reason or type(error).__name__)
        finally:
            with self._lock:
                self._running.discard(rolling.folder)
                if done and rolling.folder in self._ahead:
                    self._ahead.remove(rolling.folder)
        if done:
            entry.wanted.unlink(missing_ok=True)
        return done

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise DownloadStopped


def offline_workers(missing: Iterable[Rolling | None]) -> AbstractContextManager[None]:
    """Keep new workers from sending requests to the hub.

    These can take minutes. Workers that download what is ``missing`` send them.
    """
    if all(missing):
        return variable("HF_HUB_OFFLINE", "1")
    return nullcontext()


def drop(checkpoints: Iterable[Rolling | None]) -> None:
    """Remove downloaded checkpoints that no other process uses."""
    for rolling in checkpoints:
        if rolling and Path(rolling.folder).is_dir():
            rolling.entry.remove()
