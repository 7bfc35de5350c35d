"""The files of a run, and writing a file or folder completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from daskmetrics.core.errors import ConfigError, DataError, did_you_mean

RUNS = Path("runs")  # where runs are kept by name, below the current folder


class _Inside:
    """A file or folder inside a `RunFolder`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, owner: object = None) -> Path:
        return folder.path / self._name


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run, and the paths of its files."""

    path: Path

    config = _Inside("config.yaml")  # the configuration, with presets and profiles written out
    # every decision and every result, one line with a checksum each; all other files can be
    # computed from it
    journal = _Inside("journal.jsonl")
    mark = _Inside("journal.mark")  # how long the journal was after the last commit
    items = _Inside("items.jsonl")  # of a map: what the function is applied to
    summary = _Inside("summary.json")  # of a map: what `status` goes on from, with a digest
    store = _Inside("store.zarr")  # the arrays, a Zarr store that xarray opens
    # embeddings that do not fit into the memory of workers; removed when the run ends
    embeddings = _Inside("embeddings")
    corpus = _Inside("corpus.json")  # the prompts that were measured
    report = _Inside("report")  # the report: one HTML page, figures and tables
    events = _Inside("events.jsonl")  # of a watch: what happened, for other programs; docs/watch.md
    # of a map while it runs: where its scheduler is, and the keys that admit workers
    scheduler = _Inside("scheduler.json")
    # what the workers used over time: CPU, memory, network, disk, GPU
    telemetry = _Inside("telemetry.jsonl")
    training = _Inside("training")  # what the programs that train print, by the model's name
    export = _Inside("export-mteb")  # the scores as files of mteb
    driver = _Inside("driver")  # files of the Slurm job that drives the run, if it was submitted
    # locked by the kernel while a process drives the run; ``lock.owner`` beside it names the
    # process
    lock = _Inside("lock")

    def create(self) -> RunFolder:
        """Create the folder, private to its owner, or take that of a run.

        It is a ConfigError if that fails, or if the folder holds other files and no run.
        """
        # in a folder that others share
        if self.path.is_symlink() and self.path.lstat().st_uid != os.getuid():
            raise ConfigError(
                f"The run folder '{self.path}' is a link of another user. Choose another --folder."
            )
        self._require_no_links()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (self.lock.exists() or self.journal.exists()) and any(self.path.iterdir()):
                raise ConfigError(
                    f"'{self.path}' holds other files and no run. Choose a new or empty --folder."
                )
            self.path.chmod(0o700)
            os.close(opened(self.lock, os.O_WRONLY | os.O_CREAT))  # from now on it is that of a run
        except OSError as error:
            raise ConfigError(
                f"The run folder '{self.path}' cannot be created or written: {error.strerror}. "
                "Choose another --folder."
            ) from error
        require_regular(self.path)
        return self

    @contextmanager
    def unless_begun(self) -> Iterator[None]:
        """Remove a new folder again if the block ends before a run has begun in it."""
        is_new = not self.path.exists() or not any(self.path.iterdir())
        has_parent = self.path.parent.exists()
        try:
            yield
        finally:
            if is_new and not self.journal.exists():
                shutil.rmtree(self.path, ignore_errors=True)
                if not has_parent:
                    with suppress(OSError):  # another run is there meanwhile
                        self.path.parent.rmdir()

    def must_exist(self) -> RunFolder:
        """The folder itself, if it holds a run.

        Otherwise it is a ConfigError, which names the runs that exist; and a DataError if one of
        its files is a pipe, a device or a link.

        A run whose journal is gone has its mark: who reads the journal says that it is missing.
        """
        require_regular(self.path)
        self._require_no_links()
        if self.journal.is_file() or self.mark.is_file():
            return self
        name = self.path.name
        for folder in (self.path.parent, RUNS):
            names = run_names(folder)
            if names:
                question = did_you_mean(name, names)
                if name in names:
                    question = f" Did you mean '{folder / name}'?"
                raise ConfigError(
                    f"No run in '{self.path}'.{question} Runs in '{folder}': {', '.join(names)}."
                )
        raise ConfigError(f"No run in '{self.path}'. Start one with: daskmetrics run")

    def _require_no_links(self) -> None:
        """A run of somebody else is used below its folder alone."""
        for entry in vars(RunFolder).values():
            if isinstance(entry, _Inside) and (path := entry.__get__(self)).is_symlink():
                raise _not_ours(path)


def _not_ours(path: Path | str) -> DataError:
    return DataError(
        f"'{path}' is a link, a pipe, a socket or a device in the place of a file of ours, and is "
        "not used. Remove it."
    )


def opened(path: Path | str, flags: int) -> int:
    """A file of ours, private to its owner: an opener for `open`.

    All files that grow, or keep their name, are opened here: it follows no link, and waits for no
    pipe.

    Raises
    ------
    DataError
        If something else has its name.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "log").symlink_to(folder / "elsewhere")
    >>> with open_own(folder / "log", "ab") as file:
    ...     file.write(b"line")
    Traceback (most recent call last):
    daskmetrics.core.errors.DataError: '...log' is a link, a pipe, ...
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _not_ours(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _not_ours(path)
    return file


def open_own(path: Path, mode: str) -> IO[bytes]:
    """`opened` without a buffer, so that a line is one write.

    Modes are ``ab`` and ``wb``.
    """
    return cast("IO[bytes]", open(path, mode, buffering=0, opener=opened))


@contextmanager
def native_errors(kind: type[Exception], path: Path) -> Iterator[None]:
    """Turn an error of a library in Rust into the system's error that it quotes.

    >>> with native_errors(Exception, Path("model.safetensors")):
    ...     raise Exception("I/O error: No space left on device (os error 28)")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'model.safetensors'
    """
    try:
        yield
    except kind as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def require_unshared(folder: Path) -> None:
    """Check that no other user can replace files in a folder.

    Raises
    ------
    ConfigError
        If every user may, or another one owns it.
    """
    for place in (folder := folder.resolve(), *folder.parents):
        status = place.stat()
        # with the sticky bit, as /tmp has it, only the owners may: of a file, and of the folder
        is_open = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if is_open or (place == folder and status.st_uid not in (0, os.getuid())):
            raise ConfigError(
                f"Other users of this machine can replace files in '{place}', where keys or "
                "temporary files would be written. Choose another folder (TMPDIR, cluster.logs), "
                f"or make it your own: chmod 700 '{place}'"
            )


CLOSED = -1  # in place of a file descriptor


class OwnFolder:
    """A new folder that no other user can read or replace.

    Those with the same prefix that killed processes have left in the same place are removed first:
    the lock of a process ends with it.
    """

    def __init__(self, parent: Path, prefix: str) -> None:
        require_unshared(parent)
        for path in parent.glob(f"{prefix}*"):
            with suppress(FileNotFoundError):  # a process that ends removes its own meanwhile
                if path.lstat().st_uid == os.getuid():
                    self._remove_left(path)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            file = self.path / "lock"
            self._lock = opened(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.exists():  # otherwise it was removed before it was locked
                return
            os.close(self._lock)

    @staticmethod
    def _remove_left(path: Path) -> None:
        lock = locked(path / "lock", os.O_WRONLY)
        if lock is not None:  # otherwise it is in use, or this file system has no locks
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)

    def remove(self) -> None:
        """Remove the folder; a second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock != CLOSED:
            os.close(self._lock)
        self._lock = CLOSED


NODE_TEMPORARY = "DASKMETRICS_NODE_TMPDIR"
"""Variable of a worker with the folder of temporary files that all processes of its node share."""


def node_temporary() -> Path:
    """The folder of temporary files that a node's processes share."""
    return Path(os.environ.get(NODE_TEMPORARY) or tempfile.gettempdir())


def temporary_variables(folder: str) -> Mapping[str, str]:
    """The variables that put new processes' temporary files into a folder."""
    return {
        "TMPDIR": folder,
        "DASK_TEMPORARY_DIRECTORY": folder,
        NODE_TEMPORARY: str(node_temporary()),
    }


@contextmanager
def temporary_folder(parent: str | None = None) -> Iterator[str]:
    """A private folder for temporary files, removed at the end."""
    place = Path(parent or node_temporary())
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = OwnFolder(place, "daskmetrics-run-")
    try:
        yield str(folder.path)
    finally:
        folder.remove()


def require_regular(path: Path, below: bool = False) -> None:
    """Check that a file, or each entry of a folder, is regular.

    Reading a pipe would wait for ever. ``below`` includes the folders in it, and refuses links.

    Raises
    ------
    DataError
        If one is a pipe, a socket or a device.
    """
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            return
        if not stat.S_ISDIR(mode):
            raise DataError(
                f"'{path}' is a pipe, a socket or a device, which is not read. Put a regular file "
                "there, or remove it."
            )
        with os.scandir(path) as entries:
            for entry in entries:
                # the listing has the kind: only links, pipes and devices need a look of their own
                is_plain = entry.is_file(follow_symlinks=False)
                is_folder = entry.is_dir()
                if below and entry.is_symlink():
                    raise _not_ours(entry.path)
                if (below and is_folder) or not (is_plain or is_folder):
                    require_regular(Path(entry.path), below)


def run_names(folder: Path) -> list[str]:
    """Names of the runs in a folder."""
    if not folder.is_dir():
        return []
    return sorted(path.parent.name for path in folder.glob("*/journal.jsonl"))


@contextmanager
def private() -> Iterator[None]:
    """Make files that are written meanwhile private to their owner.

    Those of started processes are, too.

    A thread beside the main one changes nothing, since the mask is that of the whole process: its
    files are private by the mode of the folder of their run.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def atomic_write(path: Path, content: str | bytes) -> Path:
    """Write a private file, completely or not at all; returns its path.

    >>> import tempfile
    >>> atomic_write(Path(tempfile.mkdtemp()) / "a.txt", "whole").read_text()
    'whole'
    """
    if isinstance(content, str):
        content = content.encode()
    with private(), atomic_file(path) as file:
        file.write(content)
    return path


def expanded(path: str | Path) -> Path:
    """A path whose ``~`` is a home, if the user exists.

    >>> expanded("~no one/model").as_posix()
    '~no one/model'
    """
    with suppress(RuntimeError):
        return Path(path).expanduser()
    return Path(path)


def cache_folder() -> Path:
    """Folder of trained suites and of texts of tasks: ``$DASKMETRICS_CACHE``, or
    ``~/.cache/daskmetrics``.
    """
    if chosen := os.environ.get("DASKMETRICS_CACHE"):
        return expanded(chosen)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return expanded(caches) / "daskmetrics"
    return home() / ".cache" / "daskmetrics"


def home() -> Path:
    """The home of this user; a ConfigError if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError(
            "This user has no home folder: HOME is not set, and this machine does not list the "
            f"user {os.getuid()}. Set it to a folder of your own: export HOME=FOLDER"
        ) from None


SUFFIX = ".part"


def require_new(folder: Path) -> None:
    """Check that a folder to be written does not exist or is empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"'{folder}' exists and is not empty. Name a new folder.")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into that gets its name at the end.

    The first process to finish wins.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp()) / "step8"
    >>> with atomic_folder(place) as part:
    ...     _ = (part / "a.txt").write_text("whole")
    ...     place.exists()
    False
    >>> (place / "a.txt").read_text()
    'whole'
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = _partial(folder)
    lock = _locked_folder(partial)
    try:
        yield partial
        try:
            partial.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process wrote the same content
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        os.close(lock)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write into that replaces an older one at the end.

    By then it is on the disk. A link in its place is replaced, and not followed.
    """
    require_regular(path)
    partial = _partial(path)
    try:
        with _locked_file(partial) as file:
            yield file
            file.flush()
            # otherwise a power failure can leave an empty file with this name
            os.fsync(file.fileno())
            partial.replace(path)
    except OSError as error:
        if error.filename is None:  # that of a full disk names no file
            error.filename = str(path)
        raise
    finally:
        partial.unlink(missing_ok=True)


def remove_partial(folder: Path) -> None:
    """Remove partial files and folders of processes that have ended."""
    for partial in folder.glob(f".*{SUFFIX}"):
        lock = locked(partial, os.O_RDONLY)
        if lock is not None:
            if partial.is_dir():
                shutil.rmtree(partial)
            else:
                partial.unlink(missing_ok=True)
            os.close(lock)


def _partial(path: Path) -> Path:
    # nobody can know the name before, and plant a link there
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")


def _locked_file(partial: Path) -> IO[bytes]:
    """A new locked file; created again if removed before it was locked."""
    while True:
        file = partial.open("xb")
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if partial.exists():
            return file
        file.close()


def _locked_folder(partial: Path) -> int:
    """The lock of a new folder; created again if removed before."""
    while True:
        partial.mkdir()
        with suppress(FileNotFoundError):
            lock = os.open(partial, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if partial.exists():
                return lock
            os.close(lock)


def locked(path: Path, flags: int) -> int | None:
    """A file or folder, opened and locked until it is closed.

    None if another process has the lock, or it cannot be opened.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file
