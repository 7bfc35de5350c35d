"""What Dask loads into each process of a cluster that we start; `dask_setup` acts by its kind.

======================= ==========================================================================
every process           its timers do not follow a wall clock that is set back
the scheduler           requests without the private prefix of the dashboard get error 404
a worker                imports modules of the working folder, after Python's own; its log leaves
                        out units that fail, which the driver reports, and its own end
a nanny of a Slurm job  reports kills by the kernel for memory; shares out a whole node's GPUs
======================= ==========================================================================
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import dask
from distributed import Nanny, Scheduler, Worker, batched
from distributed.comm import CommClosedError
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.web import ErrorHandler

from daskmetrics.core.machine import VISIBLE, split_gpus
from daskmetrics.core.main_module import import_from

PREFIX = "daskmetrics.dashboard-prefix"
"""Key of Dask's configuration under which the scheduler finds its prefix."""

GPU_PER_WORKER = "DASKMETRICS_GPU_PER_WORKER"
"""Variable of whole-node jobs, whose workers share its GPUs."""

OVER_MEMORY = "worker-restart-memory"
"""Topic on which Dask's own nannies report the workers that they ended for their memory."""

_ENDS: Mapping[str, tuple[type[Exception], ...]] = {
    # the scheduler or the worker closes their connection while a heartbeat is under way
    "Failed to communicate with scheduler during heartbeat.": (CommClosedError,),
    # it closes the queue from its nanny while a thread still reads it; a lost nanny: EOFError
    "Worker process died unexpectedly": (TypeError, OSError),
}
"""What Dask logs as errors, with a traceback, of a worker that ends as it should."""

CHECK_INTERVAL = 100  # milliseconds between two looks at the kernel's count
PROCESS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def dask_setup(process: Scheduler | Nanny | Worker) -> None:
    """Called by Dask with the new scheduler, nanny or worker."""
    keep_time()
    match process:
        case Scheduler():
            # a driver that was stopped meanwhile has taken the prefix back
            if prefix := dask.config.get(PREFIX, None):
                hide_other_paths(process, prefix)
        case Worker():
            # The worker is started with -P: otherwise a file queue.py in the working folder would
            # replace the module of this name.
            import_from(Path.cwd())
            # To look for garbage among the modules of torch and transformers, while they are
            # imported and when the process ends, takes two seconds.
            gc.set_threshold(2_000, 10, 50)
            atexit.register(gc.freeze)
            for name in ("distributed.worker", "distributed.nanny"):
                logging.getLogger(name).addFilter(is_no_failure)
        case Nanny():
            if GPU_PER_WORKER in os.environ:
                # This exits without a GPU: after an exception Dask would go on.
                visible = os.environ.get(VISIBLE, "")
                process.env[VISIBLE] = worker_gpu(str(process.name), visible)
            PeriodicCallback(watch(process, oom_kills), CHECK_INTERVAL).start()


def is_no_failure(entry: logging.LogRecord) -> bool:
    """Whether an entry of a worker's log is to be shown.

    Failed units are not, which the driver reports, nor the worker's own end.
    """
    message = entry.getMessage()
    kind = None
    if entry.exc_info:
        kind = entry.exc_info[0]
    return not message.startswith("Compute Failed") and kind not in _ENDS.get(message, ())


@cache
def keep_time() -> None:
    """Let the timers of this process follow its monotonic clock from now on.

    Dask and Tornado compute when to act next by the wall clock. After a step back by a day,
    messages that wait to be sent together, and all heartbeats, would wait for a day.
    """
    ahead = time.time() - time.monotonic()
    batched.time = lambda: ahead + time.monotonic()
    IOLoop.time = lambda loop: ahead + time.monotonic()


def hide_other_paths(scheduler: Scheduler, prefix: str) -> None:
    """Answer requests outside the private prefix by error 404.

    The prefix alone does not hide a dashboard: Dask redirects ``/`` to it, and lists it in
    ``/sitemap.json``.
    """
    application = scheduler.http_application
    find_handler = application.find_handler

    def find_below_prefix(request: Any, **options: Any) -> Any:
        if request.path.startswith(f"{prefix}/"):
            return find_handler(request, **options)
        return application.get_handler_delegate(request, ErrorHandler, {"status_code": 404})

    application.find_handler = find_below_prefix


def worker_gpu(name: str, visible: str) -> str:
    """The GPU of the worker whose name ends in ``-i``, or SystemExit.

    That is entry i of the job's ``CUDA_VISIBLE_DEVICES``.

    It follows from the name, so that a restarted worker gets the same GPU.

    >>> worker_gpu("gpu-7-2", "4,5,6,7"), worker_gpu("gpu-7-0", "MIG-a,MIG-b")
    ('6', 'MIG-a')
    >>> worker_gpu("gpu-7-4", "4,5,6,7")
    Traceback (most recent call last):
    SystemExit: Worker gpu-7-4 has no GPU: its job's CUDA_VISIBLE_DEVICES is '4,5,6,7'.
    """
    number = name.rpartition("-")[2]
    gpus = split_gpus(visible)
    if not number.isdigit() or int(number) >= len(gpus):
        raise SystemExit(f"Worker {name} has no GPU: its job's {VISIBLE} is '{visible}'.")
    return gpus[int(number)]


def watch(nanny: Nanny, kills: Callable[[], int]) -> Callable[[], None]:
    """A check that reports a worker which the kernel has killed for memory.

    Dask's nanny reports only the workers that it ended itself; a job goes on after such a kill, and
    Slurm shows it at the job's end.
    """
    pid = None
    address = None
    kills_before = kills()

    def check() -> None:
        nonlocal pid, address, kills_before
        if pid is not None and nanny.pid != pid and kills() > kills_before:
            nanny.log_event(OVER_MEMORY, {"worker": address, "pid": pid})
            kills_before = kills()
        pid = nanny.pid
        address = nanny.worker_address or address

    return check


def oom_kills(process: Path = PROCESS, groups: Path = GROUPS) -> int:
    """How many processes of this one's control group the kernel has killed for memory.

    0 if it does not say.
    """
    if not process.exists():
        return 0
    counts = [0]
    for line in process.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        # version 2 has one hierarchy for all controllers
        name = "memory.events"
        if controllers:
            name = "memory.oom_control"
        file = groups / controllers / path.lstrip("/") / name
        if file.is_file():
            counts += map(int, re.findall(r"^oom_kill (\d+)", file.read_text(), re.MULTILINE))
    return max(counts)
