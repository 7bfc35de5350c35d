"""All jobs end soon after their driver, however it ends."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.slurm.site import comes_true, driver, jobs, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm


@pytest.mark.parametrize(
    ("number", "within"),
    [(signal.SIGTERM, 5), (signal.SIGHUP, 5), (signal.SIGINT, 5), (signal.SIGKILL, 60)],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else "",
)
def test_no_job_outlives_its_driver(slurm, tmp_path, number, within):
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
        print(
            f"\n{number.name}: no job left after {time.monotonic() - signalled:.1f} s (required: {within} s)"
        )
