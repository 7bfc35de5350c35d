"""What runs on a worker: it starts a rank as a child process, relays its reports, and ends it."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from distributed import Worker, get_worker

from daskmetrics.core.events import TRAIN
from daskmetrics.core.machine import VISIBLE, gpu_models, visible_gpus
from daskmetrics.core.telemetry import RANK
from daskmetrics.training.ddp.ranks import RankHost, RankSpec
from daskmetrics.training.progress import PIPE, printed

POLL = 0.1  # seconds
HEARTBEAT = 0.5  # seconds between two reports that a rank lives
LINES = 15  # of what a rank has printed last
TAIL = 8192  # bytes, in which they are
STEPS = {"step", "total"}  # what a line with a loss may lack
MEASURE = 2.0  # seconds between two measurements of a rank
_STORES: dict[str, Any] = {}  # TCPStores that this worker holds, by topic; they outlive the ranks


def inventory(dask_worker: Worker) -> RankHost:
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
        offers_gpu=bool(dask_worker.state.total_resources.get("GPU")),
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
    reading, writing = os.pipe()
    with spec.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "daskmetrics.training._rank", *spec.program.words],
            cwd=spec.directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(spec, _worker_address()) | {PIPE: str(writing)},
            pass_fds=[writing],
            # its loaders end with it, and it gets a fair share of a busy machine
            start_new_session=True,
        )
    os.close(writing)
    worker.loop.add_callback(
        worker.metrics.__setitem__, RANK, _RankUse(psutil.Process(process.pid))
    )
    try:
        _Relay(process, reading, spec, worker).follow()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        os.close(reading)
        worker.loop.add_callback(worker.metrics.pop, RANK, None)
        ending = {"rank": spec.rank, "attempt": spec.attempt, "code": code}
        worker.log_event(spec.topic, {**ending, "lines": _last_lines(spec.log)})
    return code


def _last_lines(log: Path) -> list[str]:
    """The end of what a rank has printed."""
    with log.open(errors="replace") as file:
        file.seek(max(0, log.stat().st_size - TAIL))  # a long training prints gigabytes
        lines = deque(filter(str.strip, file), LINES)
    return [line.rstrip()[-300:] for line in lines]


@dataclass
class _RankUse:
    """CPU in per cent of one, and memory in bytes, of a rank and its loaders; the worker reports
    it.
    """

    rank: psutil.Process
    measured: float = field(default_factory=time.monotonic)
    seconds: float = 0.0
    use: dict[str, float] = field(default_factory=dict)

    def __call__(self, dask_worker: Worker) -> dict[str, float]:
        elapsed = time.monotonic() - self.measured
        if elapsed < MEASURE:
            return self.use
        seconds, memory = 0.0, 0
        for process in (self.rank, *self.rank.children(recursive=True)):
            with suppress(psutil.Error):  # a loader that has just ended
                times = process.cpu_times()
                seconds += times.user + times.system
                memory += process.memory_info().rss
        self.use = {"cpu": 100 * max(0.0, seconds - self.seconds) / elapsed, "memory": memory}
        self.measured += elapsed
        self.seconds = seconds
        return self.use


@dataclass
class _Relay:
    """Passes on what a rank reports, and that it lives, until it ends or its task is cancelled."""

    process: subprocess.Popen[bytes]
    pipe: int
    spec: RankSpec
    worker: Worker
    begun_line: bytes = b""
    read: int = 0  # bytes of the log
    reports_itself: bool = False  # so that its lines are not read
    beaten: float = 0.0
    latest: dict[str, float] = field(default_factory=dict)  # what was reported, and when
    reported: float = 0.0

    def follow(self) -> None:
        while self._is_executing() and self.process.poll() is None:
            if select.select([self.pipe], [], [], POLL)[0] and not self._receive():
                time.sleep(POLL)  # it has closed the pipe, and may go on
            self._beat()
        if self.process.poll() is not None:
            while select.select([self.pipe], [], [], 0)[0] and self._receive():
                pass
            self._read_log()

    def _is_executing(self) -> bool:
        task = self.worker.state.tasks.get(self.spec.key)  # the event loop changes them meanwhile
        return task is not None and task.state == "executing"

    def _send(self, **facts: object) -> None:
        ranked = {"rank": self.spec.rank, "attempt": self.spec.attempt, **facts}
        self.worker.log_event(self.spec.topic, ranked)

    def _beat(self) -> None:
        """Report twice a second that the process lives and is not stopped, and what it printed."""
        if time.monotonic() - self.beaten < HEARTBEAT:
            return
        self.beaten = time.monotonic()
        with suppress(psutil.Error):  # it ends meanwhile
            if psutil.Process(self.process.pid).status() != psutil.STATUS_STOPPED:
                self._send()
        self._read_log()

    def _receive(self) -> bool:
        """Handle reports from the pipe; False once it is closed."""
        block = os.read(self.pipe, 1 << 16)
        *lines, self.begun_line = (self.begun_line + block).split(b"\n")
        for line in lines:
            facts = json.loads(line)
            if "step" in facts:
                self.reports_itself = True
                self._progress(facts)
            else:
                self._send(**facts)
        return bool(block)

    def _read_log(self) -> None:
        """Look for progress in what rank 0 has printed since the last time."""
        if self.spec.rank != 0 or self.reports_itself:
            return
        with self.spec.log.open("rb") as file:
            file.seek(self.read)
            block = file.read(1 << 20)
        self.read += len(block)
        facts = printed(block.decode(errors="replace"))
        if "loss" in facts:
            facts = {name: self.latest[name] for name in STEPS & set(self.latest)} | facts
        if "step" in facts:
            self._progress(facts)

    def _progress(self, facts: Mapping[str, float | None]) -> None:
        """Send a step with its rates since the one before."""
        clock = time.monotonic()
        elapsed = max(clock - self.reported, 1e-9)
        numbers = {name: value for name, value in facts.items() if value is not None}
        step = int(numbers["step"])
        rates = {}
        if step > self.latest.get("step", step):
            for name in {"step", "samples", "tokens"} & numbers.keys() & self.latest.keys():
                rates[name] = (numbers[name] - self.latest[name]) / elapsed
        self.latest = numbers
        self.reported = clock
        progress = {
            "step": step,
            "total": numbers.get("total"),
            "numbers": numbers,
            "rates": rates,
            "is_of_epoch": not self.reports_itself,
        }
        self._send(progress=progress, step=step)
        tokens = rates.get("tokens")
        self.worker.log_event(
            TRAIN,
            {
                "model": self.spec.program.name,
                "rank": self.spec.rank,
                "step": step,
                "loss": numbers.get("loss"),
                # each rank gets an equal share of the total speed
                "tokens_per_second": tokens and tokens / len(self.spec.placements),
            },
        )


def _worker_address() -> str:
    host_and_port = str(get_worker().address).rpartition("://")[2]
    return host_and_port.rpartition(":")[0].strip("[]")


def _environment(spec: RankSpec, address: str) -> dict[str, str]:
    """The rank's environment variables: this worker's, then its own."""
    interface = spec.program.interface
    for name, addresses in psutil.net_if_addrs().items():
        if not interface and address in {entry.address for entry in addresses}:
            interface = name
    network = {}
    if interface:
        network = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    gpu = spec.placement.gpu
    visible = {}
    if gpu is not None and spec.variables["LOCAL_WORLD_SIZE"] == "1":
        visible = {VISIBLE: gpu}
    return {
        **network,
        **os.environ,
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",  # what was printed last is what explains an error
        **visible,
        **spec.variables,
    }
