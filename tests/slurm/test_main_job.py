"""A run on a real Slurm of one machine (see ci/slurm.sh) gives the same recommendation as a local run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import daskmetrics as dm
from tests.slurm.site import ROOT, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm

SMALL = {
    "name": "small",
    "models": [{"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2, "vocabulary": 300}}],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order"],
}


def recommended(config: Path, place: Path, *words: str) -> tuple[str, set[str]]:
    """The best arm of a run started by the command line, and the kinds of its workers."""
    command = [sys.executable, "-m", "daskmetrics", "run", str(config), "--folder", str(place), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=place.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = dm.open(place)
    return str(run.best()), {record.worker.split("-")[0] for record in run.records}


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("small", 2),
        pytest.param(
            "demo",
            8,
            marks=pytest.mark.skipif(os.environ.get("DASKMETRICS_FAULTS") != "full", reason="DASKMETRICS_FAULTS=full"),
        ),
    ],
)
def test_the_recommendation_is_that_of_a_local_run(slurm, tmp_path, monkeypatch, name, workers):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    config = ROOT / "configs" / "demo.yaml"
    if name == "small":
        config = tmp_path / "small.yaml"
        config.write_text(yaml.safe_dump(SMALL))
    (tmp_path / "here.yaml").write_text(yaml.safe_dump(profile(slurm, scoring={"workers": 1, "partition": "cpu"})))
    there, kinds = recommended(
        config, tmp_path / "there", "--set", f"cluster={tmp_path / 'here.yaml'}", "--workers", str(workers)
    )
    assert kinds == {"gpu", "cpu"} and no_job_is_left()
    assert recommended(config, tmp_path / "local") == (there, {"0", "1"})
