"""What Dask loads into the processes of a cluster; with a real kernel and real jobs in
tests/slurm.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from distributed.comm import CommClosedError

from daskmetrics.cluster._preload import (
    OVER_MEMORY,
    is_no_failure,
    oom_kills,
    watch,
)


@pytest.mark.parametrize(
    ("group", "file", "text"),
    [
        ("4:memory:", "memory/slurm/job_7/memory.oom_control", "under_oom 0\noom_kill 2"),
        ("0::", "slurm/job_7/memory.events", "oom 5\noom_kill 2\noom_group_kill 1"),
    ],
    ids=["cgroup-1", "cgroup-2"],
)
def test_the_kernels_kills_are_counted(tmp_path, group, file, text):
    (tmp_path / "own").write_text(f"9:cpu:/elsewhere\n{group}/slurm/job_7\n")
    assert oom_kills(tmp_path / "own", tmp_path) == 0 == oom_kills(tmp_path / "missing", tmp_path)
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert oom_kills(tmp_path / "own", tmp_path) == 2


@pytest.mark.parametrize(
    ("message", "error", "is_shown"),
    [
        ("Compute Failed\nKey: a", None, False),
        ("Failed to communicate with scheduler during heartbeat.", CommClosedError(), False),
        ("Failed to communicate with scheduler during heartbeat.", OSError("timed out"), True),
        ("Worker process died unexpectedly", TypeError(), False),
        ("Worker process died unexpectedly", EOFError(), True),
        ("Scheduler was unaware of this worker; shutting down.", None, True),
    ],
)
def test_the_log_of_a_worker_omits_failed_units_and_its_own_end(message, error, is_shown):
    info = error and (type(error), error, None)
    entry = logging.LogRecord("distributed.worker", logging.ERROR, "", 0, message, (), info)
    assert is_no_failure(entry) == is_shown


def test_a_worker_is_reported_only_if_it_ended_by_a_kernel_kill():
    events, kills = [], 0
    nanny = SimpleNamespace(
        pid=None, worker_address=None, log_event=lambda *event: events.append(event)
    )
    check = watch(nanny, lambda: kills)
    check()
    nanny.pid, nanny.worker_address = 7, "tls://a"
    check()
    kills = 1  # another worker of the job
    check()
    assert not events
    kills, nanny.pid, nanny.worker_address = 2, None, None
    check()
    nanny.pid, nanny.worker_address = 8, "tls://b"
    check()
    assert events == [(OVER_MEMORY, {"worker": "tls://a", "pid": 7})]
    nanny.pid = 9  # it ended for another reason
    check()
    assert len(events) == 1


SCHEDULER = """
from distributed import Scheduler
from daskmetrics.cluster._preload import dask_setup
dask_setup(object.__new__(Scheduler))
"""


def test_a_scheduler_of_a_stopped_driver_starts_without_an_error():
    subprocess.run([sys.executable, "-c", SCHEDULER], check=True)


WORKER = """
from distributed import Worker
from daskmetrics.cluster._preload import dask_setup
dask_setup(object.__new__(Worker))
"""
COMMAND = "from daskmetrics.cli import main; main(['list', 'metrics'])"


@pytest.mark.parametrize("code", [WORKER, COMMAND], ids=["worker", "command"])
def test_a_process_that_ends_looks_for_no_garbage(code):
    code = f"import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("True\n")
