"""Programs without a guard: the processes that we start do not import them, and what they define
still works there.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.programs import COUNT, Ended, Home

MAP = """
import os
import signal
import time
import daskmetrics as dm

OFFSET = 100

class Where:
    def __init__(self, process):
        self.process = process

def step(item):
    return item + OFFSET

def here():
    return Where(os.getpid())

with dm.ProfileCluster("local", workers=1) as cluster:
    print(sorted(result.value for result in dm.map(step, range(3), client=cluster, journal="run")))
    client = cluster.client
    there = client.submit(here).result()
    print(type(there) is Where, there.process != os.getpid())
    os.kill(there.process, signal.SIGKILL)
    again = there
    while again.process == there.process:
        time.sleep(0.1)
        again = next(iter(client.run(here, on_error="ignore").values()), there)
    print("restarted")
"""

EXPERIMENT = """
import numpy as np
import daskmetrics as dm
from daskmetrics.bandit import Choice
from daskmetrics.metrics import Metric

def norm(vectors):
    return vectors.double().norm(dim=1).mean()

NORM = Metric("norm", "pooled", "1", "mean length of a prompt's vector", "__main__:norm")

def first_open(state):
    if not state.open.any():
        return None
    arm, task = np.argwhere(state.open)[0]
    return Choice(int(arm), int(task), {"because": "it is the first"})

run = dm.run(
    name="tiny",
    models=[{"name": "a", "train": {"width": 8, "depth": 1, "steps": 1}}],
    corpus={"prompts": 8},
    metrics=["__main__:NORM"],
    tasks=["stdlib:order"],
    budget=1.0,
    policy=first_open,
)
print(bool((run.metrics.norm > 0).all()), {pick.why["because"] for pick in run.picks if pick.stage == "search"})
"""

OTHER_POOL = """
import multiprocessing
import daskmetrics as dm

def square(number):
    return number * number

if __name__ == "__main__":
    with dm.ProfileCluster("local", workers=1) as cluster:
        cluster.client.wait_for_workers(1)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(square, [1, 2, 3]))
"""

BENCHMARK = """
import subprocess
import sys
import cloudpickle
from mteb.abstasks import AbsTaskClassification
from daskmetrics.tasks import resolve
from tests.tasks.local_mteb import about

class Mine(AbsTaskClassification):
    metadata = about("Mine", "Classification", "accuracy")

packed = cloudpickle.dumps(resolve(["mteb:__main__:Mine"]))
code = "import pickle, sys; (task,) = pickle.load(sys.stdin.buffer); print(task.kind)"
subprocess.run([sys.executable, "-W", "ignore", "-c", code], input=packed, check=True)
"""


@pytest.fixture
def home(tmp_path: Path, session_cache: Path) -> Home:
    """An empty working folder."""
    return Home(tmp_path, {**os.environ, "DASKMETRICS_CACHE": str(session_cache)})


def require(ended: Ended, *lines: str, starts: int = 1) -> None:
    """Check what a program printed last, and how often it was started or imported."""
    assert ended.code == 0, ended.output + ended.errors
    assert tuple(ended.output.splitlines()[-len(lines) :]) == lines
    assert ended.starts == starts


MAPPED = ("[100, 101, 102]", "True True", "restarted")


def test_functions_of_a_script_travel_by_value(home):
    require(home.run_script(COUNT + MAP), *MAPPED)


def test_a_program_without_a_file(home):
    require(home.run("-", text=COUNT + MAP), *MAPPED)


def test_a_program_under_pytest(home):
    """Its module is not the main one, and warnings are errors."""
    body = "".join(f"    {line}" for line in (COUNT + MAP).splitlines(keepends=True))
    (home.folder / "test_block.py").write_text(f"def test_block():\n{body}")
    ended = home.run(
        "-m", "pytest", "-qs", "-p", "no:cacheprovider", "-W", "error", "test_block.py"
    )
    assert ended.code == 0 and MAPPED[0] in ended.output, ended.output + ended.errors
    assert ended.starts == 1


@pytest.mark.parametrize(
    ("program", "line", "starts"),
    [
        (EXPERIMENT, "True {'it is the first'}", 1),
        (OTHER_POOL, "[1, 4, 9]", 2),
    ],
    ids=["a metric and a policy", "other pools import it as before"],
)
def test_what_a_script_defines_works_without_its_import(home, program, line, starts):
    require(home.run_script(COUNT + program), line, starts=starts)


def test_a_task_of_the_benchmark_that_a_script_defines(home):
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    require(home.run_script(COUNT + BENCHMARK), "classification")
