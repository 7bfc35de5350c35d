"""A cluster of dask-jobqueue that the user made, on a real Slurm: its jobs run the units."""

from __future__ import annotations

import signal

import daskmetrics as dm
from tests.slurm.site import jobs, needs_slurm, no_job_is_left

pytestmark = needs_slurm


def twice(item: int) -> int:
    return 2 * item


def test_a_users_own_slurm_cluster_runs_a_map_and_stays_open(slurm, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster

    signal.signal(signal.SIGINT, before)  # dask-jobqueue replaces it
    own = {"queue": "gpu", "cores": 1, "memory": "1GiB", "interface": "lo", "walltime": "00:10:00"}
    with SLURMCluster(
        **own,
        job_extra_directives=["--mem=0"],
        log_directory=str(tmp_path / "logs"),
        local_directory=str(tmp_path),
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        cluster.scale(1)
        results = list(dm.map(twice, range(6), client=cluster, journal=tmp_path / "map", batch_size=2))
        assert sorted(result.value for result in results) == [0, 2, 4, 6, 8, 10]
        assert {result.worker for result in results} == {"SLURMCluster-0"}
        assert len(jobs("running")) == 1
    assert no_job_is_left()
