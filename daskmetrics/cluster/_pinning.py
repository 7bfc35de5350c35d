"""CPUs and GPUs that a worker has to itself: claimed on its node, and free again when its process ends."""

from __future__ import annotations

import fcntl
import getpass
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, WorkerPlugin

from daskmetrics.core.errors import ConfigError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Pins:
    """What each worker is to have to itself.

    Attributes
    ----------
    cpus : int or None
        So many CPUs of those that its job may use; None leaves it all of them.
    gpus : int or None
        Likewise; None leaves ``CUDA_VISIBLE_DEVICES`` as it is, 0 hides all GPUs.
    """

    cpus: int | None = None
    gpus: int | None = None

    def __bool__(self) -> bool:
        return self.cpus is not None or self.gpus is not None


class PinningPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """Pins a worker when it starts, also one that was started anew."""

    name = "daskmetrics-pinning"

    def __init__(self, pins: Pins) -> None:
        self.pins = pins

    def setup(self, worker: Any) -> None:
        worker.daskmetrics_pins = pin(self.pins)


def pin_workers(client: Client, pins: Pins) -> Mapping[str, Mapping[str, Any]]:
    """Pin all workers of a client, and those to come.

    Returns
    -------
    mapping
        By worker name: ``cpus`` and ``gpus`` that it has to itself, and ``problem`` if it could not have them.
    """
    client.register_plugin(PinningPlugin(pins))
    return {str(told["name"]): told for told in client.run(_told).values()}


def _told(dask_worker: Any) -> Mapping[str, Any]:
    return {"name": dask_worker.name, **dask_worker.daskmetrics_pins}


def require(pins: Pins, workers: int) -> None:
    """Refuse what this machine cannot give to so many workers.

    Raises
    ------
    ConfigError
        With what was asked for and what is there.
    """
    for what, each, here in (("CPUs", pins.cpus, usable_cpus()), ("GPUs", pins.gpus, visible_gpus())):
        if each and each * workers > len(here):
            raise ConfigError(
                f"{workers} workers with {each} {what} each need {each * workers}, this machine offers {len(here)}. "
                f"Ask for fewer workers or fewer {what} per worker, or for a cluster (--cluster)."
            )


def usable_cpus() -> Sequence[str]:
    """CPUs that this process may run on."""
    return [str(cpu) for cpu in sorted(os.sched_getaffinity(0))]


def visible_gpus() -> Sequence[str]:
    """GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them; the driver is not woken."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [gpu.strip() for gpu in named.split(",") if gpu.strip()]
    devices = (path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
    return sorted((name for name in devices if name.isdigit()), key=int)


def pin(pins: Pins) -> dict[str, Any]:
    """Pin this process: its CPUs by affinity, its GPUs by ``CUDA_VISIBLE_DEVICES``, its threads to match.

    It must run before the process starts CUDA. What cannot be had is told and not insisted on.
    """
    told: dict[str, Any] = {"cpus": None, "gpus": None, "problem": None}
    try:
        if pins.cpus is not None:
            told["cpus"] = claim("cpu", usable_cpus(), pins.cpus)
            os.sched_setaffinity(0, {int(cpu) for cpu in told["cpus"]})
            _limit_threads(pins.cpus)
        if pins.gpus is not None:
            told["gpus"] = claim("gpu", visible_gpus(), pins.gpus)
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(told["gpus"])
    except (ConfigError, OSError) as error:
        told["problem"] = str(error)
    return told


def _limit_threads(count: int) -> None:
    os.environ.update(dict.fromkeys(THREADS, str(count)))
    with suppress(ImportError):
        from threadpoolctl import threadpool_limits

        threadpool_limits(count)  # for libraries that have read the environment already


def claim(kind: str, offered: Sequence[str], count: int, folder: Path | None = None) -> list[str]:
    """Take so many of what is offered on this node, each for one process at a time.

    A claim is a lock on a file, which the system frees with the process, however that ends. No worker needs to know
    of the others: they may belong to different jobs.

    Raises
    ------
    ConfigError
        If too few are free.
    """
    folder = folder or Path(tempfile.gettempdir()) / f"daskmetrics-{getpass.getuser()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise ConfigError(f"'{folder}' belongs to another user: set TMPDIR to a folder of your own.")
    with _alone(folder / "claiming"):  # otherwise two workers could each get half of what they need
        taken: dict[str, int] = {}
        for name in offered:
            if len(taken) == count:
                break
            if (file := _lock(folder / f"{kind}-{name}")) is not None:
                taken[name] = file
        if len(taken) == count:
            return list(taken)
        for file in taken.values():
            os.close(file)
    raise ConfigError(f"This worker needs {count} {kind}s; of {len(offered)}, {len(taken)} are free.")


def _lock(path: Path, wait: int = fcntl.LOCK_NB) -> int | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | wait)
    except BlockingIOError:
        os.close(file)
        return None
    return file


@contextmanager
def _alone(path: Path) -> Any:
    file = _lock(path, wait=0)
    try:
        yield
    finally:
        if file is not None:
            os.close(file)
