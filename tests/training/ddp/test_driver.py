"""Process groups on real workers, and the faults that end them: a rank raises, is killed, stops, or
is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.events import TRAIN
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import PROCESS_GROUP, read_samples
from daskmetrics.training import suite as suite
from daskmetrics.training.ddp.driver import ProcessGroupError, launch
from tests.training.ddp.conftest import Planted, Recorder, weights

ROOT = Path(__file__).parents[3]
FULL = os.environ.get("DASKMETRICS_FAULTS") == "full"
FAULTS = {
    "a rank raises": (1, signal.SIGINT),
    "rank 0 is killed": (0, signal.SIGKILL),
    "rank 1 is killed": (1, signal.SIGKILL),
    "its worker is killed": (1, "worker"),
    "rank 0's worker is killed": (0, "worker"),
    "a rank is stopped": (1, signal.SIGSTOP),
}


@pytest.fixture(scope="module")
def undisturbed(client, tmp_path_factory, corpus):
    """A training without any fault."""
    from tests.training.ddp.conftest import RECIPE, Recorder, Training

    recipe = RECIPE.model_copy(update={"corpus": str(corpus)})
    place = tmp_path_factory.mktemp("undisturbed")
    kept = place / "telemetry.jsonl"
    training = Training(recipe, place / "suite", timeout=60, telemetry=kept)
    observer = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("daskmetrics.core.telemetry.EVERY", 0.5)
        launch(client, training.program(), observer)
    assert not observer.failures() and observer.steps == sorted(set(observer.steps))
    return training


def test_two_ranks_equal_torchrun_to_the_last_bit(undisturbed, tmp_path):
    plain = torchrun(undisturbed, tmp_path, ranks=2)
    assert plain == weights(undisturbed)


def torchrun(training, folder: Path, ranks: int) -> bytes:
    """The weights that the plain script benchmarks/ddp.py computes from the same examples."""
    recipe = folder / "recipe.json"
    recipe.write_text(training.recipe.model_dump_json())
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
        ROOT / "benchmarks" / "ddp.py", recipe, training.folder / "corpus", folder / "plain.safetensors",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "plain.safetensors").read_bytes()


def test_the_checkpoints_of_all_steps_are_there(undisturbed):
    assert {path.name for path in undisturbed.folder.iterdir()} == {
        *undisturbed.revisions, "corpus", "resume", "logs", "progress.jsonl", "recipe.json",
    }  # fmt: skip
    losses = [
        suite.summary(undisturbed.folder, revision)["loss"] for revision in undisturbed.revisions
    ]
    assert losses[-1] < losses[0] - 1


def test_the_dashboard_receives_the_events_of_every_rank(client, undisturbed):
    events = [event for _, event in client.get_events(TRAIN) if event.get("model") == "tiny"]
    for rank in (0, 1):
        latest = [event for event in events if event["rank"] == rank][-1]
        assert latest["step"] == undisturbed.recipe.steps and latest["tokens_per_second"] > 0
    last = [event["loss"] for event in events if event["step"] == undisturbed.recipe.steps]
    assert len(set(last)) == 1, "the loss is the mean over all ranks"


def test_what_ranks_use_counts_as_use_of_their_workers(client, undisturbed):
    samples = [
        sample
        for sample in read_samples(undisturbed.telemetry)
        if PROCESS_GROUP in sample.doing.values()
    ]
    # no rank is left
    alone = {str(each["name"]): each["metrics"]["memory"] for each in workers(client).values()}
    for name, own in alone.items():
        assert max(sample.readings[name]["memory"] for sample in samples) > own + 50 * 2**20
        assert max(sample.readings[name]["cpu"] for sample in samples) > 1


def survives(client, training, observer, undisturbed, faults) -> list[str]:
    with Planted(training, faults) as planted:
        launch(client, training.program(), observer)
    assert not planted.faults, "a fault was not injected"
    assert weights(training) == weights(undisturbed)
    assert not planted.orphans()
    assert not [path for path in training.folder.rglob("*") if path.name.startswith(".")]
    assert sorted(client.map(len, ["a", "bc"], pure=False)[0].result() for _ in range(2)) == [1, 1]
    return observer.failures()


def test_faults_do_not_change_the_weights(client, make_training, observer, undisturbed):
    """Several faults in one training, each attributed to the rank that had it."""
    faults = {
        20: FAULTS["a rank raises"],
        60: FAULTS["rank 0 is killed"],
        100: FAULTS["its worker is killed"],
        140: FAULTS["a rank is stopped"],
    }
    messages = survives(client, make_training(timeout=30), observer, undisturbed, faults)
    assert [line.partition(":")[0] for line in messages] == [
        "Rank 1 failed first", "Rank 0 failed first", "Rank 1 failed first", "Rank 1 failed first",
    ]  # fmt: skip
    causes = ("KeyboardInterrupt", "signal 9", "worker was lost", "stopped reporting")
    for line, cause in zip(messages, causes, strict=True):
        assert cause in line


@pytest.mark.skipif(not FULL, reason="each fault alone takes long: DASKMETRICS_FAULTS=full")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_alone(client, make_training, observer, undisturbed, fault):
    (message,) = survives(client, make_training(timeout=8), observer, undisturbed, {60: fault})
    assert message.startswith(f"Rank {fault[0]} failed first")


class Interrupting(Recorder):
    """A user who presses Ctrl-C after some steps."""

    def progressed(self, program, progress):
        super().progressed(program, progress)
        if progress.step >= 60:
            raise KeyboardInterrupt


def test_an_interrupted_training_resumes_with_fewer_ranks(
    client, make_training, observer, undisturbed
):
    """Two halves of a step give the same sum on one rank as on two; with three, its last bits would
    differ.
    """
    training = make_training(patience=0.0)
    with Planted(training, {}) as planted, pytest.raises(KeyboardInterrupt):
        launch(client, training.program(), Interrupting())
    assert len(planted.ranks) == 2 and not planted.orphans()
    before = suite.state_step(suite.resume_states(training.folder)[0])
    assert 20 <= before < training.recipe.steps
    with connect(Cluster(workers=1)) as single:
        launch(single, training.program(), observer)
    assert any("1 rank on 1 node" in line for line in observer.lines)
    assert min(observer.steps) > before
    assert weights(training) == weights(undisturbed)


def test_an_error_that_would_occur_again_ends_the_training(client, make_training, observer):
    wrong = make_training(steps=4, checkpoints=(4,), learning_rate=1e30)
    message = r"(?s)loss is nan.*lower learning_rate.*logs.*run the same command again"
    with pytest.raises(ProcessGroupError, match=message):
        launch(client, wrong.program(), observer)
    assert len(observer.failures()) == 1


def test_too_little_memory_is_an_error_before_anything_starts(client, make_training, observer):
    huge = make_training(width=5120, depth=36, heads=40, context=2048, batch=64)
    with pytest.raises(ConfigError, match=r"2 ranks on .* need about .* GiB are free"):
        launch(client, huge.program(), observer)
    assert not (huge.folder / "corpus").exists()
