"""The checks of `cluster test` on one worker: its versions, its GPU, the shared folder, the
network.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from ctypes.util import find_library
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from distributed import Client

from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.machine import VISIBLE, infiniband_ports, workers

PAYLOAD = 8 * 2**20  # bytes sent each way
TOLERATED = 5.0  # seconds; certificates allow a day, but times of files and logs would mislead
# seconds for a file to appear on the other machine: network file systems cache its absence
VISIBLE_WITHIN = 30.0


@dataclass(frozen=True)
class SelfTestResult:
    """One check, with its result."""

    name: str
    status: str  # ``ok``, ``note`` or ``failed``
    seconds: float
    message: str  # what was observed, or what to do


Call = Callable[..., Any]  # calls a function with arguments on the worker
Observed = tuple[str, str]
"""``ok`` or ``note``, and what was observed; a check raises what makes it ``failed``."""


def run_checks(
    client: Client,
    profile: Cluster,
    question: str,
    require_same: Callable[[str, Mapping[str, str]], None],
) -> Iterator[SelfTestResult]:
    """Check on the first worker what a run needs, one check after the other.

    `daskmetrics.execution.handshake` has the question, a Python expression by which a worker
    describes itself, and ``require_same``, which raises ConfigError if the worker's versions do not
    fit this process.
    """
    address, info = next(iter(workers(client).items()))

    def call(function: Callable[..., object], *args: object) -> Any:
        return client.run(function, *args, workers=[address])[address]

    def check_versions() -> Observed:
        answer = call(eval, question)
        require_same(info["name"], answer["versions"])
        versions = (f"{name} {number}" for name, number in answer["versions"].items())
        return "ok", f"{', '.join(versions)}, on {answer['host']}"

    needs_gpu = profile.kind in ("slurm", "allocation") and profile.gpus_per_job > 0
    logs = Path(profile.logs).resolve()
    checks: dict[str, Callable[[], Observed]] = {
        "versions": check_versions,
        "device": lambda: check_device(call(_device), needs_gpu),
        "transports": lambda: ("ok", "; ".join(map(": ".join, call(_transports).items()))),
        "clock": lambda: check_clock(lambda: float(call(time.time))),
        "shared folder": lambda: check_folder(call, logs),
        "network": lambda: measure_speed(call),
    }
    is_new = not logs.exists()
    for name, check in checks.items():
        began = time.perf_counter()
        try:
            status, message = check()
        except (ConfigError, OSError, ImportError) as error:
            status = "failed"
            message = str(error) or type(error).__name__
        yield SelfTestResult(name, status, time.perf_counter() - began, message)
    if is_new:
        with suppress(OSError):  # the log of the worker is in it
            logs.rmdir()


def check_device(device: Mapping[str, Any], needs_gpu: bool) -> Observed:
    """The GPU that a worker has, by the answer of `_device`; ConfigError if it is not the one that
    it should have.

    >>> check_device({"visible": "0", "devices": ["NVIDIA L40S"], "driver": True}, needs_gpu=True)
    ('ok', 'has GPU 0: NVIDIA L40S')
    """
    visible = device["visible"]
    names = device["devices"]
    if not needs_gpu:
        return "ok", f"CPU; visible GPUs: {', '.join(names) or 'none'}"
    if len(names) > 1:
        raise ConfigError(
            f"sees {len(names)} GPUs: this site does not confine a job to its own GPUs"
        )
    if names:
        return "ok", f"has GPU {visible or 'without a number'}: {names[0]}"
    if device["driver"]:
        raise ConfigError(
            "the node has NVIDIA's driver, but torch sees no GPU: install a build of torch with"
            " CUDA"
        )
    if not visible:
        raise ConfigError(
            f"its job has no GPU: {VISIBLE} is not set. Check gpus_per_job and gpu_type"
        )
    return "note", f"has GPU {visible}, but its node has no driver for it: it computes on the CPU"


def check_clock(ask: Callable[[], float], clock: Callable[[], float] = time.time) -> Observed:
    """How far the clock that ``ask`` reads is from this one; a note if it differs by more than what
    is tolerated.

    >>> times = iter([100.0, 104.0, 110.0, 110.2])
    >>> check_clock(lambda: 110.0, lambda: next(times))
    ('ok', 'agrees within 0.2 s')
    >>> times = iter([2000.0, 2000.2, 2000.3, 2000.4])
    >>> check_clock(lambda: 200.0, lambda: next(times))[1]
    "its clock is 1800 s behind this machine's: ask the site's support to synchronise them"

    A slow answer proves nothing.

    >>> times = iter([98.0, 102.0, 98.0, 102.0])
    >>> check_clock(lambda: 106.0, lambda: next(times))
    ('ok', 'agrees within 8.0 s')
    """
    offsets = []
    for _ in range(2):  # the first may have to connect
        sent = clock()
        theirs = ask()
        received = clock()
        middle = (sent + received) / 2
        offsets.append(((received - sent) / 2, theirs - middle))
    error, ahead = min(offsets)
    if abs(ahead) - error > TOLERATED:
        direction = "ahead of" if ahead > 0 else "behind"
        return "note", (
            f"its clock is {abs(ahead):.0f} s {direction} this machine's: ask the site's support to"
            " synchronise them"
        )
    return "ok", f"agrees within {max(0.1, abs(ahead) + error):.1f} s"


def check_folder(call: Call, folder: Path) -> Observed:
    """Check that a file written on one side appears, with its content, on the other one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with marker(folder) as (file, text):
        if not call(appears, file, text):
            raise ConfigError(
                f"the worker does not see '{folder}': use a file system that nodes share"
            )
        call(Path.write_text, file, "from the worker")
        if not appears(file, "from the worker"):
            raise ConfigError(f"a file that the worker writes into '{folder}' does not appear here")
    return "ok", f"'{folder}' is the same on both sides"


