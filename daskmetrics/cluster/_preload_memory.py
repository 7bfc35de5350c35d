"""Preload of the nannies of Slurm jobs: reports a worker that the kernel killed because its job ran out of memory.

The nanny itself reports only the workers that it ended. A job goes on after such a kill, and Slurm shows it at its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daskmetrics.cluster._preload_clock import keep_time

EVERY = 100  # milliseconds between two checks
TOPIC = "worker-restart-memory"  # of Dask's own reports
PROCESS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def dask_setup(nanny: Any) -> None:
    """Called by Dask with the new nanny."""
    from tornado.ioloop import PeriodicCallback

    keep_time()
    PeriodicCallback(watch(nanny, oom_kills), EVERY).start()


def watch(nanny: Any, kills: Callable[[], int]) -> Callable[[], None]:
    """A check of a nanny's worker, for ``kills`` processes of the job that the kernel has killed so far."""
    pid, address, before = None, None, kills()

    def check() -> None:
        nonlocal pid, address, before
        if pid is not None and nanny.pid != pid and (now := kills()) > before:
            nanny.log_event(TOPIC, {"worker": address, "pid": pid})
            before = now
        pid, address = nanny.pid, nanny.worker_address or address

    return check


def oom_kills(process: Path = PROCESS, groups: Path = GROUPS) -> int:
    """How many processes of this one's control group the kernel has killed for memory; 0 if it does not say."""
    kills = 0
    for line in process.read_text().splitlines() if process.exists() else ():
        _, controllers, path = line.split(":", 2)
        kind, name = ("", "memory.events") if not controllers else (controllers, "memory.oom_control")
        try:
            text = (groups / kind / path.lstrip("/") / name).read_text()
        except OSError:  # another controller, or none
            continue
        kills = max(kills, *(int(count) for count in re.findall(r"^oom_kill (\d+)", text, re.MULTILINE)), 0)
    return kills
