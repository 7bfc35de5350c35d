"""Ctrl-C, a scheduler that goes away, workers of other versions: what ends a run, and how."""

from __future__ import annotations

import logging
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, ConfigError
from daskmetrics.domain.events import AttemptFailed
from daskmetrics.execution import Record, Settings, Sweep, WorkUnit, run
from daskmetrics.execution.journal import read
from tests.cli.calling import process, wait_until
from tests.faults import units as work

# where another run's dashboard has the port, tornado leaves the socket that it tried to the
# collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

ROOT = Path(__file__).parent.parent.parent


def records(folder: Path) -> list[str]:
    return [entry.key for entry in read(folder / "journal.jsonl") if isinstance(entry, Record)]


def driver(folder: Path, seconds: float, units: int):
    return process(folder, "-m", "tests.faults.units", str(folder), str(seconds), str(units))


def test_once_finishes_what_runs_and_the_same_command_resumes(tmp_path):
    """The signal goes to the whole group, workers and all, as from a terminal."""
    with driver(tmp_path, 1.5, 12) as child:
        assert child.stdout.readline().startswith("u")
        time.sleep(0.5)  # the next two are running
        before = len(records(tmp_path))
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in err and child.returncode == -signal.SIGINT
    after = records(tmp_path)
    assert before < len(after) < 12
    assert not [
        entry for entry in read(tmp_path / "journal.jsonl") if isinstance(entry, AttemptFailed)
    ]
    with driver(tmp_path, 0.01, 12) as child:
        assert child.wait(timeout=100) == 0
    assert sorted(records(tmp_path)) == sorted(f"u{i}" for i in range(12))
    assert records(tmp_path)[: len(after)] == after


def test_twice_stops_now(tmp_path):
    journal = tmp_path / "journal.jsonl"
    with driver(tmp_path, 100.0, 4) as child:
        wait_until(lambda: journal.exists() and b'"ask"' in journal.read_bytes(), child)
        time.sleep(3)  # they run
        children = psutil.Process(child.pid).children(recursive=True)
        os.killpg(child.pid, signal.SIGINT)
        time.sleep(1)
        assert child.poll() is None, "once waits for what is running"
        os.killpg(child.pid, signal.SIGINT)
        child.communicate(timeout=60)
        _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    assert records(tmp_path) == []


STARTS = """
import time
from daskmetrics.cluster import connect
from daskmetrics.config import Cluster

print("starts", flush=True)
with connect(Cluster(workers=2)):
    time.sleep(100)
"""


@pytest.mark.parametrize(("processes", "delay"), [(0, 0.0), (0, 0.5), (2, 0.0), (3, 0.3)])
def test_ctrl_c_while_a_cluster_starts_ends_the_process(tmp_path, processes, delay):
    """Some time after so many processes were started, the last two of which are workers. Dask's
    half-started client and cluster could not be closed, and were waited for.
    """
    with process(tmp_path, "-c", STARTS) as child:
        assert child.stdout.readline() == "starts\n"
        driver = psutil.Process(child.pid)
        while len(children := driver.children(recursive=True)) < processes:
            time.sleep(0.01)
        time.sleep(delay)
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
        _, alive = psutil.wait_procs(children, timeout=30)
    assert child.returncode == -signal.SIGINT and not alive
    assert err.endswith("KeyboardInterrupt\n") and "During handling" not in err, err


@contextmanager
def cluster(folder: Path, **environment: str):
    """A scheduler and a worker, each a process of its own."""
    file = folder / "scheduler.json"
    dask = (folder, "-m", "dask")
    own = ("--scheduler-file", str(file), "--no-dashboard")
    offer = ("--nthreads", "1", "--resources", "GPU=1 CPU=1", "--name", "first")
    with process(*dask, "scheduler", *own, "--host", "127.0.0.1", "--port", "0") as scheduler:
        wait_until(file.exists, scheduler)
        with process(*dask, "worker", *own, *offer, **environment):
            yield str(file), scheduler


def test_a_killed_scheduler_ends_the_run_with_a_clear_message(tmp_path, journal):
    units = [WorkUnit(f"u{i}", f"u{i}", "demo", work.nap, (0.3, i)) for i in range(50)]
    seen = []

    def kill(record) -> None:
        seen.append(record.key)
        if len(seen) == 3:
            # it prints a traceback
            assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)
            scheduler.kill()

    with (
        cluster(tmp_path) as (file, scheduler),
        connect(Cluster(kind="existing", address=file)) as client,
        pytest.raises(
            ClusterLostError, match="Nothing recorded is lost: run the same command again"
        ),
    ):
        run(Sweep(units), client, journal, Settings(), kill)
    recorded = [record.key for record in journal.records()]
    assert recorded == seen and 3 <= len(seen) < 50


METADATA = "Metadata-Version: 2.1\nName: daskmetrics\nVersion: 9.9.9\n"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "daskmetrics-9.9.9.dist-info/METADATA",
            METADATA,
            "has daskmetrics 9.9.9, the driver has daskmetrics",
        ),
        ("daskmetrics/__init__.py", "raise ImportError('broken')", "cannot import daskmetrics"),
    ],
)
def test_a_worker_of_another_version_gets_no_work(tmp_path, journal, file, text, message):
    (tmp_path / "other" / file).parent.mkdir(parents=True)
    (tmp_path / "other" / file).write_text(text)
    path = os.pathsep.join([str(tmp_path / "other"), str(ROOT)])
    units = [WorkUnit("u", "u", "demo", work.count, (str(tmp_path), "ran"))]
    with (
        cluster(tmp_path, PYTHONPATH=path) as (file, _),
        connect(Cluster(kind="existing", address=file)) as client,
        pytest.raises(ConfigError, match=message),
    ):
        run(Sweep(units), client, journal, Settings())
    assert not (tmp_path / "ran").exists()
