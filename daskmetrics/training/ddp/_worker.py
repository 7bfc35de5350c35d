"""What runs on a worker: it starts a rank as a child process, relays what that says, and ends it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from distributed import get_worker

from daskmetrics.core._events import TRAIN
from daskmetrics.training.ddp._ranks import Host, Order

POLL = 0.1  # seconds
_STORES: dict[str, Any] = {}
"""Meeting places that this worker holds, by topic; they outlive the ranks."""


def inventory(dask_worker: Any) -> Host:
    """This worker, its machine and its GPUs, without waking them."""
    models = [
        line.partition(":")[2].strip()
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in file.read_text().splitlines()
        if line.startswith("Model:")
    ]
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = [str(i) for i in range(len(models))] if named is None else named.split(",")
    return Host(
        address=dask_worker.address,
        name=str(dask_worker.name),
        node=socket.gethostname(),
        cores=len(os.sched_getaffinity(0)),
        available=psutil.virtual_memory().available,
        gpus=tuple(gpu.strip() for gpu in seen if gpu.strip()) if models else (),
        models=tuple(models),
    )


def open_store(topic: str, timeout: float) -> tuple[str, int]:
    """Open the place where ranks meet, on a free port of the address that Dask reaches this worker by."""
    from datetime import timedelta

    import torch.distributed as dist

    host = _own_address()
    if topic not in _STORES:
        listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        port = listening.getsockname()[1]
        _STORES[topic] = dist.TCPStore(  # type: ignore[attr-defined]
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout),
            master_listen_fd=listening.detach(),  # otherwise it would listen on all interfaces
        )
    return host, _STORES[topic].port


def close_store(topic: str) -> None:
    """Close it."""
    _STORES.pop(topic, None)


def host(order: Order) -> int:
    """Start a rank and stay with it; the exit code of its process.

    The rank is killed when its task is cancelled, and dies with this worker, however that ends.
    """
    worker = get_worker()
    order.log.parent.mkdir(parents=True, exist_ok=True)
    with order.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "daskmetrics.training._rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=_environment(order, _own_address()),
            start_new_session=True,  # its loaders end with it, and it gets a fair share of a busy machine
        )
    try:
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once; its exit code will tell
            process.stdin.write(order.to_json().encode() + b"\n")
            process.stdin.close()
        _relay(process, order, worker)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        worker.log_event(order.topic, {"rank": order.rank, "attempt": order.attempt, "code": code})
    return code


def _relay(process: subprocess.Popen[bytes], order: Order, worker: Any) -> None:
    """Pass on what the rank says, until it ends or is no longer wanted."""
    assert process.stdout is not None
    pipe, held = process.stdout.fileno(), b""
    while _is_wanted(worker, order.key):
        if not select.select([pipe], [], [], POLL)[0]:
            if process.poll() is not None:
                return
            continue
        block = os.read(pipe, 1 << 16)
        if not block:
            break
        *lines, held = (held + block).split(b"\n")
        for line in lines:
            said = json.loads(line)
            worker.log_event(order.topic, said)
            if "took" in said:
                worker.log_event(TRAIN, _shown(order, said))
    deadline = time.monotonic() + 10
    while _is_wanted(worker, order.key) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL / 10)  # it has said its last word, and is about to end


def _shown(order: Order, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """A rank's step as the live page shows it; what all ranks did together is shared evenly."""
    speed = said["rate"] and said["rate"] * int(str(order.recipe["context"])) / len(order.names)
    return {
        "model": order.model,
        "rank": order.rank,
        "step": said["took"],
        "loss": said["loss"],
        "tokens_per_second": speed,
    }


def _is_wanted(worker: Any, key: str) -> bool:
    task = worker.state.tasks.get(key)
    return task is not None and task.state == "executing"


def _own_address() -> str:
    return str(get_worker().address).rpartition("://")[2].rpartition(":")[0].strip("[]")


def _environment(order: Order, address: str) -> Mapping[str, str]:
    """This worker's variables with those of the rank."""
    interface = order.interface or _interface(address)
    names = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), interface) if interface else {}
    asked = {str(name): str(value) for name, value in dict(order.gang["environment"] or {}).items()}  # type: ignore[call-overload]
    local = {"LOCAL_RANK": str(order.local), "LOCAL_WORLD_SIZE": str(order.neighbours)}
    threads = {"OMP_NUM_THREADS": str(order.recipe["threads"]), "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **names, **local, **threads, **asked}


def _interface(address: str) -> str | None:
    """The name of the network interface with this address."""
    for name, own in psutil.net_if_addrs().items():
        if any(each.address == address for each in own):
            return str(name)
    return None
