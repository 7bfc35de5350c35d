"""Where a run keeps its files."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from daskmetrics.core.errors import ConfigError


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run; everything that is known of the run lies below it."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration in force, presets and profiles written out."""
        return self.path / "config.yaml"

    @property
    def journal(self) -> Path:
        """The truth: every decision and every result, one checksummed line each."""
        return self.path / "journal.jsonl"

    @property
    def store(self) -> Path:
        """The arrays, as a Zarr store that xarray opens."""
        return self.path / "store.zarr"

    @property
    def states(self) -> Path:
        """Pooled states, where the configuration keeps them."""
        return self.path / "states.zarr"

    @property
    def embeddings(self) -> Path:
        """Embeddings that no worker's memory holds; there only while the run is driven."""
        return self.path / "embeddings"

    @property
    def corpus(self) -> Path:
        """The prompts that were measured."""
        return self.path / "corpus.json"

    @property
    def report(self) -> Path:
        return self.path / "report"

    @property
    def plan(self) -> Path:
        """What was predicted of the run, if it was planned."""
        return self.path / "plan.json"

    @property
    def driver(self) -> Path:
        """Files of the Slurm job that drives the run, if it was submitted."""
        return self.path / "driver"

    @property
    def lock(self) -> Path:
        """Locked by the kernel while the run is driven; ``lock.lease`` beside it says by whom."""
        return self.path / "lock"

    def create(self) -> RunFolder:
        """Make the folder, private to its owner; an older one is made private."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        return self

    def must_exist(self) -> RunFolder:
        """Itself, if a run lies here.

        Raises
        ------
        ConfigError
            If not, naming the runs that lie beside it.
        """
        if not self.journal.is_file():
            parent = self.path.parent
            beside = sorted(p.parent.name for p in parent.glob("*/journal.jsonl")) if parent.is_dir() else []
            there = f" Runs in '{parent}': {', '.join(beside)}." if beside else " Start one with: daskmetrics run"
            raise ConfigError(f"No run in '{self.path}'.{there}")
        return self


@contextmanager
def private() -> Iterator[None]:
    """What is written meanwhile, also by processes that are started meanwhile, is for its owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def atomic_write(path: Path, content: str | bytes) -> Path:
    """Write a file, readable by its owner alone, that is either complete or as it was before; returns its path.

    Examples
    --------
    >>> import tempfile
    >>> atomic_write(Path(tempfile.mkdtemp()) / "a.txt", "whole").read_text()
    'whole'
    """
    with private(), replaces(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def cache_folder() -> Path:
    """Where suites trained for the demo are kept: ``$DASKMETRICS_CACHE``, or ``~/.cache/daskmetrics``."""
    own = os.environ.get("DASKMETRICS_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(own or f"{base}/daskmetrics").expanduser()


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
