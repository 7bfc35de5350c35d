"""What Slurm's commands print, and this machine, as offers."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil
import pytest

from daskmetrics.cluster.slurm.partitions import parse_partitions
from daskmetrics.config import Cluster
from daskmetrics.planning.offers import local_offers
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


def test_the_memory_of_this_machine_is_divided_by_workers(monkeypatch):
    memory = SimpleNamespace(available=64 * 2**30)  # the kernel's cache of files counts, too
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (four,) = local_offers("p", Cluster(kind="local"), [4])
    assert four.host_gib == 16
