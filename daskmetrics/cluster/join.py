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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Scheduler, Security, rpc
from distributed.protocol.pickle import dumps

from daskmetrics.cluster._certificates import INHERITED, inherited
from daskmetrics.cluster._dask_config import withdraw
from daskmetrics.cluster.slurm.commands import OnMessage
from daskmetrics.cluster.slurm.script import worker_command
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.text import plural

POLL = 0.2  # seconds
CONNECT = 10.0  # seconds; a map that ends meanwhile is not waited for any longer
# seconds without work after which a worker may go: a driver sees within 5 s that it offers nothing
IDLE = 7.0


@contextmanager
def admitting(client: Client, profile: Cluster, file: Path) -> Iterator[None]:
    """Within the block, a file that is private to the user says how a worker joins the cluster of a
    client.
    """
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
    """Start workers for the map in a folder; returns when they have ended, with the map or after
    Ctrl-C.

    Raises ConfigError if the map does not run, or its scheduler cannot be reached from this
    machine.
    """
    admission = _admission(folder)
    names = [f"{socket.gethostname()}-{os.getpid()}-{i}" for i in range(count)]
    environment = {
        "DASK_LOGGING__DISTRIBUTED": "warning",
        **os.environ,
        **admission["environment"],
    }
    processes = []
    for name in names:
        command = worker_command(admission["address"], name, memory or admission["memory"], None)
        # in a new session, so that a Ctrl-C at the terminal does not reach it
        process = subprocess.Popen(
            [sys.executable, *command], env=environment, start_new_session=True
        )
        processes.append(process)
    stops: list[int] = []
    file = RunFolder(folder).scheduler  # removed when the map ends
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: stops.append(number))
    say(
        f"{plural(count)} of this machine ({socket.gethostname()}) joined '{folder}'. "
        "Ctrl-C: leave."
    )
    while any(process.poll() is None for process in processes):
        if stops:
            say("Leaving: what runs is finished first. Press Ctrl-C again to leave at once.")
            with suppress(OSError):  # the map has ended meanwhile
                asyncio.run(_drain(admission, names, lambda: len(stops) > 1 or not file.exists()))
            break
        time.sleep(POLL)
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()
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


async def _drain(
    admission: dict[str, Any], names: Sequence[str], hurry: Callable[[], bool]
) -> None:
    """Let workers finish what they have, and take nothing more; an OSError if the map ends."""
    with dask.config.set(dask.config.deserialize(admission["environment"][INHERITED])):
        security = Security().get_connection_args("client")
        # a Client would try for 30 s to connect again when the map has ended
        async with rpc(
            admission["address"], timeout=CONNECT, connection_args=security
        ) as scheduler:
            arguments = dumps({"names": list(names)})
            await scheduler.run_function(function=dumps(withdraw), kwargs=arguments)
            idle = time.monotonic()
            while time.monotonic() < idle + IDLE and not hurry():
                await asyncio.sleep(POLL)
                tasks = await scheduler.run_function(function=dumps(_tasks), kwargs=arguments)
                if tasks["result"]:
                    idle = time.monotonic()


def _tasks(dask_scheduler: Scheduler, names: Sequence[str]) -> int:
    """How many tasks workers have."""
    workers = dask_scheduler.workers.values()
    return sum(len(worker.processing) for worker in workers if worker.name in names)
