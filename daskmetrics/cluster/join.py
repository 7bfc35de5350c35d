"""Workers that join a running map by hand, on any machine that sees its folder, and leave it
again.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Scheduler, Security
from distributed.comm import connect
from distributed.core import send_recv
from distributed.protocol.pickle import dumps

from daskmetrics.cluster._certificates import INHERITED, inherited
from daskmetrics.cluster._dask_config import withdraw
from daskmetrics.cluster.slurm.script import worker_command
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, ConfigError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.text import OnMessage, plural

POLL = 0.5  # seconds
CONNECT = 10.0  # seconds; a map that ends meanwhile is not waited for any longer
# seconds without work after which a worker may go: a driver sees within 5 s that it offers nothing
IDLE = 7.0


@contextmanager
def admitting(client: Client, profile: Cluster, file: Path) -> Iterator[None]:
    """Within the block, a private file says how a worker joins a cluster."""
    admission = {
        "host": socket.gethostname(),
        "address": client.scheduler.address,
        "memory": profile.memory,
        "environment": inherited(client.security),
    }
    atomic_write(file, json.dumps(admission))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def join(folder: Path, count: int, memory: str | None, say: OnMessage) -> None:
    """Start workers for the map in a folder.

    Returns when they have ended, with the map or after Ctrl-C.

    Raises ConfigError if the map does not run or accepts workers of its own machine only, and
    ClusterLostError if its scheduler is lost, or the workers could not start.
    """
    admission = _admission(folder)
    stops: list[int] = []

    def leave(number: int, frame: object) -> None:
        if stops:
            raise KeyboardInterrupt
        stops.append(number)
        say("Leaving: what runs is finished first. Press Ctrl-C again to leave at once.")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    environment = {
        # tasks cancelled when a map is stopped would be logged as warnings
        "DASK_LOGGING__DISTRIBUTED": "error",
        **os.environ,
        **admission["environment"],
    }
    processes = {}
    for i in range(count):
        name = f"{socket.gethostname()}-{os.getpid()}-{i}"
        command = worker_command(admission["address"], name, memory or admission["memory"], None)
        # in a new session, so that a Ctrl-C at the terminal does not reach it
        processes[name] = subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    say(
        f"{plural(count)} of this machine ({socket.gethostname()}) joined '{folder}'. "
        "Ctrl-C: leave."
    )
    file = RunFolder(folder).scheduler  # removed when the map ends
    arrived: Collection[str] = ()
    with suppress(KeyboardInterrupt):  # the second Ctrl-C
        arrived = asyncio.run(_attend(admission, processes, stops, file))
    for name, process in processes.items():
        if name in arrived:
            process.terminate()
        else:
            _kill(process)
    for process in processes.values():
        process.wait()
    if not stops and file.exists():
        raise ClusterLostError(
            f"The workers ended before the map in '{folder}': its driver was killed, its "
            "scheduler cannot be reached from this machine, or they could not start. Run the "
            "command of the map again to resume it, then this one."
        )
    say("Left." if stops else "The map has ended.")


def _admission(folder: Path) -> dict[str, Any]:
    file = RunFolder(folder).must_exist().scheduler
    if not file.exists():
        raise ConfigError(
            f"No map runs in '{folder}': start it with daskmetrics map, then join it."
        )
    admission = dict(json.loads(file.read_text()))
    if "//127." in admission["address"] and admission["host"] != socket.gethostname():
        raise ConfigError(
            f"The scheduler of '{folder}' accepts workers of its own machine, {admission['host']}, "
            "only. Start the map with a profile that has cluster.interface, such as ib0."
        )
    return admission


async def _attend(
    admission: dict[str, Any],
    processes: Mapping[str, subprocess.Popen[bytes]],
    stops: Sequence[int],
    file: Path,
) -> Collection[str]:
    """Wait until the map ends, or the workers have left or ended.

    Returns the names of those that the scheduler knows.
    """
    tasks: Mapping[str, int] = {}
    busy_at = time.monotonic()
    with dask.config.set(dask.config.deserialize(admission["environment"][INHERITED])):
        security = Security().get_connection_args("client")
        # a Client would try for 30 s to connect again when the map has ended
        with suppress(OSError):
            scheduler = await connect(admission["address"], timeout=CONNECT, **security)
            while file.exists() and any(process.poll() is None for process in processes.values()):
                arguments = dumps({"names": list(processes), "leaving": bool(stops)})
                answer = await send_recv(
                    scheduler, op="run_function", function=dumps(_tasks), kwargs=arguments
                )
                tasks = answer["result"]
                if not stops or any(tasks.values()):
                    busy_at = time.monotonic()
                if stops:
                    # they start or start again; if they arrived later, they would get work
                    for name in processes.keys() - tasks.keys():
                        _kill(processes[name])
                if time.monotonic() > busy_at + IDLE:
                    break
                await asyncio.sleep(POLL)
            await scheduler.close()
    return tasks


def _tasks(dask_scheduler: Scheduler, names: Sequence[str], leaving: bool) -> dict[str, int]:
    """How many tasks each worker has that has arrived.

    Those that leave get no more.
    """
    if leaving:
        withdraw(dask_scheduler, names)
    workers = dask_scheduler.workers.values()
    return {worker.name: len(worker.processing) for worker in workers if worker.name in names}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a nanny and its worker, which have no work, at once.

    Dask would end them with tracebacks.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
