"""Every command of Slurm fails in turn, hangs, or answers with random bytes; every thread and every
helper process is ended in turn. A run ends right, or says why not, and the same command heals it.
"""

from __future__ import annotations

import os
import re
import signal
import time

import psutil
import pytest

from tests.slurm.faulty import COMMANDS, FAULTS, Place
from tests.slurm.site import comes_true, command, jobs, needs_slurm, no_job_is_left

pytestmark = needs_slurm

SHORT, LONG = 100, 1200  # items; the long map takes half a minute
JOURNAL = "run/journal.jsonl"


@pytest.fixture
def place(slurm, tmp_path) -> Place:
    return Place(tmp_path)


def begins(place: Place) -> bool:
    """Whether the map records its first items in time."""
    journal = place.folder / JOURNAL
    return bool(comes_true(lambda: journal.exists() and '"record"' in journal.read_text(), 60))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_with_a_fault_during_a_map_delays_it_at_most(place, fault):
    """A job is cancelled beside each fault, and is replaced when the fault is over."""
    with place.map(LONG) as driver:
        assert begins(place), place.said
        for name in COMMANDS:
            place.set(fault, name)
            command("scancel", *jobs("RUNNING")[:1])
            time.sleep(3)
            place.heal()
            assert comes_true(lambda: len(jobs("RUNNING")) == 2, 60), (name, place.said)
        place.set(fault, "scancel", "squeue")  # also while it closes
        assert driver.wait(120) == 0, place.said
    assert place.rows == LONG
    assert "Slurm does not answer" in place.said
    place.heal()
    assert no_job_is_left()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_command_with_a_fault_from_the_start_is_named_and_the_next_call_heals(place, name, fault):
    place.set(fault, name)
    with place.map(SHORT) as driver:
        code = driver.wait(100)
    if code:
        assert name == "sbatch" and re.search("Error: .*sbatch|it fails", place.said), place.said
        place.heal()
        with place.map(SHORT) as driver:
            assert driver.wait(100) == 0, place.said
    assert place.rows == SHORT
    place.heal()
    assert no_job_is_left()


def test_a_killed_cancel_helper_is_started_again(place):
    with place.map(LONG) as driver:
        assert begins(place), place.said
        for _ in range(2):
            [helper] = [p for p in psutil.Process(driver.pid).children() if p.name() == "sh"]
            helper.kill()
            command("scancel", *jobs("RUNNING")[:1])
            assert comes_true(lambda: len(jobs("RUNNING")) == 2, 60), place.said
        assert driver.wait(120) == 0, place.said
    assert place.rows == LONG and "has ended (code -9). It was started again." in place.said
    assert no_job_is_left()


STRIKE = """
import ctypes, threading, time
def strike():
    time.sleep(7)
    for thread in threading.enumerate():
        if {part!r} in thread.name:
            error = ctypes.py_object({error})
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), error)
threading.Thread(target=strike, daemon=True).start()
"""


@pytest.mark.parametrize("error", ["RuntimeError", "SystemExit"])
@pytest.mark.parametrize("part", ["IO loop", "MainThread", "slurm", "Offload", "PoolExecutor"])
def test_a_thread_that_is_ended_does_not_end_a_run_with_code_0(place, part, error):
    if part == "slurm":
        place.set("hangs", "squeue")  # else there is none at most times
    with place.map(400, STRIKE.format(part=part, error=error)) as driver:
        code = driver.wait(100)
    place.heal()
    if code:
        assert "Error" in place.said
        with place.map(400) as driver:
            assert driver.wait(100) == 0, place.said
    assert place.rows == 400
    assert no_job_is_left()


FAILING = """
real, calls = _cluster.decide, []
def decide(*arguments):
    calls.append(1)
    if len(calls) in (3, 4):
        raise ZeroDivisionError("of a test")
    return real(*arguments)
_cluster.decide = decide
"""


def test_a_supervisor_that_fails_is_reported_and_goes_on(place):
    with place.map(LONG, FAILING) as driver:
        assert begins(place), place.said
        command("scancel", *jobs("RUNNING")[:1])
        assert comes_true(lambda: len(jobs("RUNNING")) == 2, 60), place.said
        assert driver.wait(120) == 0, place.said
    assert place.said.count("failed (ZeroDivisionError: of a test). It starts again.") == 1
    assert place.rows == LONG


def test_a_signal_while_a_cluster_closes_ends_the_driver_at_once(place):
    with place.map(SHORT, "_cluster.HANGS_AFTER = 60.0") as driver:
        assert begins(place), place.said
        place.set("hangs", "scancel", "squeue")
        assert comes_true(place.result.exists, 60), "the output is written first"
        time.sleep(1)
        assert driver.poll() is None
        os.kill(driver.pid, signal.SIGTERM)
        assert driver.wait(20) == 130, place.said
    assert place.rows == SHORT
    place.heal()
    assert no_job_is_left(within=120)
