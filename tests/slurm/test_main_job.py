"""A run on a real Slurm of one machine (see ci/slurm.sh) gives the same recommendation as a local
run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml

import daskmetrics as dm
from tests.slurm.site import ROOT, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm

SMALL = {
    "name": "small",
    "models": [
        {"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2, "vocabulary": 300}}
    ],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order"],
}


def recommended(config: Path, place: Path, *words: str) -> tuple[str, set[str]]:
    """The best arm of a run started by the command line, and the kinds of its workers."""
    command = [sys.executable, "-m", "daskmetrics", "run", str(config), "--folder", str(place)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *words],
        cwd=place.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = dm.open(place)
    return str(run.best()), {record.worker.split("-")[0] for record in run.records}


def test_the_recommendation_is_that_of_a_local_run(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    config, site = tmp_path / "small.yaml", tmp_path / "site.yaml"
    config.write_text(yaml.safe_dump(SMALL))
    site.write_text(yaml.safe_dump(profile(slurm, scoring={"workers": 1, "partition": "cpu"})))
    words = ("--set", f"cluster={site}", "--workers", "2")
    arm, kinds = recommended(config, tmp_path / "slurm", *words)
    assert kinds == {"gpu", "cpu"} and no_job_is_left()
    assert recommended(config, tmp_path / "local") == (arm, {"0", "1"})
