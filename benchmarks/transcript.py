"""A map of 500 iterations with every kind of fault, as one transcript: ``python
benchmarks/transcript.py``.

An iteration stands for 90 s of work and takes a hundredth of it. One raises an exception once, one
never ends, one needs more memory than a worker may use, one kills its worker each time; a worker is
killed, and the driver, too. The same command resumes; then items run again to verify the results;
/metrics and the figure are shown, too.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import psutil

from daskmetrics.cluster.places import kept_token
from daskmetrics.core.files import RunFolder, cache_folder
from daskmetrics.core.machine import is_free
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read

SECONDS = 0.9  # of one iteration: 90 s at a hundredth
RAISES, HANGS, GROWS, DIES = 7, 13, 19, 25  # the iterations with a fault
MEMORY = "400MiB"  # of a worker


def iteration(index: int, *, seed: int) -> dict[str, float | int]:
    """One iteration: waits, and returns what depends on its seed alone."""
    draw = random.Random(seed)
    time.sleep(SECONDS * draw.uniform(0.8, 1.2))
    if index == RAISES and not (before := Path("raised")).exists():
        before.touch()
        raise ConnectionError("planted: the file system did not answer")
    while index == HANGS:
        time.sleep(1)
    held = []
    while index == GROWS:
        held.append(bytearray(os.urandom(2**20) * 16))
        time.sleep(0.05)
    if index == DIES:
        os._exit(139)
    return {"score": draw.random(), "steps": draw.randrange(1000)}


def show(command: Sequence[str]) -> None:
    """Print a command as a user types it."""
    print(f"\n$ {' '.join(command)}", flush=True)


def call(*words: str) -> int:
    """Run a command of the package to its end."""
    show(["daskmetrics", *words])
    return subprocess.run([sys.executable, "-m", "daskmetrics", *words], check=False).returncode


def recorded() -> int:
    """Items with a result, so far."""
    journal = RunFolder(Path("runs/iteration")).journal
    entries = read(journal) if journal.exists() else ()
    return sum(len(each.value.items) for each in entries if isinstance(each, Record) and each.value)


def wait_for(items: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until so many items have a result."""
    while recorded() < items:
        if process.poll() is not None:
            raise SystemExit("The map ended before its driver was killed: give more --iterations.")
        time.sleep(0.2)


def metrics(port: int) -> None:
    """Print our lines of /metrics."""
    link = f"http://127.0.0.1:{port}/{kept_token(cache_folder())}/metrics"
    show(
        [
            "curl",
            "-s",
            f"http://127.0.0.1:{port}/PREFIX/metrics",
            "|",
            "grep",
            "^daskmetrics_",
            "  # of the workers, the first",
        ]
    )
    with urllib.request.urlopen(link, timeout=60) as page:
        lines = page.read().decode().splitlines()
    ours = [line for line in lines if line.startswith("daskmetrics_")]
    print("\n".join(line for line in ours if "{worker=" not in line or '{worker="0"}' in line))


def main() -> None:
    """Run the map with its faults in an empty folder, and print all that happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path("transcript"))
    parser.add_argument("--port", type=int, default=8799)
    given = parser.parse_args()
    port = next(port for port in range(given.port, 65536) if is_free(port))
    source = str(Path(__file__).resolve())
    given.folder.mkdir(parents=True)
    os.chdir(given.folder)
    Path("local.yaml").write_text(f"kind: local\nmemory: {MEMORY}\n", encoding="utf-8")
    Path("transcript.py").symlink_to(source)
    function = ["transcript.py:iteration", "--iterations", str(given.iterations)]
    options = [
        "--workers",
        str(given.workers),
        "--batch-size",
        "2",
        "--max-retries",
        "2",
        "--timeout",
        "8s",
    ]
    places = ["--cluster", "local.yaml", "--dashboard-port", str(port), "--output", "results.csv"]
    command = ["map", *function, *options, *places]
    show(["daskmetrics", *command])
    driver = subprocess.Popen(
        [sys.executable, "-m", "daskmetrics", *command], start_new_session=True
    )
    wait_for(given.iterations // 5, driver)
    metrics(port)
    children = psutil.Process(driver.pid).children()
    workers = [
        each for each in children if any("multiprocessing.spawn" in word for word in each.cmdline())
    ]
    show(["kill", "-9", f"{workers[0].pid}", "# a worker"])
    workers[0].kill()
    wait_for(2 * given.iterations // 5, driver)
    show(["kill", "-9", f"{driver.pid}", "# the driver"])
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    while not is_free(port):  # the workers end without their scheduler
        time.sleep(0.2)
    code = call(*command)
    print(f"(exit code {code})")
    call("runs", "verify", "runs/iteration", "--sample", "10")
    call("runs", "verify", "results.csv", "--sample", "5")
    call("status", "runs/iteration")
    call("report", "runs/iteration")


if __name__ == "__main__":
    main()
