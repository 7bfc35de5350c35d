from __future__ import annotations

import pytest

from daskmetrics.cluster.slurm.allocation import Allocation, present
from daskmetrics.core.errors import ConfigError


@pytest.mark.parametrize(
    ("cpus", "gpus", "workers", "message"),
    [
        (2, 0, None, "Job 7 has 2 CPUs and 0 GPUs: too few"),
        (2, 4, None, "Job 7 has 2 CPUs and 4 GPUs: too few"),
        (12, 4, 9, r"9 workers do not fit into job 7.*Use --workers 4"),
    ],
)
def test_what_does_not_fit_into_the_job_is_refused(cpus, gpus, workers, message):
    with pytest.raises(ConfigError, match=message):
        Allocation("7", cpus, gpus).slots(threads=3, workers=workers)


def test_outside_an_allocation_the_error_says_how_to_get_one():
    with pytest.raises(ConfigError, match=r"SLURM_JOB_ID is not set.*salloc --gres=gpu:4"):
        present({})
