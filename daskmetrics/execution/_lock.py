"""The lock of a run: a lock of the kernel, and an owner file for machines that the kernel's lock
does not reach.

``flock`` ends with its process, but not every network file system shares it with other machines.
The owner file, which only one process can create, is visible to them. It outlives a killed process,
so its owner is checked before it counts.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from daskmetrics.core.errors import LockedError
from daskmetrics.core.serialization import build, parse

NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # errors of file systems without flock


@dataclass(frozen=True)
class Holder:
    """A process that drives a run."""

    pid: int
    host: str
    since: str  # local time of the lock with the offset from UTC
    # its start as the kernel counts it: tells it from a later process of this number
    born: str | None
    nonce: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"

    @classmethod
    def this_process(cls) -> Holder:
        pid = os.getpid()
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        return cls(pid, socket.gethostname(), since, _born(pid), secrets.token_hex(8))

    @property
    def is_elsewhere(self) -> bool:
        return self.host != socket.gethostname()

    @property
    def is_dead(self) -> bool:
        """Whether it has certainly ended, which is visible only for processes of this machine."""
        if self.is_elsewhere:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # a process of another user has this number
        start = _born(self.pid)
        return start == _ENDED or (None not in (start, self.born) and start != self.born)


_ENDED = "ended"  # a killed process that its parent has not reaped yet


def _born(pid: int) -> str | None:
    """Boot and clock tick at which a process started; None where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _ENDED if state in "ZX" else f"{boot} {fields[18]}"


class RunLock:
    """The exclusive right to drive a run until it is released; raises LockedError, naming the
    holder, if it is taken.

    The kernel locks the file ``lock``; the owner file lies beside it (`owner_file`).
    """

    def __init__(self, lock: Path) -> None:
        self.path = owner_file(lock)
        self.holder = Holder.this_process()
        self.notice: str | None = None  # set if the lock of a dead process was taken over
        self._lock = _flock(lock)
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise

    def _take(self) -> None:
        for _ in range(3):  # another process may take over the same lock
            before = _read(self.path)
            if before is not None:
                if not before.is_dead:
                    raise _locked(self.path, before)
                self.notice = f"Took the run over from {before}, which has ended."
                _remove(self.path, before)
            if _create(self.path, self.holder):
                return
        raise _locked(self.path, _read(self.path))

    def check(self) -> None:
        """Raise LockedError if this process does not hold the lock any more: ``unlock`` or another
        process took it.
        """
        now = _read(self.path)
        if now is None or now.nonce != self.holder.nonce:
            by = f"is held by {now} now" if now else "was removed (daskmetrics runs unlock)"
            raise LockedError(
                f"The lock '{self.path}' {by}. This process stops, so that only one process writes."
            )

    def release(self) -> None:
        """Release the lock for the next driver."""
        # this process ends, so its lock does not count any more
        with suppress(LockedError, OSError):
            self.check()
            self.path.unlink(missing_ok=True)
        os.close(self._lock)


def owner_file(lock: Path) -> Path:
    """The owner file that belongs to a lock file."""
    return lock.with_name(lock.name + ".owner")


def holder(lock: Path) -> str | None:
    """The process that drives the run, or None. A process of another machine may have ended."""
    owner = _read(owner_file(lock))
    if owner is None or owner.is_dead:
        return None
    return str(owner)


def unlock(lock: Path) -> str | None:
    """Remove the lock of a process that has ended and return its holder; raises LockedError if that
    is alive here.
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
    if by is None or not by.is_elsewhere:
        return LockedError(
            f"The run in '{run}' is being driven by {by or 'another process'}. Wait for it, or stop it."
        )
    return LockedError(
        f"The run in '{run}' is being driven by {by}. Whether that process is alive is not visible from here: if it "
        f"has ended, remove its lock with: daskmetrics runs unlock {run}"
    )


def _flock(lock: Path) -> int:
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
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


def _create(path: Path, holder: Holder) -> bool:
    """Create the owner file with its whole content; False if there is one."""
    temporary = path.with_name(f"{path.name}.{holder.nonce}")
    text = json.dumps(asdict(holder)).encode()
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
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
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
