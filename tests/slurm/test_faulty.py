"""Every command of Slurm fails in turn, hangs, or answers with random bytes; every thread and every
helper process is ended in turn. A map, a run, a watch or a training ends right, or says why not,
and the same command heals it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.slurm.faulty import COMMANDS, FAULTS, LONG, SHORT, Place, checkpoints
from tests.slurm.site import comes_true, command, jobs, needs_slurm, no_job_is_left

pytestmark = needs_slurm

# in turn; DASKMETRICS_FAULTS=full takes each command by itself, and strikes runs everywhere
FULL = os.environ.get("DASKMETRICS_FAULTS") == "full"
TOGETHER = [(name,) for name in COMMANDS] if FULL else [("sbatch", "sinfo"), ("squeue", "scancel")]
WITHIN = 300  # seconds for what takes one, or a minute where workers import torch


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    return checkpoints(tmp_path_factory.mktemp("models"))


@pytest.fixture(params=["map", "run", "watch", "train"] if FULL else ["map"])
def place(request, slurm, models, tmp_path) -> Place:
    return Place(tmp_path, request.param, models)


def begins(place: Place) -> bool:
    """Whether the first results are recorded in time."""
    return bool(comes_true(lambda: place.records, WITHIN))


def is_complete() -> bool:
    """Whether two jobs run in time."""
    return comes_true(lambda: len(jobs("RUNNING")) == 2, 60) is not None


@pytest.mark.parametrize("place", ["map", "run", *["watch"] * FULL, "train"], indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_during_the_work_delays_it_at_most(place, fault):
    """A job is cancelled beside each fault, and is replaced when the fault is over."""
    with place.work(LONG) as driver:
        assert begins(place), place.said
        for names in TOGETHER:
            place.set(fault, *names)
            command("scancel", *jobs("RUNNING")[:1])
            time.sleep(3)
            place.heal()
            assert is_complete(), (names, place.said)
        place.set(fault, "scancel", "squeue")  # also while it closes
        place.hurry()
        assert driver.wait(WITHIN) == 0, place.said
    assert place.is_complete(LONG)
    place.heal()
    assert no_job_is_left()


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        *((("sbatch",), fault) for fault in FAULTS),
        (("squeue",), "hangs"),
        (("sinfo", "scancel"), "random"),
    ],
)
def test_a_fault_from_the_start_is_said_and_the_next_call_heals(place, names, fault):
    place.set(fault, *names)
    with place.work(SHORT) as driver:
        code = driver.wait(WITHIN)
    if code:
        assert re.search("sbatch|it fails|Slurm does not answer", place.said), place.said
        assert "Error: " in place.said
        place.heal()
        with place.work(SHORT) as driver:
            assert driver.wait(WITHIN) == 0, place.said
    assert place.is_complete(SHORT)
    place.heal()
    assert no_job_is_left(within=100)


@pytest.mark.parametrize("place", ["map"], indirect=True)
def test_a_killed_cancel_helper_is_started_again(place):
    with place.work(LONG) as driver:
        assert begins(place), place.said
        [helper] = [p for p in psutil.Process(driver.pid).children() if p.name() == "sh"]
        helper.kill()
        command("scancel", *jobs("RUNNING")[:1])
        assert is_complete(), place.said
        place.hurry()
        assert driver.wait(WITHIN) == 0, place.said
    assert place.is_complete(LONG)
    assert "has ended (code -9). It was started again." in place.said
    assert no_job_is_left()


STRIKE = """
import ctypes, pathlib, re, threading, time
def strike():
    while not pathlib.Path("strike").exists():
        time.sleep(0.1)
    for thread in threading.enumerate():
        if re.search({parts!r}, thread.name):
            error = ctypes.py_object({error})
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), error)
threading.Thread(target=strike, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ("IO loop", "SystemExit"),
        ("MainThread", "SystemExit"),
        ("Offload", "RuntimeError"),
        ("slurm", "RuntimeError"),
    ],
)
def test_a_thread_that_is_ended_lets_no_incomplete_run_end_well(place, parts, error):
    with place.work(LONG, STRIKE.format(parts=parts, error=error)) as driver:
        assert begins(place), place.said
        place.set("hangs", "squeue")  # else no thread waits for Slurm at most times
        time.sleep(2)
        (place.folder / "strike").touch()
        time.sleep(5)
        place.heal()
        place.hurry()
        code = driver.wait(WITHIN)
    if code:
        assert "slurm" not in parts and "Error: " in place.said, place.said
        with place.work(LONG) as driver:
            assert driver.wait(WITHIN) == 0, place.said
    assert place.is_complete(LONG)
    assert no_job_is_left()


FAILING = """
real, calls = _supervisor.decide, []
def decide(*arguments):
    calls.append(1)
    if len(calls) in (3, 4):
        raise ZeroDivisionError("of a test")
    return real(*arguments)
_supervisor.decide = decide
"""


@pytest.mark.parametrize("place", ["map"], indirect=True)
def test_a_supervisor_that_fails_is_reported_and_goes_on(place):
    with place.work(LONG, FAILING) as driver:
        assert begins(place), place.said
        command("scancel", *jobs("RUNNING")[:1])
        assert is_complete(), place.said
        place.hurry()
        assert driver.wait(WITHIN) == 0, place.said
    assert place.said.count("failed (ZeroDivisionError: of a test). It starts again.") == 1
    assert place.is_complete(LONG)


def test_a_signal_while_a_cluster_closes_ends_the_driver_at_once(place):
    with place.work(SHORT, "_supervisor.HANGS_AFTER = 60.0") as driver:
        assert begins(place), place.said
        place.set("hangs", "scancel", "squeue")
        assert comes_true(lambda: place.has_ended, WITHIN), "the output is written first"
        time.sleep(1)
        assert driver.poll() is None
        os.kill(driver.pid, signal.SIGTERM)
        assert driver.wait(20) == 130, place.said
    assert place.is_complete(SHORT)
    place.heal()
    assert no_job_is_left(within=120)
