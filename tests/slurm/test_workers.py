"""Workers from real jobs: each owns a GPU, and no unit runs on a worker of the wrong kind."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.core.machine import workers
from daskmetrics.execution import Journal, Settings, Sweep, WorkUnit, run
from tests.slurm.site import comes_true, jobs, needs_slurm, no_job_is_left, profile
from tests.slurm.units import naps

pytestmark = needs_slurm


def about(dask_worker):
    return {
        "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "node": os.environ["SLURMD_NODENAME"],
        "job": os.environ["SLURM_JOB_ID"],
        "threads": os.environ["OMP_NUM_THREADS"],
        "name": str(dask_worker.name),
    }


@pytest.mark.parametrize(
    ("gpus", "count"), [(1, 32), (4, 8)], ids=["one-gpu jobs", "whole-node jobs"]
)
def test_thirty_two_workers_own_a_gpu_each(slurm, gpus, count):
    cluster = config.cluster(profile(slurm, workers=32, gpus_per_job=gpus, threads=2))
    with connect(cluster, "pool") as client:
        seconds = comes_true(lambda: len(workers(client)) == 32, within=240)
        owners = list(client.run(about).values())
        assert len(jobs()) == count == len({one["job"] for one in owners})
    print(f"\n32 workers from {count} jobs: {seconds:.0f} s after the first")
    owned = {(one["node"], one["gpu"]) for one in owners}
    assert owned == {(f"gpu{node}", str(gpu)) for node in range(8) for gpu in range(4)}
    assert {one["threads"] for one in owners} == {"2"}
    assert no_job_is_left()


def place(what: str) -> list[str | None]:
    """A unit that returns its name, its worker and its GPU."""
    from distributed import get_worker

    return [what, str(get_worker().name), os.environ.get("CUDA_VISIBLE_DEVICES")]


def beside(given: list[str | None], what: str) -> list[str | None]:
    return place(what)


def test_no_gpu_or_cpu_unit_runs_on_the_wrong_worker(slurm, tmp_path):
    """Three scores for each encoding: if they could, they would run on idle GPU workers."""
    scoring = {"workers": 3, "partition": "cpu"}
    cluster = config.cluster(profile(slurm, workers=2, scoring=scoring))
    encode = [
        WorkUnit(f"e{i}", f"e{i}", "encode", place, ("gpu",), resources={"GPU": 1})
        for i in range(10)
    ]
    units = [
        WorkUnit(
            f"s{i}", f"s{i}", "score", beside, ("cpu",), resources={"CPU": 1}, input=encode[i // 3]
        )
        for i in range(30)
    ]
    units += [
        WorkUnit(f"m{i}", f"m{i}", "measure", place, ("gpu",), resources={"GPU": 1})
        for i in range(20)
    ]
    with (
        connect(cluster, "pools") as client,
        Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal,
    ):
        assert comes_true(lambda: len(workers(client)) == 5) is not None
        offered = Counter(tuple(worker["resources"].items()) for worker in workers(client).values())
        assert offered == {(("GPU", 1),): 2, (("CPU", 1),): 3}
        run(Sweep(units), client, journal, Settings())
        values = [record.value for record in journal.records()]
    assert Counter((what, name.split("-")[0], gpu is not None) for what, name, gpu in values) == {
        ("cpu", "cpu", False): 30,
        ("gpu", "gpu", True): 20,
    }
    assert no_job_is_left()


@pytest.mark.parametrize("settings", [{"fewest": 1, "workers": 3}, {"workers": 1}])
def test_an_adaptive_pool_follows_the_work(slurm, tmp_path, settings):
    """By its profile, or by the method of Dask's clusters."""
    cluster = config.cluster(profile(slurm, **settings))
    with (
        connect(cluster, "adaptive") as client,
        Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal,
    ):
        assert len(jobs()) == 1
        if "fewest" not in settings:
            client.cluster.adapt(minimum=0, maximum=3)
        run(Sweep(naps(tmp_path, 1.0, 24)), client, journal, Settings(slots=6))
        records = list(journal.records())
        assert len(records) == 24 and all(record.ok for record in records)
        assert len({record.worker for record in records}) == 3 == len(workers(client))
    assert no_job_is_left()
