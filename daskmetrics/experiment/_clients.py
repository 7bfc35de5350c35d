"""Clients and clusters of the user: what a run needs of them, checked before anything is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed import Client

from daskmetrics.core._machine import workers
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import _handshake as handshake
from daskmetrics.execution._runner import PLAIN


@contextmanager
def client_of(client: Any = None, cluster: Any = None) -> Iterator[Client]:
    """A synchronous client for a client or a cluster object of the user, who keeps it.

    An asynchronous one, as in a notebook's event loop, gets a second client with an event loop of its own.

    Raises
    ------
    ConfigError
        If it is neither, is not connected, or its scheduler needs the event loop that the run would block.
    """
    given = cluster if client is None else client
    if client is not None and not isinstance(client, Client):
        raise ConfigError(
            f"client: got a {type(client).__name__}; pass a distributed.Client, or a cluster as 'cluster'."
        )
    if client is not None and not client._asynchronous:
        _require_open(client.status == "running", "client")
        yield client
        return
    address = _address(given)
    _require_other_loop(getattr(given, "cluster", None) if client is not None else cluster)
    with Client(address, security=given.security, set_as_default=False, timeout=30) as own:
        yield own


def _address(given: Any) -> str:
    """The scheduler's address."""
    if isinstance(given, Client):
        _require_open(given.status == "running", "client")
        return str(given.scheduler.address)
    if not hasattr(given, "scheduler_address"):
        raise ConfigError(
            f"cluster: got a {type(given).__name__}; pass a cluster of Dask such as LocalCluster, the name or the file "
            "of a profile, or a mapping with its keys."
        )
    try:
        address = str(given.scheduler_address)
    except RuntimeError as error:  # of a ProfileCluster
        raise ConfigError(f"cluster: {error}.") from None
    _require_open("://" in address, "cluster")
    return address


def _require_open(is_open: bool, what: str) -> None:
    if not is_open:
        raise ConfigError(f"{what}: it is not connected. Await it if it is asynchronous, or make another one.")


def _require_other_loop(cluster: Any) -> None:
    """A scheduler in the event loop of this thread cannot answer while the run blocks it."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    loop = getattr(getattr(cluster, "loop", None), "asyncio_loop", None)
    if loop is running:
        raise ConfigError(
            "The cluster runs in this event loop, which the run would block. Pass background=True, or use: await "
            "asyncio.to_thread(daskmetrics.run, ...)"
        )


def require_workers(client: Client, paths: Sequence[str], patience: float) -> None:
    """Check that the workers of a client of the user can run the units.

    Parameters
    ----------
    client : distributed.Client
    paths : sequence of str
        Files and folders of this machine that the workers must see.
    patience : float
        Seconds to wait for the first worker.

    Raises
    ------
    ConfigError
        If no worker arrives, workers are threads of this process, none offers a GPU slot, versions differ, or a file
        is not visible.
    """
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError:
        raise ConfigError(
            f"No worker arrived within {patience:.0f} s: start some, for instance cluster.scale(2)."
        ) from None
    arrived = workers(client)
    if any(address.startswith("inproc://") for address in arrived):
        raise ConfigError(
            "The workers are threads of this process, so a failing unit would end it, too. Use LocalCluster(...) with "
            "processes=True."
        )
    offers = [own if own.keys() & PLAIN.keys() else PLAIN for own in (w["resources"] for w in arrived.values())]
    if missing := [name for name in PLAIN if not any(own.get(name) for own in offers)]:
        raise ConfigError(
            f"No worker offers the resource {' or '.join(missing)}. Start workers without resources, or with: dask "
            'worker ... --resources "GPU=1 CPU=1" (also on machines without a GPU).'
        )
    names = {address: str(worker["name"]) for address, worker in arrived.items()}
    for address, answer in client.run(eval, handshake.question(), on_error="return").items():
        handshake.require_same(
            names.get(address, address), answer if isinstance(answer, BaseException) else answer["versions"]
        )
    for address, unseen in client.run(_unseen, list(paths), on_error="ignore").items():
        if unseen:
            raise ConfigError(
                f"Worker {names.get(address, address)} does not see '{unseen[0]}'. Put the run, its models and its "
                "texts into a folder that all machines share."
            )


def _unseen(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not Path(path).exists()]
