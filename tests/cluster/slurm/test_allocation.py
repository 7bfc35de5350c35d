from __future__ import annotations

import pytest

from daskmetrics.cluster.slurm.allocation import Allocation, parse_allocation, present
from daskmetrics.core.errors import ConfigError

# of 22.05 with details, two types in one job, 23.11 with GPUs accounted for, and none
PRINTED = {
    "TRES=cpu=8,mem=2G,node=2 JOB_GRES=gpu:l40s:4 Nodes=g[0-1] GRES=gpu:l40s:2(IDX:0-1)": 4,
    "JOB_GRES=gpu:a100:2,gpu:l40s:1": 3,
    "ReqTRES=cpu=8 AllocTRES=cpu=8,node=2,billing=8,gres/gpu=6,gres/gpu:a100=6": 6,
    "TRES=cpu=8,node=1": 0,
}


@pytest.mark.parametrize("printed", PRINTED)
def test_the_resources_of_a_job_are_parsed(printed):
    job = parse_allocation("7", f"NumNodes=1-1 NumCPUs=8 {printed}")
    assert job == Allocation("7", cpus=8, gpus=PRINTED[printed])


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
