"""The built-in program on two ranks of real workers, beside plain DDP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from daskmetrics.config import Recipe
from daskmetrics.core.files import remove_partial
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import PROCESS_GROUP, read_samples
from daskmetrics.domain.events import TRAIN
from daskmetrics.training import revisions
from daskmetrics.training import suite as suite
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program
from tests.training.ddp.conftest import Fault, Recorder, ranks_alive

ROOT = Path(__file__).parents[3]
LAST = 200


@dataclass(frozen=True)
class Training:
    """A suite that two ranks train."""

    recipe: Recipe
    folder: Path

    @classmethod
    def of(cls, corpus: Path, folder: Path, **changes: object) -> Training:
        """One of this corpus; a test may change its recipe."""
        sizes = {"width": 32, "depth": 2, "heads": 2, "context": 32, "batch": 8, "ranks": 2}
        steps = {"steps": LAST, "checkpoints": (0, 20), "corpus": str(corpus), "save_every": 10}
        return cls(Recipe.model_validate({**sizes, **steps, **changes}), folder)

    def program(self, **changes: float | str) -> Program:
        words = ("-m", "daskmetrics.training.recipe", str(self.folder), *self.recipe.words)
        return Program("tiny", words, self.folder, 2, least=1, **changes)

    @property
    def weights(self) -> bytes:
        return (self.folder / f"step{LAST}" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(client, tmp_path_factory, corpus) -> Training:
    """A training without any fault, from a copy of its corpus."""
    node = tmp_path_factory.mktemp("node")
    folder = tmp_path_factory.mktemp("undisturbed") / "suite"
    training = Training.of(corpus, folder, stage=str(node))
    observer = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daskmetrics.core.telemetry.EVERY", 0.5)
        launch(client, training.program(), observer)
    steps = [progress.step for progress in observer.progress]
    assert not observer.failures() and steps == sorted(set(steps))
    assert node.stat().st_mtime > training.folder.joinpath("corpus").stat().st_mtime
    assert not list(node.iterdir()), "the copy is removed at the end"
    return training


def test_two_ranks_equal_torchrun_to_the_last_bit(undisturbed, tmp_path):
    """The plain script benchmarks/ddp.py computes the weights from the same examples."""
    recipe, weights = tmp_path / "recipe.json", tmp_path / "plain.safetensors"
    recipe.write_text(undisturbed.recipe.model_dump_json())
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [ROOT / "benchmarks" / "ddp.py", recipe, undisturbed.folder / "corpus", weights]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *torchrun, *script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert weights.read_bytes() == undisturbed.weights


def test_the_checkpoints_of_all_steps_are_there(undisturbed):
    names = revisions(undisturbed.recipe)
    files = {"corpus", "resume", "logs", "progress.jsonl", "telemetry.jsonl", "status.json"}
    assert {path.name for path in undisturbed.folder.iterdir()} == {*names, *files}
    losses = [suite.summary(undisturbed.folder, revision)["loss"] for revision in names]
    assert losses[-1] < losses[0] - 1


def test_the_dashboard_receives_the_events_of_every_rank(client, undisturbed):
    events = [event for _, event in client.get_events(TRAIN) if event.get("model") == "tiny"]
    for rank in (0, 1):
        latest = [event for event in events if event["rank"] == rank][-1]
        assert latest["step"] == LAST and latest["tokens_per_second"] > 0
    last = [event["loss"] for event in events if event["step"] == LAST]
    assert len(set(last)) == 1, "the loss is the mean over all ranks"


def test_what_ranks_use_counts_as_use_of_their_workers(client, undisturbed):
    samples = [
        sample
        for sample in read_samples(undisturbed.folder / "telemetry.jsonl")
        if PROCESS_GROUP in sample.doing.values()
    ]
    # no rank is left
    alone = {str(info["name"]): info["metrics"]["memory"] for info in workers(client).values()}
    for name, of_worker in alone.items():
        most = max(sample.readings[name]["memory"] for sample in samples)
        assert most > of_worker + 50 * 2**20
        assert max(sample.readings[name]["cpu"] for sample in samples) > 1


def test_a_training_goes_on_with_fewer_ranks_if_a_node_is_gone(
    client, undisturbed, corpus, tmp_path, monkeypatch
):
    """Two halves of a step give the same sum on one rank as on two; with three, its last bits would
    differ.
    """
    # a node that is gone does not end its worker either
    monkeypatch.setattr("daskmetrics.training.ddp.driver.replace_worker", lambda *_: None)
    monkeypatch.setattr("daskmetrics.training.ddp.driver.STOP", 5.0)
    training = Training.of(corpus, tmp_path / "suite")
    observer = Recorder([Fault(60, 0, "its worker is stopped")])
    launch(client, training.program(timeout=15.0, patience=0.0), observer)
    stopped = list(ranks_alive().values())
    observer.workers[0].kill()  # else the cluster waits for it
    # the other rank gives up its partner after as long: then the worker is asked to end its rank
    failure = re.compile(
        r"Rank 0 of tiny failed first: its worker (stopped reporting 1|did not answer)"
    )
    assert any(map(failure.match, observer.failures()))
    assert "Starting with 1 of 2 ranks." in observer.lines
    assert (training.folder / "progress.jsonl").read_text().count('{"step": 1,') == 1
    assert training.weights == undisturbed.weights
    # the rank of the worker that was killed ends with it, a moment later
    assert not psutil.wait_procs(stopped, timeout=20)[1]
    # one that is stopped while it saves keeps its lock; what it leaves the next training removes
    remove_partial(training.folder / "resume")
    assert not [path for path in training.folder.rglob("*") if path.name.startswith(".")]
