"""What runs on a worker: it starts a rank, follows and ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from io import FileIO
from typing import IO, Any

import psutil
from distributed import Worker, get_worker
from distributed.comm import get_address_host

from daskmetrics.core.files import open_own
from daskmetrics.core.machine import NETWORK, gpu_models, interfaces, oom_kills, visible_gpus
from daskmetrics.core.telemetry import RANK
from daskmetrics.domain.events import TRAIN
from daskmetrics.domain.training import Cause, RankEnding
from daskmetrics.training.ddp.ranks import Program, RankHost, RankSpec
from daskmetrics.training.ddp.remedies import remedy
from daskmetrics.training.printed import PrintedProgress
from daskmetrics.training.progress import PIPE

POLL = 0.1  # seconds between two looks at a rank, its reports and what it prints
STOPPED = 5.0  # seconds after which a rank that is stopped counts as failed, if others fail
LINES = 15  # of what a rank has printed last
TAIL = 8192  # bytes, in which they are
# TCPStores of the latest process groups: one outlives its ranks, and is closed by later ones
_STORES: deque[Any] = deque(maxlen=4)


def inventory(interface: str | None, dask_worker: Worker) -> RankHost:
    """This worker, its machine and its GPUs, read without initialising CUDA.

    ``interface`` is what is configured; by default it is that of the worker's address.
    """
    models = gpu_models()
    host = get_address_host(dask_worker.address)
    of_address = [name for name, addresses in interfaces().items() if host in addresses]
    return RankHost(
        address=dask_worker.address,
        name=str(dask_worker.name),
        node=socket.gethostname(),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        available=psutil.virtual_memory().available,
        gpus=tuple(visible_gpus()) if models else (),
        model=next(iter(models), ""),
        offers_gpu=bool(dask_worker.state.total_resources.get("GPU")),
        interface=os.environ.get(NETWORK[0]) or interface or "".join(of_address[:1]),
    )


def open_store(address: str) -> tuple[str, int]:
    """Open the TCPStore where ranks meet; returns its host and port.

    The port is a free one of this worker's Dask address.
    """
    import torch.distributed as dist

    host = get_address_host(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family)
    port = listening.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[attr-defined]
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),  # without it the store listens on all interfaces
    )
    _STORES.append(store)
    return host, port


def run_rank(spec: RankSpec, store: tuple[str, int]) -> None:
    """Run a rank as a child process, and report how it ended.

    The rank is killed when its Dask task is cancelled or this worker ends.
    """
    worker = get_worker()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    environment = _environment(spec, store)
    with open_own(spec.log, "wb") as log:
        process = psutil.Popen(
            [sys.executable, "-P", "-m", "daskmetrics.training._rank", *spec.program.words],
            cwd=spec.directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment | {PIPE: str(writing)},
            pass_fds=[writing],
            # its loaders end with it, and it gets a fair share of a busy machine
            start_new_session=True,
        )
    os.close(writing)
    with spec.log.open("rb") as printed_lines, FileIO(reading) as reports:
        rank = _Rank(process, printed_lines, reports, spec, worker, environment)
        # the worker reports it with each heartbeat
        worker.loop.add_callback(worker.metrics.__setitem__, RANK, rank.measure)
        try:
            rank.send(begun=spec.rank)
            rank.follow()
        finally:
            ending = rank.ending()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            worker.loop.add_callback(worker.metrics.pop, RANK, None)
            worker.loop.add_callback(worker.heartbeat)  # the worker is free at once
            # a long training prints gigabytes
            printed_lines.seek(max(0, spec.log.stat().st_size - TAIL))
            lines = printed_lines.read().decode(errors="replace").splitlines()[-LINES:]
            ending = _with_remedy(replace(ending, lines=lines), spec.program, environment)
            rank.send(ending=asdict(ending))


@dataclass
class _Rank:
    """A rank's process."""

    process: psutil.Popen
    log: IO[bytes]  # what it prints
    reports: FileIO  # what it reports itself
    spec: RankSpec
    worker: Worker
    environment: Mapping[str, str]  # of the process
    began: float = field(default_factory=time.monotonic)
    is_late: bool = False  # whether the first step may be overdue
    unread: bytes = b""  # the begun line of a report
    printed: PrintedProgress = field(default_factory=PrintedProgress)
    reports_itself: bool = False  # so that what it prints is not read
    alive: float = field(default_factory=time.monotonic)  # when it was not stopped
    family: dict[int, psutil.Process] = field(default_factory=dict)  # it and its loaders
    oom_kills: int = field(default_factory=oom_kills)  # before it
    failure: dict[str, Any] = field(default_factory=dict)  # as it reports it
    latest: dict[str, Any] = field(default_factory=dict)  # progress

    def follow(self) -> None:
        """Pass on its progress until it ends or has to."""
        while self._goes_on():
            time.sleep(POLL)
            if self.process.status() != psutil.STATUS_STOPPED:
                self.alive = time.monotonic()
            self._read()
            if not self.is_late and time.monotonic() - self.began > self.spec.program.timeout:
                self.is_late = True
                self.send(late=self._missing())
        self._read()  # its last words

    def _goes_on(self) -> bool:
        # the event loop changes them meanwhile
        task = self.worker.state.tasks.get(self.spec.key)
        return (
            task is not None
            and task.state == "executing"
            and self.process.poll() is None
            and time.monotonic() - self.alive < self.spec.program.timeout
        )

    def ending(self) -> RankEnding:
        """How it ended."""
        if self.failure:
            return RankEnding(self.spec.rank, **self.failure)
        code = self.process.poll()
        stopped = time.monotonic() - self.alive
        since = time.time()
        cause = Cause.ENDED
        reason = "its worker ended it"
        if code == 0:
            cause = Cause.DONE
        elif code is not None:
            cause = Cause.KILLED
            reason = f"its process ended with exit code {code}"
            if code < 0:
                reason = f"its process was ended by signal {-code}"
            if code == -signal.SIGKILL and oom_kills() > self.oom_kills:
                reason += ", since its cgroup was out of memory"
        elif stopped >= min(STOPPED, self.spec.program.timeout):
            cause = Cause.STOPPED
            since -= stopped
            reason = f"it stopped reporting {stopped:.0f} s ago"
        return RankEnding(self.spec.rank, int(cause), reason, since)

    def _missing(self) -> str:
        """Where it is, if it has no connection to the store where the ranks meet."""
        port = int(self.environment["MASTER_PORT"])
        with suppress(psutil.Error):
            for process in (self.process, *self.process.children(recursive=True)):
                for connection in process.net_connections("tcp"):
                    is_open = connection.status == psutil.CONN_ESTABLISHED
                    if is_open and connection.raddr.port == port:
                        return ""
        interface = self.environment.get("GLOO_SOCKET_IFNAME")
        return f"rank {self.spec.rank} ({self.spec.host.text}, interface {interface})"

    def send(self, **facts: object) -> None:
        """Send facts to the driver."""
        self.worker.log_event(self.spec.topic, facts)

    def measure(self, dask_worker: Worker) -> dict[str, float]:
        """CPU (per cent of one) and memory (bytes), with its loaders."""
        cpu = 0.0
        memory = 0
        with suppress(psutil.Error):  # it, or a loader, has ended
            for process in (self.process, *self.process.children(recursive=True)):
                # what it counts is since the last call of the same object
                process = self.family.setdefault(process.pid, process)
                cpu += process.cpu_percent()
                memory += process.memory_info().rss
        return {"cpu": cpu, "memory": memory}

    def _read(self) -> None:
        text = self.unread + (self.reports.read() or b"")
        *lines, self.unread = text.split(b"\n")
        progress: dict[str, Any] = {}
        for line in lines:
            facts = json.loads(line)
            if "step" in facts:
                self.reports_itself = True
                progress = facts
            else:
                self.failure = facts
        if self.spec.rank == 0 and not self.reports_itself:
            for shown in self.printed.read(self.log.read(1 << 20).decode(errors="replace")):
                # a line with its loss may have no bar
                progress = self.latest | progress | shown | {"at": time.monotonic()}
                if not self.latest and "step" in progress:
                    self._progress(progress)  # where it begins
        if "step" in progress and progress is not self.latest:
            self._progress(progress)

    def _progress(self, facts: dict[str, Any]) -> None:
        ranks = len(self.spec.hosts)
        size = self.spec.program.step_samples
        # what was read from a bar has the samples of the line before
        if size and not (self.reports_itself and "samples" in facts):
            facts = {**facts, "samples": size * ranks * facts["step"]}
        before = self.latest or facts
        rates = {}
        if facts["step"] > before["step"]:
            for name in {"step", "samples", "tokens"} & facts.keys() & before.keys():
                rates[name] = (facts[name] - before[name]) / (facts["at"] - before["at"])
        self.latest = facts
        if self.spec.rank == 0:
            numbers = {
                name: value
                for name, value in facts.items()
                if name not in ("step", "total", "at") and isinstance(value, int | float)
            }
            self.send(
                progress={
                    "step": facts["step"],
                    "total": facts["total"] and int(facts["total"]),
                    "numbers": numbers,
                    "rates": rates,
                }
            )
        tokens = rates.get("tokens")
        event = {
            "model": self.spec.program.name,
            "rank": self.spec.rank if ranks > 1 else None,
            "step": facts["step"],
            "loss": facts.get("loss"),
            # each rank gets an equal share of the total speed
            "tokens_per_second": tokens and tokens / ranks,
        }
        self.worker.log_event(TRAIN, event)


def _with_remedy(ending: RankEnding, program: Program, variables: Mapping[str, str]) -> RankEnding:
    """An ending that would occur again, with what helps; others as they are."""
    text = ending.reason
    if ending.cause == Cause.KILLED:  # it has said no reason itself
        text = "\n".join((text, *ending.lines))
    elif ending.cause not in (Cause.ERROR, Cause.PARTNER):
        return ending
    usable = [name for name, addresses in interfaces().items() if addresses]
    advice = remedy(text, program, variables, usable)
    if not advice:
        return ending
    reason = f"{ending.reason.rstrip('.')}. {advice}"
    cause = min(ending.cause, int(Cause.ERROR))
    return replace(ending, cause=cause, reason=reason, permanent=True)


def _environment(spec: RankSpec, store: tuple[str, int]) -> dict[str, str]:
    interface = spec.host.interface
    return {
        **{name: interface for name in NETWORK if interface},
        **os.environ,
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",  # what was printed last is what explains an error
        **spec.variables(store),
    }
