"""Preload of a process of Dask: its timers do not follow a wall clock that is set back.

Dask and Tornado compute when to act next by the wall clock. After a step back by a day, messages that wait to be sent
together, and all heartbeats, would wait for a day.
"""

from __future__ import annotations

import time
from functools import cache

from distributed import batched
from tornado.ioloop import IOLoop


def dask_setup(worker: object) -> None:
    """Called by Dask with the new worker."""
    keep_time()


@cache
def keep_time() -> None:
    """Let the timers of this process go on from the present wall time as the monotonic clock does."""
    ahead = time.time() - time.monotonic()
    batched.time = lambda: ahead + time.monotonic()
    IOLoop.time = lambda loop: ahead + time.monotonic()
