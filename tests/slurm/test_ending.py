"""All jobs end soon after their driver, however it ends."""

from __future__ import annotations

import os
import signal
import time

import pytest

from daskmetrics.cluster.slurm.commands import job_state
from tests.slurm.site import comes_true, driver, jobs, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm


# the first two as SIGTERM, which `scancel` of a submitted driver sends in test_modes.py
@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name
)
def test_no_job_outlives_its_driver(slurm, tmp_path, number):
    """One job runs four endless units, and another waits for the same node."""
    settings = profile(slurm, workers=8, gpus_per_job=4, threads=4, directives=["--nodelist=gpu0"])
    with driver(tmp_path, settings, seconds=1000, count=8) as process:
        begun = tmp_path / "begun"
        assert (
            comes_true(lambda: begun.exists() and len(begun.read_text().split()) == 4) is not None
        )
        assert len(jobs("RUNNING")) == 1 and len(jobs("PENDING")) == 1
        signalled = time.monotonic()
        os.killpg(process.pid, number)
        assert no_job_is_left(), jobs()
        print(f"\n{number.name}: no job left after {time.monotonic() - signalled:.1f} s")


def test_the_jobs_of_a_run_that_ended_well_are_completed(slurm, tmp_path):
    with driver(tmp_path, profile(slurm), seconds=3.0, count=6) as process:
        assert comes_true(lambda: len(jobs("RUNNING")) == 2) is not None
        submitted = jobs()
        assert process.wait(timeout=120) == 0
    assert no_job_is_left()
    assert {job_state(job).state for job in submitted} == {"COMPLETED"}
