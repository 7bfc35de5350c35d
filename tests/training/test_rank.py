from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch.distributed as dist

from daskmetrics.config import DDP, Recipe
from daskmetrics.training import _rank as rank
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp._ranks import Host, Order, orders, places

HOSTS = [Host(f"tcp://10.0.0.{i}:1", f"w{i}", f"node{i // 2}", 8, 0, ("0", "1"), ("L40S",) * 2) for i in range(4)]


def order(tmp_path: Path, store: tuple[str, int] | None = None, **gang: object) -> Order:
    return orders(places(HOSTS, 4), "t", 2, store, tmp_path, ("step0",), Recipe(threads=3), DDP(**gang))[3]


def test_the_absent_are_named_with_node_gpu_and_worker(tmp_path):
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    own = dist.PrefixStore("2", store)
    for there in (0, 1):
        own.set(f"here/{there}", "1")
    dist.PrefixStore("1", store).set("here/2", "1")  # of an earlier attempt: it does not count
    with pytest.raises(TimeoutError, match=r"1 of 4 ranks did not arrive in 0 s: rank 2: node node1, GPU 0, worker w2"):
        rank._meet(own, order(tmp_path), timeout=0.2)


def test_every_rank_of_a_machine_has_a_gpu_of_its_own():
    assert [str(place) for place in places(HOSTS, 4)][1:3] == [
        "rank 1: node node0, GPU 1, worker w1",
        "rank 2: node node1, GPU 0, worker w2",
    ]


def test_a_rank_gets_the_network_and_the_variables_that_were_asked_for(tmp_path):
    asked = order(tmp_path, interface="ib0", environment={"NCCL_IB_HCA": "mlx5_0", "NCCL_SOCKET_IFNAME": "ib1"})
    got = worker._environment(asked, "127.0.0.1")
    wanted = {
        "GLOO_SOCKET_IFNAME": "ib0",
        "NCCL_SOCKET_IFNAME": "ib1",
        "NCCL_IB_HCA": "mlx5_0",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "3",
    }
    assert {name: got[name] for name in wanted} == wanted


def test_without_a_name_the_interface_is_that_of_the_workers_address(tmp_path):
    assert worker._environment(order(tmp_path), "127.0.0.1")["GLOO_SOCKET_IFNAME"] == "lo"


def test_what_was_noted_of_steps_to_be_taken_again_is_dropped(tmp_path):
    path = tmp_path / "progress.jsonl"
    path.write_text('{"step": 5, "loss": 1}\n{"step": 10, "loss": 1}\n{"step": 15, "loss": 1}\n{"step": 2')
    rank._forget(path, after=10)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [5, 10]


def test_only_the_first_rank_tells_of_steps(tmp_path):
    ends = os.pipe()
    voice = rank.Voice(ends[1], order(tmp_path))
    voice.took(3, 1.5)
    voice.failed(ValueError("wrong"))
    said = json.loads(os.read(ends[0], 1000))
    assert (said["rank"], said["error"], said["permanent"]) == (3, "ValueError: wrong", False)
    assert not (tmp_path / "progress.jsonl").exists()
    for end in ends:
        os.close(end)
