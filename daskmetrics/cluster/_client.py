"""Clients of a cluster of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from distributed import Client

from daskmetrics.core.errors import DaskmetricsError, foreign_errors
from daskmetrics.core.text import OnMessage

# seconds for a client, or for a cluster on this machine: Dask waits for ever for a thread that ends
# as it is asked
CLOSE_WITHIN = 60.0


@contextmanager
def client_of(cluster: Any, on_message: OnMessage) -> Iterator[Client]:
    """A client of a cluster.

    Both are closed with the block, also if Ctrl-C comes while it starts.

    It starts in a thread, which gets no Ctrl-C: a start of Dask that is cancelled leaves a client
    and a cluster that cannot be closed any more, and for which the process waits at its end. What
    fails while they close is a message: it takes nothing from what the block has done.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        start = thread.submit(Client, cluster, set_as_default=False)
        try:
            yield start.result()
        finally:
            try:
                if start.exception() is None:
                    close(partial(start.result().close, CLOSE_WITHIN), on_message)
            finally:
                close(cluster.close, on_message)


def close(call: Callable[[], object], on_message: OnMessage) -> None:
    """Call what closes a part of a cluster; its failure is a message."""
    try:
        with foreign_errors("The cluster did not close as it should", DaskmetricsError):
            call()
    except DaskmetricsError as error:
        on_message(f"Warning: {error} What was recorded is not affected.")
