"""The main job as a user runs it: real processes, real models, killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import xarray
import yaml

import daskmetrics as dm
from daskmetrics.config import Recipe
from daskmetrics.domain.events import SearchEnded, UnitAsked
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from daskmetrics.training import revisions, train

TINY = {"heads": 2, "vocabulary": 300, "context": 32}
SMALL = {
    "name": "small",
    "models": [
        {"name": "a", "train": {**TINY, "width": 16, "depth": 2, "steps": 8}},
        {"name": "b", "train": {**TINY, "width": 8, "depth": 1, "steps": 4}},
    ],
    "corpus": {"prompts": 24},
    "tasks": ["stdlib:order", "stdlib:package"],
    "search": {"budget": 0.6},
}


class Place:
    """A folder of its own, with its own cache, in which the command line is used."""

    def __init__(self, path: Path, config: dict = SMALL) -> None:
        path.mkdir()
        self.path, self.run_folder = path, path / "runs" / config["name"]
        self.journal = self.run_folder / "journal.jsonl"
        (path / "config.yaml").write_text(yaml.safe_dump(config))
        own = {"DASKMETRICS_CACHE": str(path / "cache"), "COLUMNS": "200"}
        self.environment = {**os.environ, **own}

    def start(self, line: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "daskmetrics", *line.split()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.path, env=self.environment, text=True, **pipes)

    def call(self, line: str) -> tuple[int, str, str]:
        process = self.start(line)
        out, err = process.communicate(timeout=500)
        return process.returncode, out, err

    def result(self) -> dict:
        found = [entry for entry in read(self.journal) if isinstance(entry, SearchEnded)][-1]
        return {name: value for name, value in vars(found).items() if name != "location"}

    def picks(self) -> list:
        asked = [entry for entry in read(self.journal) if isinstance(entry, UnitAsked)]
        return sorted({entry.pick["index"]: entry.pick for entry in asked if entry.pick}.items())

    def recorded(self) -> list[str]:
        return [entry.key for entry in read(self.journal) if isinstance(entry, Record)]

    def arrays(self) -> dict[str, np.ndarray]:
        path = self.run_folder / "store.zarr"
        tree = xarray.open_datatree(path, engine="zarr", chunks=None).load()
        return {
            f"{node.path}/{name}": array.values
            for node in tree.leaves
            for name, array in node.data_vars.items()
        }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Place:
    """A finished run, which the tests below enlarge one after the other."""
    place = Place(tmp_path_factory.mktemp("undisturbed") / "place")
    code, _, err = place.call("run config.yaml")
    assert code == 0, err
    return place


def test_a_run_that_is_killed_and_resumed_has_the_same_result(tmp_path, undisturbed):
    quiet, killed = undisturbed, Place(tmp_path / "killed")
    total = len(quiet.journal.read_bytes().splitlines())
    for share, kind in ((0.1, signal.SIGKILL), (0.7, signal.SIGTERM)):
        _kill_when(killed, int(share * total), kind)
    code, _, err = killed.call("run config.yaml")
    assert code == 0, err
    assert killed.result() == quiet.result()
    assert killed.picks() == quiet.picks()
    ours, theirs = killed.arrays(), quiet.arrays()
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=name)
    assert len(killed.recorded()) == len(set(killed.recorded()))


def test_a_finished_run_is_unchanged_and_names_its_best_arm(undisturbed):
    before = undisturbed.journal.read_bytes()
    code, out, _ = undisturbed.call("run config.yaml")
    assert code == 0
    assert "Nothing to do" in out and undisturbed.journal.read_bytes() == before
    best = dm.open(undisturbed.run_folder).best()
    assert str(best.arm) in out
    assert "report/index.html" in out
    for path in ("report/index.html", "store.zarr", "journal.jsonl"):
        assert (undisturbed.run_folder / path).exists()


def test_a_larger_budget_keeps_records_and_repairs_the_store(undisturbed):
    known = undisturbed.recorded()
    arrays = undisturbed.arrays()
    chunks = (undisturbed.run_folder / "store.zarr/a/metrics/c").rglob("*")
    chunk = next(path for path in chunks if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-4])
    code, _, err = undisturbed.call("run config.yaml --set search.budget=0.8")
    assert code == 0, err
    records = undisturbed.recorded()
    assert len(records) == len(set(records)) > len(known) and set(known) <= set(records)
    np.testing.assert_array_equal(undisturbed.arrays()["/a/metrics"], arrays["/a/metrics"])


def _kill_when(place: Place, lines: int, kind: signal.Signals) -> None:
    """Run, and send the driver a signal once the journal has so many lines; its workers must end
    too.
    """
    process = place.start("run config.yaml")
    deadline = time.monotonic() + 400
    while process.poll() is None and time.monotonic() < deadline:
        if place.journal.exists() and place.journal.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.005)
    assert process.poll() is None, "it ended before it was killed"
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(kind)
    _, err = process.communicate()
    assert kind == signal.SIGKILL or "run the same command again to resume" in err
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive


TRAINING = {
    "name": "training",
    "models": [
        {"name": "one", "train": {**TINY, "width": 32, "depth": 2, "steps": 256, "save_every": 20}},
        {"name": "two", "train": {**TINY, "width": 16, "depth": 1, "steps": 64, "seed": 1}},
    ],
    "corpus": {"prompts": 16},
    "metrics": ["effective_rank"],
    "tasks": [],
}


@pytest.mark.slow  # three runs
def test_a_killed_training_of_a_run_goes_on_bit_for_bit(tmp_path):
    """A rank is killed, then the driver, and in the next run all processes at once."""
    place = Place(tmp_path / "place", {**TRAINING, "ddp": {"folder": "suites"}})
    suites = place.path / "suites"
    process = place.start("run config.yaml")
    _wait((suites / "one" / "step8").exists)
    for rank in _ranks(process):
        rank.kill()
    _wait((suites / "one" / "step32").exists)
    ranks = _ranks(process)
    process.kill()
    process.communicate()
    assert ranks and not psutil.wait_procs(ranks, timeout=60)[1]
    process = place.start("run config.yaml")
    _wait((suites / "one" / "step128").exists)
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.communicate()
    assert not (suites / "one" / "step256").exists()
    code, _, err = place.call("run config.yaml")
    assert code == 0, err
    for model in TRAINING["models"]:
        recipe = Recipe(**model["train"])
        train(recipe, tmp_path / model["name"])
        for revision in revisions(recipe):
            part = Path(model["name"], revision, "model.safetensors")
            assert (suites / part).read_bytes() == (tmp_path / part).read_bytes()
    records = [entry for entry in read(place.journal) if isinstance(entry, Record)]
    trained = [record.name for record in records if record.kind == "train"]
    assert len(trained) == len(set(trained)) == 10 + 8
    assert {record.name for record in records if record.kind == "measure"} == set(trained)


def _ranks(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of its ranks."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "daskmetrics.training._rank" in child.cmdline()]


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 400
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def test_a_real_encoder_has_all_its_seven_layers_measured(tmp_path, minilm):
    text = (Path(__file__).parent.parent / "configs" / "minilm.yaml").read_text()
    place = Place(tmp_path / "minilm", yaml.safe_load(text))
    names = ["prompt_entropy", "curvature", "infonce"]
    settings = {
        "models.0.source": minilm,
        "corpus.prompts": 32,
        "tasks": "[stdlib:order]",
        "metrics": f"[{','.join(names)}]",
    }
    line = " ".join(["run config.yaml", *(f"--set {k}={v}" for k, v in settings.items())])
    code, out, err = place.call(line)
    assert code == 0, err
    run = dm.open(place.run_folder)
    assert run.metrics.layer.values.tolist() == list(range(7))
    assert all(np.isfinite(run.metrics[name]).all() for name in names)
    assert f"Use      minilm, layer {run.best().arm.layer}: accuracy" in out
