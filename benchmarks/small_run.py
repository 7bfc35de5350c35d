"""CPU seconds of a small run and of its commands, beside one process that does the same work.

python benchmarks/small_run.py --rounds 3

Two checkpoints of a small GPT-NeoX model are measured and scored on five built-in tasks, as in the
demo, by `daskmetrics run` and its children; then one process calls the functions of the same units
one after the other, without Dask, journal and report. Both take turns. Last come commands that
read the run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from daskmetrics import config, experiment, store, training
from daskmetrics.config import Recipe
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import scored
from daskmetrics.domain.names import Cell
from daskmetrics.execution.journal import read
from daskmetrics.experiment import maintenance, measure
from daskmetrics.experiment.score import score_unit

SETTINGS = {
    "name": "small",
    "models": [{"name": "tiny-32", "source": "suite"}],
    "metrics": ["prompt_entropy", "curvature", "dataset_entropy", "effective_rank", "infonce"],
    "tasks": ["stdlib:demo", "stdlib:order"],
}
RUN = Path("runs/small")
COMMANDS = ("list metrics", "doctor local", "status small", "best small")


def cpu_seconds(*words: str) -> float:
    """CPU seconds of a Python program with all its child processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def in_one_process() -> None:
    """Measure and score what the run in this folder did, and compare the scores."""
    prepared = experiment.prepare(config.load(SETTINGS))
    folder = RunFolder(Path("alone"))
    folder.create()
    store.create(folder.store, prepared.plan, {})
    maintenance.write_files(folder, prepared.config.as_dict(), prepared.prompts)
    for unit in measure.units(prepared, folder, ()):
        unit.function(*unit.args)
    encodings = {}
    scratch = folder.embeddings.resolve()
    for record, recorded in scored(read(RunFolder(RUN).journal)):
        cell = Cell.parse(record.name)
        task = prepared.by_task[cell.task]
        unit = score_unit(prepared, cell.arm, task, scratch, "score", {})
        if unit.input.key not in encodings:
            encodings[unit.input.key] = unit.input.function(*unit.input.args)
        result = unit.function(encodings[unit.input.key], *unit.args)
        if result.score != recorded.score:
            raise DaskmetricsError(f"{record.name}: {result.score} and {recorded.score}.")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_const", const=1, dest="rounds")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.alone:
        in_one_process()
        return
    script = str(Path(__file__).resolve())
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        training.train(Recipe(width=32, depth=3, steps=1), Path("suite"))
        Path("small.yaml").write_text(json.dumps(SETTINGS))  # YAML, too
        whole: list[float] = []
        alone: list[float] = []
        for _ in range(chosen.rounds):
            shutil.rmtree("runs", ignore_errors=True)
            whole.append(cpu_seconds("-m", "daskmetrics", "run", "small.yaml"))
            alone.append(cpu_seconds(script, "--alone"))
            print(f"run {whole[-1]:.1f} s, one process {alone[-1]:.1f} s", flush=True)
        print(f"run / one process: {median(whole) / median(alone):.2f}")
        for command in COMMANDS:
            words = ("-m", "daskmetrics", *command.split())
            seconds = [cpu_seconds(*words) for _ in range(chosen.rounds)]
            print(f"daskmetrics {command}: {median(seconds):.2f} s")
        os.chdir("/")  # a folder that is not deleted


if __name__ == "__main__":
    main()
