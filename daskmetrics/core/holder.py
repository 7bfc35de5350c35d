"""Which process drives a run, and whether it has ended."""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A process that drives a run or a training."""

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
        return cls(pid, socket.gethostname(), since, born_of(pid), secrets.token_hex(8))

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
        start = born_of(self.pid)
        return None not in (start, self.born) and start != self.born


def born_of(pid: int) -> str | None:
    """Boot and clock tick at which a process started.

    None where there is no /proc.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if state in "ZX":
        return "ended"  # it was killed, and its parent has not waited for it yet
    return f"{boot} {fields[18]}"
