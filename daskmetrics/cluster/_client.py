"""Clients of a cluster of this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from distributed import Client


@contextmanager
def client_of(cluster: Any) -> Iterator[Client]:
    """A client of a cluster, which is closed with the block, also if Ctrl-C comes while it starts.

    It starts in a thread, which gets no Ctrl-C: a start of Dask that is cancelled leaves a client
    and a cluster that cannot be closed any more, and for which the process waits at its end.
    """
    with ThreadPoolExecutor(max_workers=1) as thread:
        start = thread.submit(Client, cluster, set_as_default=False)
        try:
            yield start.result()
        finally:
            start.result().close()
