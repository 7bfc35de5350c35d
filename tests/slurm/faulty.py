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

from daskmetrics.checkpoints.arrivals import FINISHED
from daskmetrics.domain.events import Event, RunFinished, records
from daskmetrics.execution.journal import read
from tests.experiment.loop import network, save
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
# work that takes its time until it is told to hurry: the items of a map, the metrics of a run
SLOW = """
import pathlib, time
from daskmetrics.metrics import Metric
def wait(seconds):
    if not pathlib.Path("quick").exists():
        time.sleep(seconds)
def item(index):
    wait(0.05)
    return index
def of_a_layer(vectors):
    wait(0.5)
    return float(vectors.mean())
SLOW = Metric("slow", "pooled", "1", "waits", "job:of_a_layer")
"""
RUN = {
    "name": "faulty",
    "corpus": {"prompts": 4},
    "metrics": ["job:SLOW"],
    "tasks": ["stdlib:order"],
}
# a training that goes on where its processes were ended
PROGRAM = """
import pathlib, sys, torch
import torch.distributed as group
from job import wait
group.init_process_group("gloo")
steps = pathlib.Path("steps")
for step in range(int(sys.argv[1])):
    is_done = torch.tensor(int((steps / str(step)).exists()))
    group.broadcast(is_done, 0)
    if not is_done:
        wait(0.5)
        if group.get_rank() == 0:
            steps.mkdir(exist_ok=True)
            (steps / str(step)).touch()
    print(f"step {step + 1} of {sys.argv[1]}", flush=True)
if group.get_rank() == 0:
    pathlib.Path("model").write_text(f"of {len(list(steps.iterdir()))} steps")
"""
SHORT, LONG = 0, 1  # the long work takes minutes until it is told to hurry
# items, checkpoints, steps
SIZES = {"map": (60, 3000), "run": (4, 60), "watch": (4, 60), "train": (10, 1000)}
# our command, which waits for Slurm less long than users do
DRIVER = """
import sys
from daskmetrics.cluster.slurm import _supervisor, commands
from daskmetrics.cli import main
commands.TIMEOUT, commands.LOOKS, _supervisor.HANGS_AFTER = 4.0, (0, 1), 2.0
{more}
sys.argv[0] = "daskmetrics"
main()
"""


def checkpoints(folder: Path) -> Path:
    """Checkpoints of a tiny model, each with other weights."""
    model = network()
    weights = model.gpt_neox.embed_in.weight.data
    for step in range(SIZES["run"][LONG]):
        weights += 0.01
        save(model, folder / f"step{step}")
    return folder


class Place:
    """A folder with work of each kind, a profile of the site, and commands of Slurm with faults."""

    def __init__(self, folder: Path, verb: str, models: Path | None, **changes: Any) -> None:
        self.folder = folder
        self.verb = verb  # of our command: ``map``, ``run``, ``watch`` or ``train``
        (folder / "bin").mkdir()
        for name in COMMANDS:
            file = folder / "bin" / name
            file.write_text(WRAPPER.format(folder=folder, name=name, real=shutil.which(name)))
            file.chmod(0o755)
        (folder / "job.py").write_text(SLOW)
        (folder / "program.py").write_text(PROGRAM)
        settings = profile(folder, poll_seconds=1, **{"arrive_within": 20, **changes})
        (folder / "site.yaml").write_text(yaml.safe_dump(settings))
        for size in SIZES["run"]:
            steps = [f"step{step}" for step in range(size)]
            model = {"name": "m", "source": str(models), "revisions": steps}
            if verb == "watch":
                model = {"name": "m", "source": str(folder / f"out{size}")}
                for step in steps:
                    shutil.copytree(models / step, folder / f"out{size}" / step)
                (folder / f"out{size}" / FINISHED).touch()
            config = {**RUN, "models": [model], "search": {"budget": 1.2 / size}}  # a few scores
            (folder / f"{size}.yaml").write_text(yaml.safe_dump(config))
        report = "run/report/index.html"
        results = {"map": "r.csv", "run": report, "watch": report, "train": "model"}
        self.result = folder / results[verb]
        self.log = folder / "log"

    def set(self, fault: str, *names: str) -> None:
        for name in names:
            (self.folder / f"{name}.fault").write_text(fault)

    def heal(self) -> None:
        for file in self.folder.glob("*.fault"):
            file.unlink()

    def hurry(self) -> None:
        """Let the remaining work take no time."""
        (self.folder / "quick").touch()

    @property
    def entries(self) -> tuple[Event, ...]:
        return tuple(read(self.folder / "run" / "journal.jsonl"))

    @property
    def records(self) -> int:
        """How many batches of items, or measured checkpoints, are recorded as ok, or steps done."""
        if self.verb == "train":
            return len(list(self.folder.glob("steps/*")))
        kind = "batch" if self.verb == "map" else "measure"
        return sum(record.ok and record.kind == kind for record in records(self.entries))

    def is_complete(self, size: int) -> bool:
        """Whether everything of the short or the long work is recorded and in its result."""
        if self.verb == "map":
            return self.result.read_text().count(",ok,") == SIZES["map"][size]
        if self.verb == "train":
            return self.result.read_text() == f"of {SIZES['train'][size]} steps"
        is_finished = any(isinstance(entry, RunFinished) for entry in self.entries)
        return is_finished and self.result.exists() and self.records == SIZES[self.verb][size]

    @property
    def has_ended(self) -> bool:
        """Whether the output is written, and a training has said where it is."""
        return self.result.exists() and (self.verb != "train" or "has ended" in self.said)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @contextmanager
    def work(self, size: int, more: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """Our command with short or long work; ``more`` is code that prepares its process."""
        count = SIZES[self.verb][size]
        words = {
            "map": f"job.py:item --iterations {count} --batch-size 5 --output r.csv",
            "run": f"{count}.yaml",
            "watch": f"{count}.yaml",
            "train": f"--ranks 2 program.py -- {count}",
        }
        command = f"{self.verb} --cluster site.yaml --folder run {words[self.verb]}"
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", DRIVER.format(more=more), *command.split()],
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
