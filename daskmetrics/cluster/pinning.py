"""CPUs and GPUs reserved for one worker: claimed on its node, and released when its process
ends.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Worker, WorkerPlugin

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import locked, node_temporary, open_own
from daskmetrics.core.machine import VISIBLE, driver_gpus, visible_gpus

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True)
class Pins:
    """How many CPUs and GPUs each worker has for itself.

    Attributes
    ----------
    cpus : int or None
        Number of CPUs; None leaves it all that its job may use.
    gpus : int or None
        Number of GPUs; None leaves ``CUDA_VISIBLE_DEVICES`` as it is, 0 hides all GPUs.

    Examples
    --------
    >>> bool(Pins()), bool(Pins(gpus=0))
    (False, True)
    """

    cpus: int | None = None
    gpus: int | None = None

    def __bool__(self) -> bool:
        return self.cpus is not None or self.gpus is not None


class PinningPlugin(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """Pins a worker when it starts, also after a restart."""

    name = "daskmetrics-pinning"

    def __init__(self, pins: Pins) -> None:
        self.pins = pins

    def setup(self, worker: Worker) -> None:
        worker.daskmetrics_pins = {"name": worker.name, **pin(self.pins)}


def pin_workers(client: Client, pins: Pins) -> Mapping[str, Mapping[str, Any]]:
    """Pin all workers of a client, also those that arrive later.

    Returns
    -------
    mapping
        By worker name: its ``cpus`` and ``gpus``, and ``problem`` if too few were free.

    Examples
    --------
    >>> pin_workers(client, Pins(cpus=1))  # doctest: +SKIP
    {'0': {'name': 0, 'cpus': ['0'], 'gpus': None, 'problem': None}}
    """
    client.register_plugin(PinningPlugin(pins))
    results = client.run(lambda dask_worker: dask_worker.daskmetrics_pins)
    return {str(result["name"]): result for result in results.values()}


def require(pins: Pins, workers: int) -> None:
    """Check that this machine has the CPUs and GPUs for so many workers.

    Raises
    ------
    ConfigError
        If it has not, with the requested and the available number.

    Examples
    --------
    >>> require(Pins(cpus=1), workers=1)
    """
    for kind, count, available in (
        ("CPUs", pins.cpus, os.sched_getaffinity(0)),
        ("GPUs", pins.gpus, visible_gpus()),
    ):
        if count and count * workers > len(available):
            raise ConfigError(
                f"{workers} workers with {count} {kind} each need {count * workers}, this machine "
                f"offers {len(available)}. Use fewer workers or fewer {kind} per worker, or a "
                "cluster (--cluster)."
            )


def pin(pins: Pins) -> dict[str, Any]:
    """Pin this process to CPUs and GPUs, and set its threads to match.

    CPUs near its first GPU are taken first; the system allocates memory near the CPU that first
    writes it. It must run before the process starts CUDA. If too few are free, the process stays
    unpinned and reports it.
    """
    result: dict[str, Any] = {"cpus": None, "gpus": None, "problem": None}
    near: set[str] = set()
    try:
        if pins.gpus is not None:
            gpus = claim("gpu", visible_gpus(), pins.gpus)
            os.environ[VISIBLE] = ",".join(gpus)
            result["gpus"] = gpus
            if gpus:
                near = cpus_near(gpus[0])
        if pins.cpus is not None:
            usable = map(str, sorted(os.sched_getaffinity(0)))
            cpus = sorted(usable, key=lambda cpu: cpu not in near)
            result["cpus"] = claim("cpu", cpus, pins.cpus)
            os.sched_setaffinity(0, map(int, result["cpus"]))
            os.environ.update(dict.fromkeys(THREADS, str(pins.cpus)))
            from threadpoolctl import threadpool_limits

            threadpool_limits(pins.cpus)  # for libraries that have already read the environment
    except (ConfigError, OSError) as error:
        result["problem"] = str(error)
    return result


def cpus_near(gpu: str, root: Path = Path("/")) -> set[str]:
    """The CPUs of the memory node of a GPU, given by its number or UUID.

    The system lists them as ``0-3,8``; there are none if it does not know the GPU.
    """
    cpus: set[str] = set()
    for address, facts in driver_gpus(root).items():
        near = root / "sys/bus/pci/devices" / address / "local_cpulist"
        if gpu in (facts.get("Device Minor"), facts.get("GPU UUID")) and near.is_file():
            for start, end in re.findall(r"(\d+)(?:-(\d+))?", near.read_text()):
                cpus.update(map(str, range(int(start), int(end or start) + 1)))
    return cpus


def claim(
    kind: str,
    offered: Sequence[str],
    count: int,
    folder: Path | None = None,
) -> list[str]:
    """Claim a number of the CPUs or GPUs that are offered on this node.

    ConfigError if too few are free.

    A claim is a lock on a file, which the system releases when the process ends for whatever
    reason. So workers of different jobs need not know each other.
    """
    folder = folder or node_temporary() / f"daskmetrics-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():  # also of a link to a folder of this user's
        raise ConfigError(
            f"'{folder}' belongs to another user: set TMPDIR to a folder of your own."
        )
    claims: dict[str, int] = {}  # an open file by name
    with open_own(folder / "claiming", "ab") as lock:
        # otherwise two workers could each get half of what they need
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in offered:
            if len(claims) == count:
                break
            file = locked(folder / f"{kind}-{name}", os.O_RDWR | os.O_CREAT)
            if file is not None:
                claims[name] = file
        if len(claims) < count:
            for file in claims.values():
                os.close(file)
            raise ConfigError(
                f"This worker needs {count} {kind}s; of {len(offered)}, {len(claims)} are free."
            )
    return list(claims)
