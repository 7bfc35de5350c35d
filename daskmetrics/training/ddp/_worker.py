"""What runs on a worker: it starts a rank as a child process, relays its reports, and ends it."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil
from distributed import get_worker

from daskmetrics.core.events import TRAIN
from daskmetrics.core.machine import gpu_models, visible_gpus
from daskmetrics.core.telemetry import RANK
from daskmetrics.training.ddp.ranks import RankHost, RankSpec

POLL = 0.1  # seconds
MEASURE = 2.0  # seconds between two measurements of a rank
_STORES: dict[str, Any] = {}  # TCPStores that this worker holds, by topic; they outlive the ranks


def inventory(dask_worker: Any) -> RankHost:
    """This worker, its machine and its GPUs, read without initialising CUDA."""
    models = gpu_models()
    return RankHost(
        address=dask_worker.address,
        name=str(dask_worker.name),
        node=socket.gethostname(),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        available=psutil.virtual_memory().available,
        gpus=tuple(visible_gpus()) if models else (),
        models=tuple(models),
    )


def open_store(topic: str, timeout: float) -> tuple[str, int]:
    """Open the TCPStore where ranks meet, on a free port of this worker's Dask address."""
    from datetime import timedelta

    import torch.distributed as dist

    host = _worker_address()
    if topic not in _STORES:
        listening = socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
        port = listening.getsockname()[1]
        _STORES[topic] = dist.TCPStore(  # type: ignore[attr-defined]
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
            master_listen_fd=listening.detach(),  # without it the store listens on all interfaces
        )
    return host, _STORES[topic].port


def close_store(topic: str) -> None:
    """Close the store of a topic."""
    _STORES.pop(topic, None)


def run_rank(spec: RankSpec) -> int:
    """Run a rank as a child process; return its exit code.

    The rank is killed when its Dask task is cancelled or this worker ends.
    """
    worker = get_worker()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    with spec.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "daskmetrics.training._rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(spec, _worker_address()),
            # its loaders end with it, and it gets a fair share of a busy machine
            start_new_session=True,
        )
    worker.loop.add_callback(worker.metrics.__setitem__, RANK, _RankUse(process.pid))
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once; its exit code is reported below
            pickle.dump(spec, process.stdin)
            process.stdin.close()
        _relay(process, spec, worker)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        worker.loop.add_callback(worker.metrics.pop, RANK, None)
        worker.log_event(spec.topic, {"rank": spec.rank, "attempt": spec.attempt, "code": code})
    return code


class _RankUse:
    """CPU in per cent of one, and memory in bytes, of a rank and its loaders; the worker reports
    it.
    """

    def __init__(self, pid: int) -> None:
        self._rank = psutil.Process(pid)
        self._measured = time.monotonic()
        self._seconds = 0.0
        self._use: dict[str, float] = {}

    def __call__(self, dask_worker: Any) -> dict[str, float]:
        elapsed = time.monotonic() - self._measured
        if elapsed < MEASURE:
            return self._use
        seconds, memory = 0.0, 0
        for process in (self._rank, *self._rank.children(recursive=True)):
            with suppress(psutil.Error):  # a loader that has just ended
                times = process.cpu_times()
                seconds += times.user + times.system
                memory += process.memory_info().rss
        self._use = {"cpu": 100 * max(0.0, seconds - self._seconds) / elapsed, "memory": memory}
        self._measured += elapsed
        self._seconds = seconds
        return self._use


def _relay(process: subprocess.Popen[bytes], spec: RankSpec, worker: Any) -> None:
    """Pass on the rank's reports until it ends or its task is cancelled."""
    assert process.stdout is not None
    pipe, begun_line = process.stdout.fileno(), b""
    while _is_executing(worker, spec.key):
        if not select.select([pipe], [], [], POLL)[0]:
            if process.poll() is not None:
                return
            continue
        block = os.read(pipe, 1 << 16)
        if not block:
            break
        *lines, begun_line = (begun_line + block).split(b"\n")
        for line in lines:
            report = json.loads(line)
            worker.log_event(spec.topic, report)
            if "took" in report:
                worker.log_event(TRAIN, _page_event(spec, report))
    deadline = time.monotonic() + 10
    while (
        _is_executing(worker, spec.key) and process.poll() is None and time.monotonic() < deadline
    ):
        time.sleep(POLL / 10)  # it has closed its output and is about to end


def _page_event(spec: RankSpec, report: Mapping[str, Any]) -> Mapping[str, Any]:
    """A rank's step for the dashboard; each rank gets an equal share of the total speed."""
    speed = None
    if report["rate"]:
        speed = report["rate"] * spec.training.recipe.context / len(spec.placements)
    return {
        "model": spec.training.name,
        "rank": spec.rank,
        "step": report["took"],
        "loss": report["loss"],
        "tokens_per_second": speed,
    }


def _is_executing(worker: Any, key: str) -> bool:
    task = worker.state.tasks.get(key)
    return task is not None and task.state == "executing"


def _worker_address() -> str:
    return str(get_worker().address).rpartition("://")[2].rpartition(":")[0].strip("[]")


def _environment(spec: RankSpec, address: str) -> Mapping[str, str]:
    """The rank's environment variables: this worker's, then its own."""
    placement = spec.placement
    interface = spec.training.interface
    for name, addresses in psutil.net_if_addrs().items():
        if not interface and address in {entry.address for entry in addresses}:
            interface = name
    network = {}
    if interface:
        network = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return {
        **network,
        **os.environ,
        "LOCAL_RANK": str(placement.local),
        "LOCAL_WORLD_SIZE": str(placement.neighbours),
        "OMP_NUM_THREADS": str(spec.training.recipe.threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
