"""Who drives a run: a lock held by the kernel, and a lease that says so where such a lock does not reach.

``flock`` ends with its process, but not every network file system carries it to other machines. The lease, a small
file that only one process can create, does reach them; it outlives a killed process, though, so that its holder is
looked up before it is believed.
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

NO_FLOCK = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # what file systems without flock answer


@dataclass(frozen=True)
class Holder:
    """A process that drives a run.

    Attributes
    ----------
    pid : int
    host : str
    since : str
        Its local time with the offset from UTC.
    born : str or None
        When the process began, as the kernel counts it; tells it from a later one with the same number.
    nonce : str
    """

    pid: int
    host: str
    since: str
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
        """Whether it is known to have ended, which can be seen only of processes of this machine."""
        if self.is_elsewhere:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's process of this number
        now = _born(self.pid)
        return now == _ENDED or (None not in (now, self.born) and now != self.born)


_ENDED = "ended"  # a killed process that its parent has not noticed yet


def _born(pid: int) -> str | None:
    """Boot and tick at which a process began; None where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _ENDED if state in "ZX" else f"{boot} {fields[18]}"


class Lease:
    """The right to drive a run, held by this process until it is released.

    Parameters
    ----------
    lock : Path
        File on which the kernel's lock is taken; the lease lies beside it (`lease_of`).

    Attributes
    ----------
    notice : str or None
        That the lease of a dead process was taken over.

    Raises
    ------
    LockedError
        If another process holds the run, saying who and since when.
    """

    def __init__(self, lock: Path) -> None:
        self.path = lease_of(lock)
        self.holder = Holder.this_process()
        self.notice: str | None = None
        self._lock = _flock(lock)
        try:
            self._take()
        except BaseException:
            os.close(self._lock)
            raise

    def _take(self) -> None:
        for _ in range(3):  # another process may take over from the same dead one
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
        """Make sure that the run is still ours.

        Raises
        ------
        LockedError
            If the lease was removed by ``unlock``, or another process has it.
        """
        now = _read(self.path)
        if now is None or now.nonce != self.holder.nonce:
            by = f"is held by {now} now" if now else "was removed (daskmetrics unlock)"
            raise LockedError(f"The lease '{self.path}' {by}. This process stops writing, so that only one does.")

    def release(self) -> None:
        """Let the next driver in."""
        with suppress(LockedError):
            self.check()
            self.path.unlink(missing_ok=True)
        os.close(self._lock)


def lease_of(lock: Path) -> Path:
    """Where the lease lies that belongs to a lock file."""
    return lock.with_name(lock.name + ".lease")


def holder(lock: Path) -> str | None:
    """Who drives the run now, or None; of another machine's process it cannot be seen whether it still lives."""
    found = _read(lease_of(lock))
    return None if found is None or found.is_dead else str(found)


def unlock(lock: Path) -> str | None:
    """Remove the lease of a process that will not come back; what was removed, or None if there was none.

    Raises
    ------
    LockedError
        If the holder is a living process of this machine.
    """
    found = _read(lease_of(lock))
    if found is None:
        return None
    if not found.is_elsewhere and not found.is_dead:
        raise LockedError(f"The run in '{lock.parent}' is being driven by {found}, which is alive. Stop it first.")
    _remove(lease_of(lock), found)
    return str(found)


def _locked(path: Path, by: Holder | None) -> LockedError:
    run = path.parent
    if by is None or not by.is_elsewhere:
        return LockedError(f"The run in '{run}' is being driven by {by or 'another process'}. Wait for it, or stop it.")
    return LockedError(
        f"The run in '{run}' is being driven by {by}. Whether that process is alive cannot be seen from here: if it is "
        f"gone, remove its lease with: daskmetrics unlock {run}"
    )


def _flock(lock: Path) -> int:
    file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_FLOCK:
            return file  # the lease alone must do
        os.close(file)
        if not isinstance(error, BlockingIOError):
            raise
        raise _locked(lease_of(lock), _read(lease_of(lock))) from None
    return file


def _read(path: Path) -> Holder | None:
    try:
        return Holder(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        # somebody's, but whose cannot be read: as if it were another machine's, so that only `unlock` removes it
        since = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(path.stat().st_mtime))
        return Holder(0, "an unknown machine", since, None, "")


def _create(path: Path, holder: Holder) -> bool:
    """Create the lease with its whole content; False if there is one."""
    own = path.with_name(f"{path.name}.{holder.nonce}")
    text = json.dumps(asdict(holder)).encode()
    try:
        _write(own, text)
        os.link(own, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        return _create_in_place(path, text)
    finally:
        own.unlink(missing_ok=True)
    return True


def _create_in_place(path: Path, text: bytes) -> bool:
    try:
        _write(path, text)
    except FileExistsError:
        return False
    return True


def _write(path: Path, text: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, text)
        os.fsync(file)
    except OSError:
        path.unlink()  # an empty lease would be nobody's
        raise
    finally:
        os.close(file)


def _remove(path: Path, expected: Holder) -> None:
    """Remove this holder's lease, and not one that another process put there meanwhile."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if _read(aside) != expected:
        with suppress(OSError):
            os.link(aside, path)
    aside.unlink()
