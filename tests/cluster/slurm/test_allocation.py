from __future__ import annotations

import pytest

from daskmetrics.cluster.slurm.allocation import Allocation, parse_allocation, present
from daskmetrics.core.errors import ConfigError


@pytest.mark.parametrize(
    ("printed", "gpus"),
    [
        # 22.05, with details
        (
            "NumNodes=2 NumCPUs=8 TRES=cpu=8,mem=2G,node=2 JOB_GRES=gpu:l40s:4 Nodes=g[0-1] GRES=gpu:l40s:2(IDX:0-1)",
            4,
        ),
        # two types in one job
        ("NumNodes=1 NumCPUs=8 JOB_GRES=gpu:a100:2,gpu:l40s:1", 3),
        # 23.11, GPUs accounted for
        (
            "NumNodes=2 NumCPUs=8 ReqTRES=cpu=8 AllocTRES=cpu=8,node=2,billing=8,gres/gpu=6,gres/gpu:a100=6",
            6,
        ),
        ("NumNodes=1-1 NumCPUs=8 TRES=cpu=8,node=1", 0),
    ],
    ids=["gres", "types", "tres", "none"],
)
def test_the_resources_of_a_job_are_parsed(printed, gpus):
    assert parse_allocation("7", printed) == Allocation("7", cpus=8, gpus=gpus)


def test_there_is_one_worker_per_gpu_and_without_gpus_cpus_decide():
    assert Allocation("7", cpus=8, gpus=4).slots(threads=2) == 4
    assert Allocation("7", cpus=8, gpus=0).slots(threads=3) == 2


@pytest.mark.parametrize("gpus", [0, 4])
def test_too_few_cpus_are_reported(gpus):
    with pytest.raises(ConfigError, match=f"Job 7 has 2 CPUs and {gpus} GPUs: too few"):
        Allocation("7", cpus=2, gpus=gpus).slots(threads=3)


def test_outside_an_allocation_the_error_says_how_to_get_one():
    with pytest.raises(ConfigError, match=r"SLURM_JOB_ID is not set.*salloc --gres=gpu:4"):
        present({})


def test_more_workers_than_fit_are_refused():
    with pytest.raises(ConfigError, match=r"9 workers do not fit into job 7.*Use --workers 4"):
        Allocation("7", cpus=8, gpus=4).slots(threads=2, workers=9)
