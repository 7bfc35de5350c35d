"""What Slurm's commands print, and this machine, as offers."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from daskmetrics.cluster.slurm.partitions import parse_partitions
from daskmetrics.config import Cluster
from daskmetrics.planning.offers import jobs_record, local_offers, wait_of
from daskmetrics.planning.offers import slurm_offers as offers

PARTITIONS = (
    "PartitionName=gpu Default=YES MaxTime=1-00:00:00 State=UP\nPartitionName=old State=DOWN"
)
NODES = """\
gpu*|a1|mixed|8/8/0/16|65536|gpu:a100:4(S:0-1)|gpu:a100:3(IDX:0-2)|
gpu*|a2|allocated|16/0/0/16|65536|gpu:a100:4|gpu:a100:4(IDX:0-3)|
gpu*|a3|down*|0/0/16/16|65536|gpu:a100:4|gpu:a100:0|
old|b1|idle|0/16/0/16|65536|(null)|gpu:0|
"""
SITE = parse_partitions(PARTITIONS, NODES)


def profile(**about):
    return Cluster(kind="slurm", **about)


def test_free_gpus_are_counted_on_nodes_that_take_work():
    one, eight = offers("p", profile(), [1, 8], SITE)
    assert (one.device, one.free, one.limit, one.vram_gib) == ("a100", 1, 86400.0, 80)
    assert eight.nodes == 2
    gpu, old = offers("p", profile(partition=["gpu", "old"], gpus_per_job=0), [1], SITE)
    assert (gpu.partition, gpu.problem, old.partition) == ("gpu", None, "old")


def test_a_worker_needs_as_many_free_cpus_of_a_node_as_threads():
    of_three = profile(partition="gpu", gpus_per_job=0, threads=3)
    (one,) = offers("p", of_three, [1], SITE)
    assert one.free == 2  # of eight CPUs
    of_many = Cluster(kind="local", threads=len(os.sched_getaffinity(0)))
    (local,) = local_offers("", of_many, [1])
    assert local.free == 1


@pytest.mark.parametrize(
    ("about", "count", "problem"),
    [
        (
            {"partition": "gpu", "gpus_per_job": 0, "threads": 3},
            16,
            "only 10 usable cpu workers of 3",
        ),
        ({"partition": "gpuu"}, 1, "Did you mean 'gpu'"),
        ({"gpu_type": "h200"}, 1, "has no usable h200, but a100"),
        ({}, 9, "has only 8 usable a100"),
        ({"partition": "old", "gpus_per_job": 0}, 1, "is not up"),
    ],
)
def test_an_impossible_offer_states_its_problem(about, count, problem):
    (one,) = offers("p", profile(**about), [count], SITE)
    assert problem in one.problem


def test_gpus_without_a_type_are_gpus():
    site = parse_partitions(PARTITIONS, "gpu*|n1|mixed|8/8/0/16|65536|gpu:4|gpu:1(IDX:0)|")
    (three,) = offers("p", profile(), [3], site)
    assert (three.device, three.free, three.problem, three.nodes) == ("gpu", 3, None, 1)
    (typed,) = offers("p", profile(gpu_type="a100"), [1], site)
    assert "has no usable a100, but GPUs without a type" in typed.problem


def jobs_of_hours(*waits):
    """Lines of sacct: two jobs of each hour wait so many minutes, and one is cancelled meanwhile."""
    for hour, minutes in enumerate(waits, 10):
        day = f"2030-01-01T{hour}"
        yield f"first|COMPLETED|{day}:00:00|{day}:59:00|60"
        yield f"x|RUNNING|{day}:00:30|{day}:{minutes:02}:30|5"
        yield f"y|CANCELLED by 7|{day}:00:40|{day}:58:00|0"
        yield f"y|PENDING|{day}:00:50|Unknown|0"


def test_past_waits_bound_slurms_estimate():
    past = jobs_record(list(jobs_of_hours(5, 0, *range(10, 18))), "gpu")
    # the hour without a wait does not count
    assert past.waited == (5 * 60, 17 * 60)
    assert wait_of(600, past).seconds.tolist() == [300, 600, 1020]
    few = jobs_record(list(jobs_of_hours(*range(10, 18))), "gpu")
    assert wait_of(600, few).seconds.tolist() == [0, 600, float("inf")]


def test_the_wait_for_another_scheduler_is_not_known():
    factory = {"module": "dask_jobqueue", "class": "PBSCluster"}
    (one,) = local_offers("p", Cluster(kind="factory", factory=factory), [1])
    assert one.wait.expected == float("inf")


def test_the_memory_of_this_machine_is_divided_by_workers(monkeypatch):
    memory = SimpleNamespace(available=64 * 2**30)  # the kernel's cache of files counts, too
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (four,) = local_offers("p", Cluster(kind="local"), [4])
    assert four.host_gib == 16
