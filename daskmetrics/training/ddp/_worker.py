"""What runs on a worker: it starts a rank as a child process, relays its progress, judges how it
ended, and ends it.
"""

from __future__ import annotations

import json
import math
import os
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
from threading import Thread
from typing import IO, Any

import psutil
from distributed import Worker, get_worker
from distributed.comm import get_address_host

from daskmetrics.core.events import TRAIN
from daskmetrics.core.machine import VISIBLE, gpu_models, visible_gpus
from daskmetrics.core.telemetry import RANK
from daskmetrics.training.ddp.ranks import Cause, RankHost, RankSpec, gpu_of
from daskmetrics.training.progress import PIPE, printed

POLL = 0.2  # seconds between two looks at a rank and what it prints
STOPPED = 5.0  # seconds after which a rank that is stopped counts as failed, if others fail
GRACE = 1.0  # seconds in which a rank that has reported an error prints it and ends
LINES = 15  # of what a rank has printed last
TAIL = 8192  # bytes, in which they are
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


def open_store(topic: str, address: str, timeout: float) -> tuple[str, int]:
    """Open the TCPStore where ranks meet, on a free port of this worker's Dask address; its host
    and port.
    """
    from datetime import timedelta

    import torch.distributed as dist

    host = get_address_host(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family)
    port = listening.getsockname()[1]
    _STORES[topic] = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=timedelta(seconds=timeout),
        master_listen_fd=listening.detach(),  # without it the store listens on all interfaces
    )
    return host, port


def close_store(topic: str) -> None:
    """Close the store of a topic."""
    _STORES.pop(topic, None)


def run_rank(spec: RankSpec, store: tuple[str, int]) -> None:
    """Run a rank as a child process until it ends, fails, or its Dask task is cancelled; then
    report how it ended.

    The rank is killed when its Dask task is cancelled or this worker ends.
    """
    worker = get_worker()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    with spec.log.open("wb") as log:
        process = psutil.Popen(
            [sys.executable, "-P", "-m", "daskmetrics.training._rank", *spec.program.words],
            cwd=spec.directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(spec, store) | {PIPE: str(writing)},
            pass_fds=[writing],
            # its loaders end with it, and it gets a fair share of a busy machine
            start_new_session=True,
        )
    os.close(writing)
    with spec.log.open("rb") as printed_lines:
        rank = _Rank(process, printed_lines, spec, worker)
        # the worker reports it with each heartbeat
        worker.loop.add_callback(worker.metrics.__setitem__, RANK, rank.measure)
        try:
            rank.send(begun=spec.rank)
            rank.follow(reading)
        finally:
            ending = rank.ending()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            worker.loop.add_callback(worker.metrics.pop, RANK, None)
            rank.send(ending={**ending, "lines": _last_lines(spec.log)})


def _last_lines(log: Path) -> list[str]:
    """The end of what a rank has printed."""
    with log.open(errors="replace") as file:
        file.seek(max(0, log.stat().st_size - TAIL))  # a long training prints gigabytes
        lines = deque(filter(str.strip, file), LINES)
    return [line.rstrip()[-300:] for line in lines]