def measure_speed(call: Call) -> Observed:
    """How fast bytes come to a worker, and back."""
    call(len, b"")  # so that connecting is not measured
    began = time.perf_counter()
    call(len, os.urandom(PAYLOAD))
    sent = time.perf_counter()
    call(os.urandom, PAYLOAD)
    received = time.perf_counter()
    to = PAYLOAD / (sent - began)
    back = PAYLOAD / (received - sent)
    return "ok", (
        f"{PAYLOAD / 2**20:.0f} MiB to the worker with {to / 1e6:,.0f} MB/s,"
        f" back with {back / 1e6:,.0f} MB/s"
    )


@contextmanager
def marker(folder: Path) -> Iterator[tuple[Path, str]]:
    """A new file in a folder, and its content; a machine that sees both shares the folder."""
    text = secrets.token_hex(8)
    file = folder.absolute() / f".selftest-{text}"
    file.write_text(text)
    try:
        yield file, text
    finally:
        file.unlink(missing_ok=True)


def _device() -> dict[str, object]:
    cuda = import_module("torch").cuda
    names = [cuda.get_device_name(i) for i in range(cuda.device_count())]
    driver = Path("/proc/driver/nvidia/version").exists()
    return {"visible": os.environ.get(VISIBLE), "devices": names, "driver": driver}


def appears(path: Path, text: str) -> bool:
    """Whether a file appears with its content, which on a network file system can take some
    seconds.
    """
    deadline = time.monotonic() + VISIBLE_WITHIN
    while time.monotonic() < deadline and path.parent.is_dir():
        if path.is_file() and path.read_text() == text:
            return True
        list(path.parent.iterdir())  # makes NFS look again
        time.sleep(0.1)
    return False


def _transports() -> dict[str, str]:
    """What this machine has of MPI, UCX, NCCL and InfiniBand, each with its version or its
    ports.
    """
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
