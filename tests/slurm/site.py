"""A real Slurm on this machine for tests, and helpers to use it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
SCRIPT = str(ROOT / "ci" / "slurm.sh")
NODES, GPUS = 8, 4
HERE = bool(os.environ.get("DASKMETRICS_TEST_SLURM")) and shutil.which("slurmctld") is not None

needs_slurm = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        not HERE,
        reason="needs Slurm's packages and DASKMETRICS_TEST_SLURM=1; .ci/run provides both",
    ),
]


@contextmanager
def site(place: Path, nodes: int = NODES, accounts: bool = False) -> Iterator[Path]:
    """A Slurm of nodes with four GPUs each, on free ports; ``SLURM_CONF`` names it while the
    context lasts.

    With ``accounts``, it has a database of accounts.
    """
    with_accounts = {**os.environ, "SLURM_TEST_ACCOUNTS": "1"} if accounts else None
    words = [SCRIPT, "start", str(place), str(nodes), str(GPUS), free_ports(nodes + 3)]
    subprocess.run(words, check=True, text=True, env=with_accounts)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(place / "slurm.conf")
    try:
        yield place
    finally:
        subprocess.run([SCRIPT, "stop", str(place)], check=False)
        os.environ.pop("SLURM_CONF")
        if before is not None:
            os.environ["SLURM_CONF"] = before


def free_ports(count: int) -> str:
    """The first of ``count`` consecutive free ports, for the controller and a daemon per node."""
    for first in range(16817, 30000, 50):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return str(first)
    raise OSError(f"no {count} consecutive ports are free")


def profile(place: Path, **changes: Any) -> dict[str, Any]:
    """A profile for this site; the queue is read every two seconds."""
    return {
        "kind": "slurm",
        "workers": 2,
        "partition": "gpu",
        "gpu_type": "l40s",
        "walltime": "00:10:00",
        "interface": "lo",
        "logs": str(place / "logs"),
        "poll_seconds": 2,
        **changes,
    }


def command(*words: str) -> str:
    """The output of a command of Slurm."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def jobs(state: str = "all") -> list[str]:
    """Ids of the jobs in the queue, the latest first; by default of all that have not ended."""
    states = [] if state == "all" else [f"--states={state}"]
    return command("squeue", "-h", "-o", "%A", "--sort=-i", *states).split()


def no_job_is_left(within: float = 60.0) -> bool:
    """Whether the queue becomes empty in time: Slurm takes some seconds to remove cancelled jobs."""
    return bool(comes_true(lambda: not jobs(), within))


def comes_true(condition: Callable[[], Any], within: float = 120.0) -> float | None:
    """Seconds until the condition held, or None if it never did."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < within:
        if condition():
            return max(took, 0.001)
        time.sleep(0.2)
    return None


@contextmanager
def driver(
    folder: Path, profile: dict[str, Any], seconds: float, count: int
) -> Iterator[subprocess.Popen[str]]:
    """A process that drives ``count`` units of ``seconds`` each, see `tests.slurm.units`."""
    (folder / "profile.json").write_text(json.dumps(profile))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.slurm.units", str(folder), str(seconds), str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
