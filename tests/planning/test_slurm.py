"""The recorded output of Slurm's commands as values and offers."""

from __future__ import annotations

import pytest

from daskmetrics.cluster.slurm._state import parse_state, recorded_state
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.planning._slurm import offers
from tests.slurm.site import ROOT

RECORDED = ROOT / "docs" / "plan" / "site"
PARTITIONS = "PartitionName=gpu Default=YES MaxTime=1-00:00:00 State=UP\nPartitionName=old State=DOWN"
NODES = """\
gpu*|a1|mixed|8/8/0/16|65536|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-2)|
gpu*|a2|allocated|16/0/0/16|65536|gpu:a100:4|gpu:a100:4(IDX:0-3)|
gpu*|a3|down*|0/0/16/16|65536|gpu:a100:4|gpu:a100:0|
old|b1|idle|0/16/0/16|65536|(null)|gpu:0|
"""
JOBS = "RUNNING|1:00:00|gpu|1|gres/gpu:a100:4\nRUNNING|30:00|gpu|1|gres:gpu:a100:3\nRUNNING|UNLIMITED|old|1|N/A\n"


def profile(**about):
    return Cluster(kind="slurm", **about)


def test_free_gpus_are_counted_on_nodes_that_take_work():
    (one,) = offers("p", profile(), [1], parse_state(NODES, PARTITIONS, JOBS, at=0.0, live=False))
    assert (one.device, one.free, one.wait.value, one.limit, one.vram_gib) == ("a100", 1, 0.0, 86400.0, 80)


def test_the_wait_follows_from_time_limits_of_running_jobs():
    state = parse_state(NODES, PARTITIONS, JOBS, at=0.0, live=False)
    four, eight = offers("p", profile(), [4, 8], state)
    assert (four.wait.value, eight.wait.value, eight.nodes) == (1800.0, 3600.0, 2)
    assert four.wait.source == "time limits of running jobs" and four.wait.interval.low == 0.0
    queued = parse_state(NODES, PARTITIONS, JOBS + "PENDING|1:00:00|gpu|1|gres/gpu:4\n", at=0.0, live=False)
    (behind,) = offers("p", profile(), [4], queued)
    assert "1 jobs ahead" in behind.wait.source and behind.wait.interval.high == 3600.0


@pytest.mark.parametrize(
    ("about", "count", "problem"),
    [
        ({"partition": "gpuu"}, 1, "Did you mean 'gpu'"),
        ({"gpu_type": "h200"}, 1, "has no h200, but a100"),
        ({}, 13, "has only 12 a100"),
        ({"partition": "old", "gpus_per_job": 0}, 1, "is not up"),
    ],
)
def test_an_impossible_offer_states_its_problem(about, count, problem):
    (one,) = offers("p", profile(**about), [count], parse_state(NODES, PARTITIONS, JOBS, at=0.0, live=False))
    assert problem in one.problem


def test_each_of_several_partitions_is_an_offer():
    state = parse_state(NODES, PARTITIONS, JOBS, at=0.0, live=False)
    gpu, old = offers("p", profile(partition=["gpu", "old"], gpus_per_job=0), [1], state)
    assert (gpu.partition, gpu.problem, old.partition) == ("gpu", None, "old") and "not up" in old.problem


def test_a_recorded_state_is_read():
    state = recorded_state(RECORDED)
    (all_of_it,) = offers("p", profile(gpu_type="l40s"), [32], state)
    assert (all_of_it.nodes, all_of_it.free, state.live) == (8, 28, False)
    with pytest.raises(ConfigError, match=r"sinfo\.txt is missing"):
        recorded_state(ROOT)
