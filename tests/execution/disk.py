"""A simulated disk under the journal, the lock and files that are replaced: what a file system may
do, by seed.

It stands in for the functions of `os`, `fcntl` and `pathlib` that these modules call, so that the
code under test is the code that ships. It keeps apart what programs see and what survives a power
failure: writes count after `fsync` alone, and names after `fsync` of their folder. It loses, tears
and reorders the rest.
"""

from __future__ import annotations

import errno
import io
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any

from tests.execution.truths import Crash

REGULAR = 0o100600  # the mode of a file
TROUBLES = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.ESTALE)
Write = tuple[int, bytes] | int  # where and what; or a length to cut to


class Inode:
    """A file: what programs read, what is on the disk, and the writes between the two."""

    numbers = iter(range(10**9))

    def __init__(self, content: bytes = b"") -> None:
        self.number = next(self.numbers)
        self.data, self.durable = bytearray(content), bytearray(content)
        self.writes: list[Write] = []
        self.linked = True

    def do(self, write: Write) -> None:
        _apply(self.data, write)
        self.writes.append(write)

    def synchronize(self) -> None:
        for write in self.writes:
            _apply(self.durable, write)
        self.writes.clear()


def _apply(data: bytearray, write: Write) -> None:
    if isinstance(write, int):
        del data[write:]
        data.extend(bytes(write - len(data)))
    else:
        at, text = write
        data.extend(bytes(max(0, at - len(data))))
        data[at : at + len(text)] = text


class Process:
    """A process on a host, with its open files and locks; `dead` after a kill."""

    numbers = iter(range(100, 10**9))

    def __init__(self, host: str) -> None:
        self.host, self.pid, self.dead = host, next(self.numbers), False
        self.files: dict[int, Inode] = {}