@dataclass
class _Rank:
    """A rank's process: its progress is passed on, and its end is judged."""

    process: psutil.Popen
    log: IO[bytes]  # what it prints
    spec: RankSpec
    worker: Worker
    reports_itself: bool = False  # so that its lines are not read
    alive: float = field(default_factory=time.monotonic)  # when it was not stopped
    family: dict[int, psutil.Process] = field(default_factory=dict)  # it and its loaders
    deadline: float = math.inf  # for its end after an error
    reported: dict[str, object] = field(default_factory=dict)  # of its ending
    latest: dict[str, float] = field(default_factory=dict)  # progress
    progressed: float = 0.0  # when it was reported

    def follow(self, pipe: int) -> None:
        """Pass on its progress until it ends, has failed, or its task is cancelled."""
        listener = Thread(target=self._listen, args=[pipe], name=self.spec.key, daemon=True)
        listener.start()
        while self._goes_on():
            time.sleep(POLL)
            with suppress(psutil.Error):  # it ends meanwhile
                if self.process.status() != psutil.STATUS_STOPPED:
                    self.alive = time.monotonic()
            self._read_log()
        if self.process.poll() is not None:
            listener.join(GRACE)  # its loaders may hold the pipe
            self._read_log()

    def _goes_on(self) -> bool:
        # the event loop changes them meanwhile
        task = self.worker.state.tasks.get(self.spec.key)
        now = time.monotonic()
        return (
            task is not None
            and task.state == "executing"
            and self.process.poll() is None
            and now < self.deadline
            and now - self.alive < self.spec.program.timeout
        )

    def ending(self) -> dict[str, object]:
        """How it ended, as the fields of a `RankEnding`; what it reported itself counts."""
        code = self.process.poll()
        stopped = time.monotonic() - self.alive
        since = time.time()
        cause = Cause.ENDED
        reason = "its worker ended it"
        if code == 0:
            cause = Cause.DONE
            reason = ""
        elif code is not None:
            cause = Cause.KILLED
            reason = f"its process ended with exit code {code}"
            if code < 0:
                reason = f"its process was ended by signal {-code}"
        elif stopped >= min(STOPPED, self.spec.program.timeout):
            cause = Cause.STOPPED
            since -= stopped
            step = self.latest.get("step", 0)
            reason = f"it stopped reporting at step {step}, {stopped:.0f} s ago"
        judged = {"cause": int(cause), "reason": reason, "since": since}
        return {"rank": self.spec.rank, **judged, **self.reported}

    def send(self, **facts: object) -> None:
        """Send facts to the driver."""
        self.worker.log_event(self.spec.topic, {"attempt": self.spec.attempt, **facts})

    def measure(self, dask_worker: Worker) -> dict[str, float]:
        """CPU in per cent of one, and memory in bytes, of the rank and its loaders."""
        cpu = 0.0
        memory = 0
        with suppress(psutil.Error):  # it has ended
            for process in (self.process, *self.process.children(recursive=True)):
                # what it counts is since the last call of the same object
                process = self.family.setdefault(process.pid, process)
                with suppress(psutil.Error):  # a loader that has just ended
                    cpu += process.cpu_percent()
                    memory += process.memory_info().rss
        return {"cpu": cpu, "memory": memory}

    def _listen(self, pipe: int) -> None:
        """Handle its reports until all of its processes have closed the pipe."""
        with open(pipe, encoding="utf-8") as lines:
            for line in lines:
                facts = json.loads(line)
                if "step" in facts:
                    self.reports_itself = True
                    self._progress(facts)
                else:
                    self.reported |= facts
                if "cause" in facts:
                    self.deadline = time.monotonic() + GRACE

    def _read_log(self) -> None:
        """Look for progress in what rank 0 has printed since the last time."""
        if self.spec.rank != 0 or self.reports_itself:
            return
        facts = printed(self.log.read(1 << 20).decode(errors="replace"))
        if "loss" in facts:  # its line may have no bar
            facts = self.latest | facts
        if "step" in facts:
            self._progress(facts)

    def _progress(self, facts: Mapping[str, float | None]) -> None:
        """Send a step with its rates since the one before."""
        clock = time.monotonic()
        elapsed = max(clock - self.progressed, 1e-9)
        numbers = {name: value for name, value in facts.items() if value is not None}
        step = int(numbers["step"])
        rates = {}
        if step > self.latest.get("step", step):
            for name in {"step", "samples", "tokens"} & numbers.keys() & self.latest.keys():
                rates[name] = (numbers[name] - self.latest[name]) / elapsed
        self.latest = numbers
        self.progressed = clock
        if self.spec.rank == 0:
            progress = {
                "step": step,
                "total": numbers.get("total"),
                "numbers": numbers,
                "rates": rates,
                "is_of_epoch": not self.reports_itself,
            }
            self.send(progress=progress)
        tokens = rates.get("tokens")
        event = {
            "model": self.spec.program.name,
            "rank": self.spec.rank,
            "step": step,
            "loss": numbers.get("loss"),
            # each rank gets an equal share of the total speed
            "tokens_per_second": tokens and tokens / len(self.spec.hosts),
        }
        self.worker.log_event(TRAIN, event)


def _environment(spec: RankSpec, store: tuple[str, int]) -> dict[str, str]:
    """The rank's environment variables: this worker's, then its own."""
    address = get_address_host(spec.hosts[spec.rank].address)
    variables = spec.variables(store)
    interface = spec.program.interface
    for name, addresses in psutil.net_if_addrs().items():
        if not interface and address in {entry.address for entry in addresses}:
            interface = name
    environment = {
        **os.environ,
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",  # what was printed last is what explains an error
        **variables,
    }
    if interface:
        for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
            environment.setdefault(name, interface)
    gpu = gpu_of(spec.hosts, spec.rank)
    if gpu is not None and variables["LOCAL_WORLD_SIZE"] == "1":
        environment[VISIBLE] = gpu
    return environment
