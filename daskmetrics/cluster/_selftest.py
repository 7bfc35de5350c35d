"""What `cluster test` asks of one worker: is it the same code, has it its GPU, does it see our files and we its."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

from distributed import Client

from daskmetrics.config import Cluster
from daskmetrics.core._workers import workers
from daskmetrics.core.errors import ConfigError

PAYLOAD = 8 * 2**20  # bytes sent each way
SEEN_WITHIN = 30.0  # seconds until a file must be seen on the other side; network file systems remember absence


class Verdict(Enum):
    """How a check went."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes
    ----------
    name : str
    verdict : Verdict
    seconds : float
    told : str
        What was seen, or what to do.
    """

    name: str
    verdict: Verdict
    seconds: float
    told: str


Asked = Callable[[], tuple[Verdict, str]]


def checks(
    client: Client, profile: Cluster, question: str, require_same: Callable[[str, Any], None]
) -> Iterator[Check]:
    """Try what a run needs on the first worker, one check after the other.

    Parameters
    ----------
    client : Client
        With one worker at least.
    profile : Cluster
    question : str
        Python that a worker evaluates to say who it is, see `daskmetrics.execution._handshake`.
    require_same : callable
        Raises ConfigError if what it answered does not fit this process.
    """
    address, worker = next(iter(workers(client).items()))
    one = _One(client, address)

    def versions() -> tuple[Verdict, str]:
        told = one.ask(eval, question)
        require_same(worker["name"], told["versions"])
        return Verdict.OK, ", ".join(f"{name} {number}" for name, number in told["versions"].items())

    def imports() -> tuple[Verdict, str]:
        return Verdict.OK, f"torch {one.ask(_import_torch)}, on {one.ask(socket.gethostname)}"

    yield _timed("versions", versions)
    yield _timed("import", imports)
    yield _timed(
        "device", lambda: device(one.ask(_device), wanted=profile.kind != "local" and profile.gpus_per_job > 0)
    )
    yield _timed("shared folder", lambda: _shared(one, Path(profile.logs).resolve()))
    yield _timed("network there", lambda: _speed(one, there=True))
    yield _timed("network back", lambda: _speed(one, there=False))


@dataclass(frozen=True)
class _One:
    """The worker that is asked."""

    client: Client
    address: str

    def ask(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.client.run(function, *args, workers=[self.address])[self.address]


def _timed(name: str, asked: Asked) -> Check:
    began = time.perf_counter()
    try:
        verdict, told = asked()
    except (ConfigError, OSError, ImportError) as error:
        verdict, told = Verdict.FAILED, str(error) or type(error).__name__
    return Check(name, verdict, time.perf_counter() - began, told)


def device(seen: Mapping[str, Any], wanted: bool) -> tuple[Verdict, str]:
    """What to think of the GPUs that a worker sees.

    Parameters
    ----------
    seen : mapping
        ``visible``, the value of CUDA_VISIBLE_DEVICES or None; ``devices``, the names that torch has for them;
        ``driver``, whether the node has one of NVIDIA.
    wanted : bool
        Whether the job asked for GPUs.

    Examples
    --------
    >>> device({"visible": "0", "devices": ["NVIDIA L40S"], "driver": True}, wanted=True)
    (<Verdict.OK: 'ok'>, 'owns GPU 0: NVIDIA L40S')
    """
    visible, devices = seen["visible"], seen["devices"]
    owned = [name for name in (visible or "").split(",") if name]
    if not wanted:
        return Verdict.OK, f"CPU; GPUs that it could see: {', '.join(devices) or 'none'}"
    if len(devices) > 1:
        return Verdict.FAILED, f"sees {len(devices)} GPUs, and would share them with others: GPUs are not confined here"
    if devices:
        return Verdict.OK, f"owns GPU {visible or 'without a number'}: {devices[0]}"
    if seen["driver"]:
        return Verdict.FAILED, "the node has NVIDIA's driver, but torch sees no GPU: is it a build of torch with CUDA?"
    if not owned:
        return Verdict.FAILED, "its job has no GPU: CUDA_VISIBLE_DEVICES is not set. Check gpus_per_job and gpu_type"
    return Verdict.NOTE, f"owns GPU {visible}, but its node has no driver for it: it will compute on the CPU"


def _shared(one: _One, folder: Path) -> tuple[Verdict, str]:
    """A file written on one side must be seen, with its content, on the other one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ours, theirs = (folder / f".trial-{secrets.token_hex(8)}" for _ in range(2))
    try:
        ours.write_text("from the driver")
        if not one.ask(_sees, str(ours), "from the driver"):
            return Verdict.FAILED, f"the worker does not see '{folder}': it must lie on a file system that nodes share"
        one.ask(_write, str(theirs), "from the worker")
        if not _sees(str(theirs), "from the worker"):
            return Verdict.FAILED, f"what the worker writes into '{folder}' is not seen here"
    finally:
        for path in (ours, theirs):
            path.unlink(missing_ok=True)
    return Verdict.OK, f"'{folder}' is the same on both sides"


def _speed(one: _One, there: bool) -> tuple[Verdict, str]:
    one.ask(len, b"")  # so that connecting is not measured
    began = time.perf_counter()
    got = one.ask(len, os.urandom(PAYLOAD)) if there else len(one.ask(os.urandom, PAYLOAD))
    took = time.perf_counter() - began
    return Verdict.OK, f"{got / 2**20:.0f} MiB, {got / took / 1e6:,.0f} MB/s"


def _import_torch() -> str:
    return str(import_module("torch").__version__)  # by name: this side shall never import it


def _device() -> dict[str, Any]:
    cuda = import_module("torch").cuda
    names = [cuda.get_device_name(i) for i in range(cuda.device_count())]
    driver = Path("/proc/driver/nvidia/version").exists()
    return {"visible": os.environ.get("CUDA_VISIBLE_DEVICES"), "devices": names, "driver": driver}


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


def _sees(path: str, text: str) -> bool:
    """Whether a file comes to be seen with its content, which on a network file system can take a while."""
    deadline = time.monotonic() + SEEN_WITHIN
    while time.monotonic() < deadline:
        if Path(path).is_file() and Path(path).read_text() == text:
            return True
        list(Path(path).parent.iterdir())  # makes NFS look again
        time.sleep(0.1)
    return False
