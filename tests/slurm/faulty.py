"""Slurm's commands with faults that a test switches on and off, and our command on top of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.slurm.site import ROOT, profile

COMMANDS = ("sbatch", "squeue", "sinfo", "scancel")
FAULTS = ("fails", "hangs", "random")

WRAPPER = """#!/bin/bash
case $(cat {folder}/{name}.fault 2>/dev/null) in
fails) echo "{name}: error: it fails" >&2; exit 1 ;;
hangs) sleep 1000 ;;
random) head -c 400 /dev/urandom; exit 0 ;;
esac
exec {real} "$@"
"""
JOB = """
import pathlib, time
def item(index):
    if not pathlib.Path("quick").exists():
        time.sleep(0.05)
    return index
"""
# our command, which waits for Slurm less long than users do
DRIVER = """
import sys
from daskmetrics.cluster.slurm import _cluster, commands
from daskmetrics.cli import main
commands.TIMEOUT, commands.LOOKS, _cluster.HANGS_AFTER = 4.0, (0, 1), 2.0
{more}
sys.argv[0] = "daskmetrics"
main()
"""


class Place:
    """A folder with a map, a profile of the site, and commands of Slurm with faults."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in COMMANDS:
            file = folder / "bin" / name
            file.write_text(WRAPPER.format(folder=folder, name=name, real=shutil.which(name)))
            file.chmod(0o755)
        (folder / "job.py").write_text(JOB)
        settings = profile(folder, poll_seconds=1, **{"arrive_within": 20, **changes})
        (folder / "site.yaml").write_text(yaml.safe_dump(settings))
        self.result = folder / "r.csv"
        self.log = folder / "log"

    def set(self, fault: str, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.fault").write_text(fault)

    def heal(self) -> None:
        for file in self.folder.glob("*.fault"):
            file.unlink()

    def hurry(self) -> None:
        """Let the remaining items take no time."""
        (self.folder / "quick").touch()

    @property
    def rows(self) -> int:
        """The items of the output that are ok."""
        if not self.result.exists():
            return 0
        return self.result.read_text().count(",ok,")

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @contextmanager
    def map(self, items: int, more: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Our command, which maps so many items; ``more`` is code that prepares its process."""
        words = (
            f"map job.py:item --iterations {items} --batch-size 5 --cluster site.yaml --folder run"
        )
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    DRIVER.format(more=more),
                    *words.split(),
                    "--output",
                    "r.csv",
                ],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
