"""A process beside the driver that ends its jobs when the driver ends, however that happens."""

from __future__ import annotations

import subprocess
import threading

from daskmetrics.cluster.queue import SlurmError, slurm

# it reads ids until the pipe closes, which the system sees to even after a SIGKILL
READ_AND_CANCEL = """
trap '' HUP INT TERM
while read -r id; do ids="$ids $id"; done
[ -z "$ids" ] || exec scancel $ids
"""


class Guard:
    """Knows the ids of all jobs. It outlives the driver by the moment that it takes to cancel them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", READ_AND_CANCEL],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # of jobs that have ended it would say so
            text=True,
            start_new_session=True,  # what ends the driver's group must not end it
        )

    def add(self, job: str) -> None:
        """Answer for a job; one that comes when all is over is cancelled at once."""
        with self._lock:
            if self._process.stdin and not self._process.stdin.closed:
                self._process.stdin.write(f"{job}\n")
                self._process.stdin.flush()
                return
        slurm("scancel", job)

    def release(self) -> None:
        """Have all jobs cancelled and wait until Slurm knows.

        Raises
        ------
        SlurmError
            If it could not be told: the jobs then end by themselves, a minute after their workers miss the scheduler.
        """
        with self._lock:
            if self._process.stdin:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            raise SlurmError("scancel did not answer within 60 s") from None
