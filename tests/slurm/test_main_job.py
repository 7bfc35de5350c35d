"""The main job on a real Slurm of one machine (see ci/slurm.sh)."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

import daskmetrics as dm
from daskmetrics.cluster import connect, workers
from daskmetrics.config import Cluster
from tests.slurm.site import jobs, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm

SMALL = {
    "name": "small",
    "models": [{"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2, "vocabulary": 300}}],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order"],
}


def test_each_worker_owns_one_gpu_and_no_job_is_left(slurm):
    with connect(Cluster(**profile(slurm))) as client:
        client.wait_for_workers(2, timeout=120)
        seen = client.run(lambda: os.environ.get("CUDA_VISIBLE_DEVICES"))
        assert sorted(seen.values()) == ["0", "1"]
        assert all(worker["resources"] == {"GPU": 1, "CPU": 1} for worker in workers(client).values())
        assert len(jobs()) == 2
    assert no_job_is_left()


def test_the_main_job_runs_on_slurm(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(yaml.safe_dump({**SMALL, "cluster": profile(slurm)}))
    run = dm.run("small.yaml")
    assert run.finished
    assert no_job_is_left()