class Disk:
    """The disk, its hosts, and the faults of one history.

    Parameters
    ----------
    rng : random.Random
    faults : int
        How many faults the history has; each comes at a random operation.
    """

    def __init__(self, rng: random.Random, faults: int) -> None:
        self.random, self.faults = rng, faults
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        # changes of names that are not on the disk yet
        self.renames: list[tuple[tuple[str, Inode | None], ...]] = []
        self.processes: list[Process] = []
        self.now = Process("outside")
        # attributes may be old, and a removed file is stale at once
        self.is_network = rng.random() < 0.4
        self.shares_locks = not self.is_network or rng.random() < 0.5
        # an error number, and for how many operations it stays
        self.trouble: tuple[int, int] | None = None
        self.seen: dict[tuple[str, str], tuple[int, int]] = {}  # old attributes of a name, by host
        self.next_fault = rng.randint(1, 60)
        # what people and programs do to the folder meanwhile
        self.actors: tuple[Callable[[], None], ...] = ()
        self.happened: Counter[str] = Counter()
        self.is_hurt: Callable[[], bool] = lambda: False
        self.steps, self.truncates = 0, False

    # who acts

    @contextmanager
    def acting(self, process: Process) -> Iterator[None]:
        before, self.now = self.now, process
        try:
            yield
        finally:
            self.now = before

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Without faults."""
        before, self.faults, trouble, self.trouble = self.faults, 0, self.trouble, None
        try:
            yield
        finally:
            self.faults, self.trouble = before, trouble

    def start(self, host: str) -> Process:
        self.processes.append(Process(host))
        if self.random.random() < 0.3:  # while it opens its files
            self.next_fault = self.random.randint(1, 30)
        return self.processes[-1]

    def kill(self, *processes: Process) -> None:
        for process in processes:
            process.dead = True
            process.files.clear()

    def cut_power(self) -> None:
        """End all processes and lose what was not synchronized: any of it, torn, as zeros and out
        of order.
        """
        self.kill(*self.processes)
        kept = self.renames[: self.random.randint(0, len(self.renames))]
        self.names, self.renames = dict(self.durable_names), []
        for name, inode in (change for changes in kept for change in changes):
            self._name(name, inode)
        self.durable_names = dict(self.names)
        for inode in set(self.names.values()):
            for write in inode.writes:
                if isinstance(write, tuple) and self.random.random() < 0.3:
                    at, text = write
                    part = text[: self.random.randint(0, len(text))]
                    # then zeros may follow
                    grows = at >= len(inode.durable) and self.random.random() < 0.5
                    write = at, part + bytes(len(text) - len(part)) * grows
                if self.random.random() < 0.6:
                    _apply(inode.durable, write)
            inode.data, inode.writes = bytearray(inode.durable), []

    def _name(self, name: str, inode: Inode | None) -> None:
        if name in self.names:
            self.names[name].linked = False
        self.names.pop(name, None)
        if inode is not None:
            self.names[name], inode.linked = inode, True

    def rename(self, *changes: tuple[str, Inode | None]) -> None:
        for name, inode in changes:
            self.remember(name)
            self._name(name, inode)
        self.renames.append(changes)

    def synchronize_names(self) -> None:
        self.durable_names, self.renames = dict(self.names), []

    def remember(self, name: str) -> None:
        """Keep the attributes of a name for hosts that will see them late."""
        if self.is_network and name in self.names:
            inode = self.names[name]
            for host in ("a", "b"):
                if host != self.now.host:
                    self.seen[host, name] = inode.number, len(inode.data)

    # faults

    def step(self, writes: bool = True) -> None:
        """One operation of the running process, at which anything may happen."""
        if self.now.dead:
            raise Crash
        if self.now.host == "outside":
            return
        self.steps += 1
        assert self.steps < 100_000, "it does not end"
        self.next_fault -= 1
        if self.faults > 0 and self.next_fault <= 0:
            self.faults -= 1
            self.next_fault = self.random.randint(1, 120)
            self._fault()
        if self.trouble:
            number, left = self.trouble
            self.trouble = (number, left - 1) if left > 1 else None
            if writes or number in (errno.EIO, errno.ESTALE):
                raise OSError(number, os.strerror(number))

    def _fault(self) -> None:
        kinds = ["kill", "power", *["trouble"] * 3, *["actor"] * 3]
        kind = self.random.choice(kinds)
        # a power failure sets the mark back, so that a cut cannot be seen; a failing disk keeps
        # nothing beside it
        if kind in ("power", "trouble") and self.is_hurt():
            kind = "kill"
        self.happened[kind] += 1
        if kind == "kill":
            self.kill(self.now)
            raise Crash
        if kind == "power":
            self.cut_power()
            raise Crash
        if kind == "trouble":
            self.trouble = self.random.choice(TROUBLES), self.random.choice([1, 2, 5, 30])
        elif self.actors and not self.trouble:
            process, actor = self.now, self.random.choice(self.actors)
            with self.acting(Process("outside")), self.quietly():
                actor()
            if process.dead:
                raise Crash

    # os and fcntl

    def open(self, path: SimPath, flags: int, mode: int = 0) -> int:
        self.step(writes=bool(flags & os.O_CREAT))
        name = str(path)
        if flags & os.O_DIRECTORY:
            inode = Inode()
            inode.number = -1
        elif name not in self.names:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            inode = Inode()
            self.rename((name, inode))
        elif flags & os.O_EXCL:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        else:
            inode = self.names[name]
        if flags & os.O_TRUNC:
            inode.do(0)
        self.seen.pop((self.now.host, name), None)  # opening asks the server
        file = max(self.now.files, default=2) + 1
        self.now.files[file] = inode
        return file

    def write(self, file: int, text: bytes) -> int:
        inode = self._inode(file)
        if self.random.random() < 0.1:
            text = text[: self.random.randint(1, len(text))]
        try:
            self.step()
        except OSError:
            if self.random.random() < 0.5:  # a part of it was written
                inode.do((len(inode.data), text[: self.random.randint(0, len(text))]))
            raise
        return self._put(inode, len(inode.data), text)

    def pwrite(self, file: int, text: bytes, at: int) -> int:
        self.step()
        return self._put(self._inode(file), at, text)

    def _put(self, inode: Inode, at: int, text: bytes) -> int:
        self._require_linked(inode)
        for name in [name for name, each in self.names.items() if each is inode]:
            self.remember(name)
            self.seen.pop((self.now.host, name), None)
        inode.do((at, text))
        return len(text)

    def fsync(self, file: int) -> None:
        inode = self._inode(file)
        try:
            self.step()
        except OSError:
            inode.writes.clear()  # the system drops what it could not write, and reports it once
            raise
        self._require_linked(inode)
        if inode.number < 0:
            self.synchronize_names()
        inode.synchronize()

    def ftruncate(self, file: int, length: int) -> None:
        inode = self._inode(file)
        self.truncates = True  # the length was compared; no system call compares and cuts at once
        try:
            self.step()
        finally:
            self.truncates = False
        self._require_linked(inode)
        inode.do(length)

    def _require_linked(self, inode: Inode) -> None:
        if self.is_network and not inode.linked and inode.number >= 0:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def _inode(self, file: int) -> Inode:
        if self.now.dead:
            raise Crash
        return self.now.files[file]

    def fstat(self, file: int) -> SimpleNamespace:
        self.step(writes=False)
        inode = self._inode(file)
        return _status(inode.number, len(inode.data))

    def close(self, file: int) -> None:
        if self.now.dead:
            raise Crash
        del self.now.files[file]

    def link(self, one: SimPath, two: SimPath) -> None:
        self.step()
        if str(two) in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(two))
        self.rename((str(two), self.names[str(one)]))

    def lock(self, file: Any, operation: int) -> None:
        self.step()
        inode = self._inode(file if isinstance(file, int) else file.fileno())
        for other in self.processes:
            near = self.shares_locks or other.host == self.now.host
            if other is not self.now and near and inode in other.files.values():
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))

    def signal(self, pid: int, _: int) -> None:
        here = [each for each in self.processes if each.host == self.now.host]
        if not any(each.pid == pid and not each.dead for each in here):
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    # what modules see

    @contextmanager
    def installed(self, *modules: ModuleType) -> Iterator[None]:
        """Let modules use this disk, and a clock that jumps, instead of the real ones."""
        SimPath.disk = self
        names = ("open", "write", "pwrite", "fsync", "ftruncate", "fstat", "close", "link")
        fakes = {
            "os": SimpleNamespace(
                **{name: value for name, value in vars(os).items() if name.startswith("O_")},
                **{name: getattr(self, name) for name in names},
                kill=self.signal,
                getpid=lambda: self.now.pid,
                umask=lambda mask: 0o022,
            ),
            "fcntl": SimpleNamespace(flock=self.lock, LOCK_EX=2, LOCK_NB=4),
            "socket": SimpleNamespace(gethostname=lambda: self.now.host),
            "time": SimpleNamespace(
                sleep=lambda seconds: None,
                time=lambda: 1.8e9 + 86400 * self.random.randint(-1, 1),
                strftime=lambda *_: f"day {self.random.randint(-1, 1)}",
                localtime=lambda seconds: seconds,
            ),
            "born_of": lambda pid: f"start of {pid}",
        }
        before = [
            (module, {name: vars(module)[name] for name in fakes if name in vars(module)})
            for module in modules
        ]
        for module, own in before:
            vars(module).update({name: fakes[name] for name in own})
        try:
            yield
        finally:
            for module, own in before:
                vars(module).update(own)


def _status(number: int, length: int) -> SimpleNamespace:
    return SimpleNamespace(st_dev=0, st_ino=number, st_size=length, st_mtime=0.0, st_mode=REGULAR)


class SimPath(PurePosixPath):
    """A path on the simulated disk."""

    disk: Disk

    def _inode(self) -> Inode:
        if str(self) not in self.disk.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return self.disk.names[str(self)]

    def stat(self) -> SimpleNamespace:
        self.disk.step(writes=False)
        place = self.disk.now.host, str(self)
        old = self.disk.seen.get(place)
        # a slow network file system: attributes of a moment ago, until it asks the server
        if old and self.disk.random.random() < 0.5:
            self.disk.seen.pop(place)
        elif old:
            return _status(*old)
        inode = self._inode()
        return _status(inode.number, len(inode.data))

    def exists(self) -> bool:
        self.disk.step(writes=False)
        return str(self) in self.disk.names

    def is_dir(self) -> bool:
        return False

    def read_bytes(self) -> bytes:
        self.disk.step(writes=False)
        return bytes(self._inode().data)

    def unlink(self, missing_ok: bool = False) -> None:
        self.disk.step()
        if not (missing_ok and str(self) not in self.disk.names):
            self._inode()
            self.disk.rename((str(self), None))

    def rename(self, target: SimPath) -> None:
        self.disk.step()
        inode = self._inode()
        self.disk.rename((str(self), None), (str(target), inode))

    replace = rename

    def mkdir(self, *_: Any, **__: Any) -> None:
        """There is one folder."""

    def open(self, mode: str) -> Any:
        if mode == "rb":
            return io.BytesIO(self.read_bytes())
        return _Writer(self.disk, self.disk.open(self, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))


class _Writer:
    def __init__(self, disk: Disk, file: int) -> None:
        self.disk, self.file = disk, file

    def write(self, text: bytes) -> None:
        while text:
            text = text[self.disk.write(self.file, text) :]

    def flush(self) -> None:
        """Nothing is buffered."""

    def fileno(self) -> int:
        return self.file

    def close(self) -> None:
        self.disk.close(self.file)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.disk.now.dead:
            self.close()
