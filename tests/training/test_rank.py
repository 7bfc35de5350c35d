from __future__ import annotations

import io
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from daskmetrics.domain.events import TRAIN
from daskmetrics.domain.training import Cause, RankEnding, failed_ranks
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import (
    Program,
    RankHost,
    RankSpec,
    place_ranks,
)
from daskmetrics.training.progress import PIPE, progress

HOSTS = [
    RankHost(
        f"tcp://10.0.0.{i}:1",
        f"w{i}",
        f"node{i // 2}",
        range(8),
        0,
        ("0", "1"),
        "L40S",
        interface="ib0",
    )
    for i in range(4)
]


def environment(tmp_path: Path, hosts: Sequence[RankHost]) -> dict[str, str]:
    """That of the last rank, in the second attempt."""
    program = Program("t", ("t.py",), tmp_path, 4, least=1)
    spec = RankSpec(program, place_ranks(hosts, 4), len(hosts) - 1, "t-2", 2, str(tmp_path))
    return worker._environment(spec, ("10.0.0.0", 5))


def test_a_rank_gets_the_configured_network_and_worker_variables(tmp_path, monkeypatch):
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib1")
    variables = environment(tmp_path, HOSTS)
    expected = {
        "GLOO_SOCKET_IFNAME": "ib0",
        "NCCL_SOCKET_IFNAME": "ib1",
        "NCCL_IB_HCA": "mlx5_0",
        "RANK": "3",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_RUN_ID": "t",
    }
    assert {name: variables[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(("0", "1"), ("1", "2", "0", "1")), (("3",), ("0", "1", "1", "2"))],
    ids=["both GPUs visible", "a GPU for each worker"],
)
def test_a_rank_takes_the_gpu_with_the_number_of_its_local_rank(tmp_path, gpus, expected):
    hosts = [RankHost(f"tcp://a:{i}", f"w{i}", "a", (0,), 0, gpus, "L40S") for i in range(2)]
    variables = environment(tmp_path, hosts)
    names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    assert tuple(variables[name] for name in names) == expected
    assert place_ranks(hosts, 2)[1].gpu == gpus[-1]


@pytest.mark.parametrize(
    ("words", "samples"),
    [
        ("--batch-size 8", 160),
        ("--batch-size 8 --grad_accum 2", None),
        ("--eval_batch_size 8", None),
    ],
    ids=["batch", "accumulated", "none"],
)
def test_the_samples_of_a_bar_follow_from_the_batch_of_a_rank(tmp_path, words, samples):
    program = Program("t", ("t.py", *words.split()), tmp_path, 2, least=1)
    spec = RankSpec(program, place_ranks(HOSTS, 2), 0, "t", 1, "")
    events: list[tuple[str, dict[str, Any]]] = []
    observed = SimpleNamespace(log_event=lambda *event: events.append(event))
    printed = io.BytesIO(b"train:   0%|   | 0/40 [\rtrain:  25%|#  | 10/40 [00:01<\r")
    rank = worker._Rank(None, printed, io.BytesIO(), spec, observed, {})
    rank._read()
    assert events[-2][1]["progress"]["step"] == 10
    assert events[-2][1]["progress"]["numbers"].get("samples") == samples


def test_the_latest_step_is_passed_on_with_its_rates(tmp_path, monkeypatch):
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    monkeypatch.setenv(PIPE, str(writing))
    spec = RankSpec(Program("t", (), tmp_path, 1, least=1), place_ranks(HOSTS, 1), 0, "t", 1, "")
    events: list[tuple[str, dict[str, Any]]] = []
    observed = SimpleNamespace(log_event=lambda *event: events.append(event))
    with FileIO(reading) as reports:
        rank = worker._Rank(None, io.BytesIO(), reports, spec, observed, {})
        for last in (100, 1000):
            for step in range(last - 99, last + 1):
                progress(step, 1000, loss=0.5, samples=8 * step)
            os.write(writing, b'{"step": ')  # a line that is not whole yet
            rank._read()
            os.write(writing, b"1}\n")
    os.close(writing)
    (_, first), _, (_, second), (topic, shown) = events
    assert first["progress"]["rates"] == {} and topic == TRAIN
    progressed = second["progress"]
    assert progressed["step"] == shown["step"] == progressed["total"] == 1000
    assert progressed["numbers"]["loss"] == shown["loss"] == 0.5
    assert progressed["rates"]["samples"] == pytest.approx(8 * progressed["rates"]["step"])


PARTNER = RankEnding(0, Cause.PARTNER, "closed", since=50.0)


@pytest.mark.parametrize(
    ("endings", "failed"),
    [
        ([RankEnding(0, Cause.DONE), RankEnding(1, Cause.DONE)], None),
        ([RankEnding(0, Cause.DONE), RankEnding(1, Cause.ENDED)], 1),
        ([PARTNER, RankEnding(1, Cause.KILLED, since=51.0)], 1),
        ([PARTNER, RankEnding(1, Cause.LOST)], 1),
        ([RankEnding(0, Cause.KILLED, since=49.0), RankEnding(1, Cause.LOST, since=51.0)], 1),
        ([PARTNER, RankEnding(1, Cause.STOPPED, since=51.0), RankEnding(2, Cause.ENDED)], 1),
        ([RankEnding(rank, Cause.STOPPED, since=since) for rank, since in enumerate((9, 8))], 1),
        # its worker hangs, or is busy, so that others wait for it
        ([PARTNER, RankEnding(1, Cause.MISSING, since=51.0)], 1),
        ([RankEnding(0, Cause.ERROR), RankEnding(1, Cause.MISSING)], 0),
        ([PARTNER, RankEnding(1, Cause.ERROR, "ValueError", since=51.0)], 1),
        ([PARTNER, RankEnding(1, Cause.PARTNER, "reset", since=51.0)], 0),
    ],
)
def test_the_rank_that_failed_first_is_found(endings, failed) -> None:
    for order in (endings, endings[::-1]):
        failure = next(iter(failed_ranks(order)), None)
        assert (failure and failure.rank) == failed
