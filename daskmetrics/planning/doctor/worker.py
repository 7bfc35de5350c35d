"""What the workers of a profile have: versions, GPU, transports, clock, shared folder, network; and
what the network between them carries.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from ctypes.util import find_library
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from distributed import Client

from daskmetrics.cluster import connect
from daskmetrics.cluster.shared_folder import appears, marker
from daskmetrics.config import Cluster
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.machine import VISIBLE, infiniband_ports, workers
from daskmetrics.core.text import OnMessage, listed, plural
from daskmetrics.domain.training import Progress, TrainingStatus
from daskmetrics.execution import handshake
from daskmetrics.planning.doctor.checks import Finding, failure, warning
from daskmetrics.training.ddp.driver import ProcessGroupError, launch
from daskmetrics.training.ddp.ranks import Program

PAYLOAD = 8 * 2**20  # bytes sent each way
EXCHANGED = 64 * 2**20  # bytes that ranks sum
RANK = ("-m", "daskmetrics.planning.doctor._exchange")
JOINED_WITHIN = 60.0  # seconds
TOLERATED = 5.0  # seconds; certificates allow more, but times of files and logs would mislead

Call = Callable[..., Any]  # calls a function with arguments on the worker
ok = partial(Finding, "ok")


def start_and_examine(
    profile: Cluster, on_message: OnMessage, count: int = 1
) -> dict[str, Finding]:
    """The findings of workers that are started for them and ended again.

    On Slurm they are so many jobs. If they do not arrive, that is the only finding.
    """
    if profile.in_slurm:
        count *= max(1, profile.gpus_per_job)
    few = profile.model_copy(update={"workers": count, "fewest": None, "scoring": None})
    began = time.perf_counter()
    try:
        with connect(few, "doctor", on_message, wait=count) as client:
            took = time.perf_counter() - began
            arrived = ok(f"{plural(count)} arrived after {took:.1f} s")
            return {"worker": arrived, **examine(client, profile, on_message)}
    except DaskmetricsError as error:
        return {"worker": failure(str(error))}


def examine(
    client: Client, profile: Cluster, on_message: OnMessage = lambda line: None
) -> dict[str, Finding]:
    """The findings of a client's first worker, and of the network between several.

    A check that fails does not hide the others.
    """
    address, info = next(iter(workers(client).items()))

    def call(function: Callable[..., object], *args: object) -> Any:
        return client.run(function, *args, workers=[address])[address]

    logs = Path(profile.logs).resolve()
    checks: dict[str, Callable[[], Finding]] = {
        "versions": lambda: _versions(call, info["name"]),
        "device": lambda: check_device(
            call(_device), profile.in_slurm and profile.gpus_per_job > 0
        ),
        "transports": lambda: ok("; ".join(map(": ".join, call(_transports).items()))),
        "clock": lambda: check_clock(lambda: float(call(time.time))),
        "same-folder": lambda: _same_folder(call, logs),
        "network": lambda: _network(call),
    }
    if len(workers(client)) > 1:
        checks["exchange"] = lambda: _exchange(client, profile, logs / "doctor", on_message)
    is_new = not logs.exists()
    findings = {}
    for name, check in checks.items():
        try:
            findings[name] = check()
        except (DaskmetricsError, OSError, ImportError) as error:
            findings[name] = failure(str(error) or type(error).__name__)
    if is_new:
        with suppress(OSError):  # the log of the worker is in it
            logs.rmdir()
    return findings


def _versions(call: Call, worker: str) -> Finding:
    answer = call(eval, handshake.question())
    handshake.require_same(worker, answer["versions"])
    versions = ", ".join(f"{name} {number}" for name, number in answer["versions"].items())
    return ok(f"{versions}, on {answer['host']}")


def check_device(device: Mapping[str, Any], needs_gpu: bool) -> Finding:
    """Whether a worker has the one GPU that it should have.

    ``device`` is the answer of `_device`.

    >>> check_device({"visible": "0", "devices": ["NVIDIA L40S"], "driver": True}, True).message
    'has GPU 0: NVIDIA L40S'
    """
    visible = device["visible"]
    names = device["devices"]
    if not needs_gpu:
        return ok(f"CPU; visible GPUs: {', '.join(names) or 'none'}")
    if len(names) > 1:
        message = f"sees {len(names)} GPUs: this site does not confine a job to its own GPUs"
        return failure(message, "ask the site's support, or use whole nodes: cluster.gpus_per_job")
    if names:
        return ok(f"has GPU {visible or 'without a number'}: {names[0]}")
    if device["driver"]:
        message = "the node has NVIDIA's driver, but torch sees no GPU"
        return failure(message, "install a build of torch with CUDA")
    if not visible:
        message = f"its job has no GPU: {VISIBLE} is not set"
        return failure(message, "check cluster.gpus_per_job and cluster.gpu_type")
    message = f"has GPU {visible}, but its node has no driver for it: it computes on the CPU"
    return warning(message, "use nodes whose GPUs have a driver, or gpus_per_job: 0")


def check_clock(ask: Callable[[], float], clock: Callable[[], float] = time.time) -> Finding:
    """How far the clock that ``ask`` reads is from this one.

    A warning beyond what is tolerated.

    >>> times = iter([100.0, 104.0, 110.0, 110.2])
    >>> check_clock(lambda: 110.0, lambda: next(times)).message
    'agrees within 0.2 s'
    >>> times = iter([2000.0, 2000.2, 2000.3, 2000.4])
    >>> check_clock(lambda: 200.0, lambda: next(times)).message
    "its clock is 1800 s behind this machine's"

    A slow answer proves nothing.

    >>> times = iter([98.0, 102.0, 98.0, 102.0])
    >>> check_clock(lambda: 106.0, lambda: next(times)).message
    'agrees within 8.0 s'
    """
    offsets = []
    for _ in range(2):  # the first may have to connect
        sent = clock()
        theirs = ask()
        received = clock()
        middle = (sent + received) / 2
        offsets.append(((received - sent) / 2, theirs - middle))
    error, ahead = min(offsets)
    if abs(ahead) - error <= TOLERATED:
        return ok(f"agrees within {max(0.1, abs(ahead) + error):.1f} s")
    direction = "ahead of" if ahead > 0 else "behind"
    message = f"its clock is {abs(ahead):.0f} s {direction} this machine's"
    return warning(message, "ask the site's support to synchronise the clocks")


def _same_folder(call: Call, folder: Path) -> Finding:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    remedy = "--set cluster.logs=FOLDER, one on a file system that nodes share"
    with marker(folder) as (file, text):
        if not call(appears, file, text):
            return failure(f"the worker does not see '{folder}'", remedy)
        call(Path.write_text, file, "from the worker")
        if not appears(file, "from the worker"):
            message = f"a file that the worker writes into '{folder}' does not appear here"
            return failure(message, remedy)
    return ok(f"'{folder}' is the same on both sides")


def _network(call: Call) -> Finding:
    call(len, b"")  # so that connecting is not measured
    began = time.perf_counter()
    call(len, os.urandom(PAYLOAD))
    sent = time.perf_counter()
    call(os.urandom, PAYLOAD)
    received = time.perf_counter()
    to = PAYLOAD / (sent - began) / 1e6
    back = PAYLOAD / (received - sent) / 1e6
    return ok(
        f"{PAYLOAD / 2**20:.0f} MiB to the worker with {to:,.0f} MB/s, back with {back:,.0f} MB/s"
    )


@dataclass
class _Exchange:
    """What the driver of the ranks says."""

    on_message: OnMessage
    folder: Path  # of the program, whose status says when the first step is late
    latest: str = ""
    is_late: bool = False
    seconds: float = 0.0  # of a sum, once it is known

    def message(self, text: str) -> None:
        self.latest = text
        self.on_message(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        self.seconds = progress.numbers["seconds"]

    def is_blocked(self) -> bool:
        status = TrainingStatus.read(self.folder)
        self.is_late = self.is_late or bool(status and status.notice)
        return self.is_late


def _exchange(client: Client, profile: Cluster, folder: Path, on_message: OnMessage) -> Finding:
    """How fast ranks on all workers sum a tensor, as those of a training do gradients."""
    ranks = len(workers(client))
    program = Program(
        "doctor",
        RANK,
        folder,
        ranks,
        least=ranks,
        timeout=JOINED_WITHIN,
        restarts=0,
        interface=profile.interface,
    )
    seen = _Exchange(on_message, folder)
    try:
        launch(client, program, seen, stopping=seen.is_blocked)
    except ProcessGroupError as error:  # there is nothing to resume
        return failure(error.cause)
    if not seen.seconds:
        return failure(seen.latest)
    shutil.rmtree(folder)
    # what each rank sends and receives of a sum in a ring
    rate = 2 * (ranks - 1) / ranks * EXCHANGED / seen.seconds
    nodes = set(client.run(socket.gethostname).values())
    message = f"{ranks} ranks sum {EXCHANGED / 2**20:.0f} MiB with {rate / 1e6:,.0f} MB/s"
    remedy = ""
    if len(nodes) == 1 and profile.in_slurm:
        remedy = "to try the network between nodes, use a profile of whole nodes"
    return Finding("ok", f"{message} on {listed(sorted(nodes))}", remedy)


def _device() -> dict[str, object]:
    cuda = import_module("torch").cuda
    names = [cuda.get_device_name(i) for i in range(cuda.device_count())]
    driver = Path("/proc/driver/nvidia/version").exists()
    return {"visible": os.environ.get(VISIBLE), "devices": names, "driver": driver}


def _transports() -> dict[str, str]:
    ports = [f"{port} {state}" for port, state in infiniband_ports().items()]
    libraries = {"MPI": "", "UCX": "", "NCCL": find_library("nccl"), "InfiniBand": ", ".join(ports)}
    for name, *command in (("MPI", "mpirun", "--version"), ("UCX", "ucx_info", "-v")):
        with suppress(OSError, subprocess.SubprocessError):
            text = subprocess.check_output(
                command,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                timeout=20,
            )
            libraries[name] = text.partition("\n")[0].lstrip("# ")
    for package in ("nvidia-nccl-cu13", "nvidia-nccl-cu12"):
        with suppress(PackageNotFoundError):
            libraries["NCCL"] = version(package)
    return {name: found or "not found" for name, found in libraries.items()}
