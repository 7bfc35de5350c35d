"""A cluster of dask-jobqueue that the user made, on a real Slurm: its jobs run a map and an
experiment.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import daskmetrics as dm
from tests.cluster.test_any_cluster import run
from tests.slurm.site import jobs, needs_slurm, no_job_is_left

pytestmark = needs_slurm


def twice(item: int) -> int:
    return 2 * item


@pytest.fixture
def own(slurm: Path, tmp_path: Path) -> Iterator[Any]:
    """A cluster of one worker, whose class knows nothing of ours."""
    before = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster

    signal.signal(signal.SIGINT, before)  # dask-jobqueue replaces it
    settings = {
        "queue": "gpu",
        "cores": 1,
        "memory": "1GiB",
        "interface": "lo",
        "walltime": "00:10:00",
    }
    with SLURMCluster(
        **settings,
        job_extra_directives=["--mem=0"],
        log_directory=str(tmp_path / "logs"),
        local_directory=str(tmp_path),
        scheduler_options={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        cluster.scale(1)
        yield cluster
    assert no_job_is_left()


def test_a_users_own_slurm_cluster_runs_a_map_and_stays_open(own, tmp_path):
    results = list(dm.map(twice, range(6), client=own, journal=tmp_path / "map", batch_size=2))
    assert sorted(result.value for result in results) == [0, 2, 4, 6, 8, 10]
    assert {result.worker for result in results} == {"SLURMCluster-0"}
    assert len(jobs("running")) == 1


def test_a_users_own_slurm_client_gives_the_cells_of_a_local_run(
    own, client, tmp_path, monkeypatch
):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    expected, _ = run(tmp_path / "local", client)
    with Client(own, set_as_default=False) as given:
        found, shown = run(tmp_path / "own", given)
        assert given.status == "running"
    assert expected.scores.notnull().to_array().all()
    assert found.scores.equals(expected.scores) and found.metrics.equals(expected.metrics), shown
    scores = [record for record in found.records if record.kind == "score"]
    assert {record.worker for record in scores} == {"SLURMCluster-0"}
