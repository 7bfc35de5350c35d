from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch.distributed as dist

from daskmetrics.config import DDP, Recipe
from daskmetrics.training import _rank as rank
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import DdpTraining, RankHost, RankSpec, place_ranks

HOSTS = [
    RankHost(
        f"tcp://10.0.0.{i}:1", f"w{i}", f"node{i // 2}", range(8), 0, ("0", "1"), ("L40S",) * 2
    )
    for i in range(4)
]


def spec(
    tmp_path: Path,
    store: tuple[str, int] | None = None,
    interface: str | None = None,
    **ddp: object,
) -> RankSpec:
    training = DdpTraining("t", Recipe(threads=3), tmp_path, DDP(**ddp), interface)
    return RankSpec(training, place_ranks(HOSTS, 4), 3, "t", 2, store)


def test_missing_ranks_are_named_with_node_gpu_and_worker(tmp_path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    own = dist.PrefixStore("2", store)
    for arrived in (0, 1):
        own.set(f"here/{arrived}", "1")
    dist.PrefixStore("1", store).set("here/2", "1")  # of an earlier attempt: it does not count
    with pytest.raises(
        TimeoutError,
        match=r"1 of 4 ranks did not arrive in 0 s: rank 2: node node1, GPU 0, worker w2",
    ):
        rank._wait_for_ranks(own, spec(tmp_path), timeout=0.2)


def test_the_ranks_of_a_machine_have_different_gpus():
    assert [str(place) for place in place_ranks(HOSTS, 4)][1:3] == [
        "rank 1: node node0, GPU 1, worker w1",
        "rank 2: node node1, GPU 0, worker w2",
    ]


def test_a_rank_gets_the_configured_network_and_the_variables_of_its_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib1")
    configured = spec(tmp_path, interface="ib0")
    environment = worker._environment(configured, "127.0.0.1")
    expected = {
        "GLOO_SOCKET_IFNAME": "ib0",
        "NCCL_SOCKET_IFNAME": "ib1",
        "NCCL_IB_HCA": "mlx5_0",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "3",
    }
    assert {name: environment[name] for name in expected} == expected


def test_the_default_interface_is_that_of_the_workers_address(tmp_path):
    assert worker._environment(spec(tmp_path), "127.0.0.1")["GLOO_SOCKET_IFNAME"] == "lo"


def test_the_lines_of_steps_to_be_repeated_are_removed(tmp_path):
    path = tmp_path / "progress.jsonl"
    path.write_text(
        '{"step": 5, "loss": 1}\n{"step": 10, "loss": 1}\n{"step": 15, "loss": 1}\n{"step": 2'
    )
    rank._truncate(path, after=10)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [5, 10]


def test_only_rank_0_writes_the_progress_file(tmp_path):
    ends = os.pipe()
    reporter = rank.RankReporter(ends[1], spec(tmp_path))
    reporter.step_done(3, 1.5)
    reporter.failed(ValueError("wrong"))
    report = json.loads(os.read(ends[0], 1000))
    assert (report["rank"], report["error"], report["permanent"]) == (3, "ValueError: wrong", False)
    assert not (tmp_path / "progress.jsonl").exists()
    for end in ends:
        os.close(end)
