from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import Program, RankHost, RankSpec, place_ranks
from daskmetrics.training.progress import PIPE, progress

HOSTS = [
    RankHost(
        f"tcp://10.0.0.{i}:1", f"w{i}", f"node{i // 2}", range(8), 0, ("0", "1"), ("L40S",) * 2
    )
    for i in range(4)
]


def environment(
    tmp_path: Path, hosts: Sequence[RankHost], interface: str | None = None
) -> dict[str, str]:
    """That of the last rank, in the second attempt."""
    program = Program("t", ("t.py",), tmp_path, 4, least=1, interface=interface)
    placements = place_ranks(hosts, 4)
    spec = RankSpec(program, placements, len(hosts) - 1, "t", 2, str(tmp_path))
    return worker._environment(spec, ("10.0.0.0", 5))


def test_the_ranks_of_a_machine_have_different_gpus():
    assert [str(place) for place in place_ranks(HOSTS, 4)][1:3] == [
        "rank 1: node node0, GPU 1, worker w1",
        "rank 2: node node1, GPU 0, worker w2",
    ]


def test_a_rank_gets_the_configured_network_and_the_variables_of_its_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib1")
    variables = environment(tmp_path, HOSTS, interface="ib0")
    expected = {
        "GLOO_SOCKET_IFNAME": "ib0",
        "NCCL_SOCKET_IFNAME": "ib1",
        "NCCL_IB_HCA": "mlx5_0",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "TORCHELASTIC_RESTART_COUNT": "1",
    }
    assert {name: variables[name] for name in expected} == expected


def test_the_default_interface_is_that_of_the_workers_address(tmp_path):
    here = RankHost("tcp://127.0.0.1:1", "w", "node", (0,), 0)
    assert environment(tmp_path, [here])["GLOO_SOCKET_IFNAME"] == "lo"


def test_the_last_step_is_always_reported(monkeypatch):
    ends = os.pipe()
    monkeypatch.setenv(PIPE, str(ends[1]))
    for step in range(1, 1001):
        progress(step, 1000, loss=0.5)
    lines = os.read(ends[0], 1 << 16).splitlines()
    assert json.loads(lines[-1]) == {"step": 1000, "total": 1000, "loss": 0.5}
    assert len(lines) < 500
    for end in ends:
        os.close(end)
