"""Clients and clusters of the user, of any class of Dask, as a synchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client

from daskmetrics.core.errors import ConfigError


@contextmanager
def client_of(given: Any, what: str = "client") -> Iterator[Client]:
    """A synchronous client for a client or a cluster object of the user, who keeps it.

    A cluster gets a client of its own, and so does an asynchronous client, as in a notebook's event
    loop.

    Raises
    ------
    ConfigError
        If it is neither, is not connected, or its scheduler needs the event loop that the caller
        would block.
    """
    if isinstance(given, Client) and not given._asynchronous:
        _require_open(given.status == "running", what)
        yield given
        return
    address = _address(given, what)
    if needs_this_loop(given):
        raise ConfigError(
            f"{what}: its cluster runs in this event loop, which the call would block. Use: await "
            "asyncio.to_thread(...), or run(..., background=True)"
        )
    try:
        client = Client(address, security=given.security, set_as_default=False, timeout=30)
    except OSError as error:
        raise ConfigError(f"{what}: no scheduler answers at '{address}': {error}.") from None
    with client:
        yield client


def _address(given: Any, what: str) -> str:
    """The scheduler's address."""
    if isinstance(given, Client):
        _require_open(given.status == "running", what)
        return str(given.scheduler.address)
    if not hasattr(given, "scheduler_address"):
        raise ConfigError(
            f"{what}: got a {type(given).__name__}; pass a distributed.Client, or a cluster of Dask such as "
            "LocalCluster."
        )
    try:
        address = str(given.scheduler_address)
    except RuntimeError as error:  # of a ProfileCluster
        raise ConfigError(f"{what}: {error}.") from None
    _require_open("://" in address, what)
    return address


def _require_open(is_open: bool, what: str) -> None:
    if not is_open:
        raise ConfigError(
            f"{what}: it is not connected. Await it if it is asynchronous, or make another one."
        )


def needs_this_loop(given: Any) -> bool:
    """Whether the scheduler of a client or cluster lives in the running event loop, and cannot
    answer if it blocks.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return False
    cluster = given.cluster if isinstance(given, Client) else given
    return getattr(getattr(cluster, "loop", None), "asyncio_loop", None) is running
