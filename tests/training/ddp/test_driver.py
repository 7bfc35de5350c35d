"""Gangs on real workers, and what ends them: raised, killed, stopped, lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core._events import TRAIN
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import _suite as suite
from daskmetrics.training.ddp._driver import GangError, train
from tests.training.ddp.conftest import Listening, Planted, weights

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
    """The folder of a suite that nothing happened to."""
    from tests.training.ddp.conftest import DDP, RECIPE, Job, Listening

    recipe = RECIPE.model_copy(update={"corpus": str(corpus)})
    job = Job("tiny", recipe, tmp_path_factory.mktemp("undisturbed") / "suite", DDP(timeout=60))
    watch = Listening()
    train(client, job, watch)
    assert not watch.blamed() and watch.steps == sorted(set(watch.steps))
    return job


def test_two_ranks_equal_torchrun_to_the_last_bit(undisturbed, tmp_path):
    plain = torchrun(undisturbed, tmp_path, ranks=2)
    assert plain == weights(undisturbed)


def torchrun(job, folder: Path, ranks: int) -> bytes:
    """The weights that the plain script of benchmarks/ddp.py gets from the same examples."""
    order = folder / "order.json"
    order.write_text(job.recipe.model_dump_json())
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
        str(ROOT / "benchmarks" / "ddp.py"), str(order), str(job.folder / "corpus"), str(folder / "plain.safetensors"),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (folder / "plain.safetensors").read_bytes()


def test_the_checkpoints_of_all_steps_are_there(undisturbed):
    assert {path.name for path in undisturbed.folder.iterdir()} == {
        *undisturbed.revisions, "corpus", "resume", "logs", "progress.jsonl",
    }  # fmt: skip
    told = [suite.summary(undisturbed.folder, revision)["loss"] for revision in undisturbed.revisions]
    assert told[-1] < told[0] - 1


def test_the_live_page_hears_of_every_rank(client, undisturbed):
    told = [event for _, event in client.get_events(TRAIN) if event.get("model") == undisturbed.name]
    for rank in (0, 1):
        own = [event for event in told if event["rank"] == rank]
        assert own[-1]["step"] == undisturbed.recipe.steps and own[-1]["tokens_per_second"] > 0
    last = [event["loss"] for event in told if event["step"] == undisturbed.recipe.steps]
    assert len(set(last)) == 1, "the loss is the mean over all ranks"


def survives(client, job, watch, undisturbed, faults) -> list[str]:
    with Planted(job, faults) as planted:
        train(client, job, watch)
    assert not planted.faults, "a fault did not strike"
    assert weights(job) == weights(undisturbed)
    assert not planted.orphans()
    assert not [path for path in job.folder.rglob("*") if path.name.startswith(".")]
    assert sorted(client.map(len, ["a", "bc"], pure=False)[0].result() for _ in range(2)) == [1, 1]
    return watch.blamed()


def test_whatever_strikes_the_weights_are_the_same(client, job, watch, undisturbed):
    """One after another in one training, each blamed on the rank that it struck."""
    faults = {
        20: FAULTS["a rank raises"],
        60: FAULTS["rank 0 is killed"],
        100: FAULTS["its worker is killed"],
        140: FAULTS["a rank is stopped"],
    }
    said = survives(client, job(timeout=8), watch, undisturbed, faults)
    assert [line.partition(":")[0] for line in said] == [
        "Rank 1 failed first", "Rank 0 failed first", "Rank 1 failed first", "Rank 1 failed first",
    ]  # fmt: skip
    for line, word in zip(said, ("KeyboardInterrupt", "signal 9", "worker was lost", "fell silent"), strict=True):
        assert word in line


@pytest.mark.skipif(not FULL, reason="each fault alone takes long: DASKMETRICS_FAULTS=full")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_each_fault_alone(client, job, watch, undisturbed, fault):
    (said,) = survives(client, job(timeout=8), watch, undisturbed, {60: fault})
    assert said.startswith(f"Rank {fault[0]} failed first")


class Interrupting(Listening):
    """A user who presses Ctrl-C once a step was taken."""

    def took(self, job, facts):
        super().took(job, facts)
        if facts["took"] >= 60:
            raise KeyboardInterrupt


def test_interrupted_it_goes_on_with_fewer_ranks(client, job, watch, undisturbed):
    """Two halves of a step give the same sum on one rank as on two; with three, its last bits would differ."""
    own = job(patience=0.0)
    with Planted(own, {}) as planted, pytest.raises(KeyboardInterrupt):
        train(client, own, Interrupting())
    assert len(planted.ranks) == 2 and not planted.orphans()
    before = suite.newest(own.folder)
    assert 20 <= before < own.recipe.steps
    with connect(Cluster(workers=1)) as single:
        train(single, own, watch)
    assert any("rank 0" in line for line in watch.lines) and not any("rank 1" in line for line in watch.lines)
    assert min(watch.steps) > before
    assert weights(own) == weights(undisturbed)


def test_what_would_fail_again_is_not_tried_again(client, job, watch):
    wrong = job(steps=4, checkpoints=(4,), learning_rate=1e30, clip=0.0)
    with pytest.raises(GangError, match=r"(?s)loss is nan.*lower learning_rate.*logs.*run the same command again"):
        train(client, wrong, watch)
    assert len(watch.blamed()) == 1


def test_memory_that_is_not_there_is_refused_before_anything_starts(client, job, watch):
    huge = job(size="12b", width=5120, depth=36, heads=40, context=2048, batch=64)
    with pytest.raises(ConfigError, match=r"2 ranks on .* need about .* GiB are free"):
        train(client, huge, watch)
    assert not (huge.folder / "corpus").exists()
