"""Job scripts, compared with recorded files, so that a change of one is seen; no Slurm is needed."""

from __future__ import annotations

import os

import pytest

from daskmetrics import config
from daskmetrics.cluster.slurm.script import LaunchInfo, pools, script
from tests.slurm.site import ROOT

SITE = {"account": "abc123", "interface": "ib0", "prologue": ["module load cuda"]}
MORE = {
    "exports": {"HF_HOME": "/data/my models", "DASK_TEMPORARY_DIRECTORY": "/scratch"},
    "directives": ["--qos=normal", "--constraint=nvlink", "--exclusive"],
}
CASES = {
    "l40s": ("l40s", {}),
    "a100": ("a100", {}),
    "cpu": ("cpu", {}),
    "a100-node": ("a100", {"gpus_per_job": 4, "workers": 32, **SITE, **MORE}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_job_script_is_as_recorded(name):
    base, changes = CASES[name]
    profile = config.cluster(base, **changes)
    text = script(pools(profile)[-1])
    recorded = ROOT / "tests" / "slurm" / "recorded" / f"{name}.sbatch"
    if os.environ.get("DASKMETRICS_RECORD"):
        recorded.write_text(text)
    assert text == recorded.read_text()


def test_values_from_the_scheduler_are_quoted():
    launch = LaunchInfo(
        "tls://10.0.0.1:1", "gpu-1", python="/my envs/bin/python", tls={"cert": "/a b/cert"}
    )
    last = script(pools(config.cluster("l40s"))[0], launch).splitlines()[-1]
    assert last.startswith(
        "exec '/my envs/bin/python' -P -m daskmetrics.cluster._worker_process tls://10.0.0.1:1 --name gpu-1 "
    )
    assert last.endswith("--tls-cert '/a b/cert'")


def test_broken_nodes_are_excluded_beside_those_of_the_user():
    profile = config.cluster("l40s", directives=["--exclude=gpu7", "--exclusive"])
    text = script(pools(profile)[0], LaunchInfo(exclude=("gpu0", "gpu1")))
    assert [line for line in text.splitlines() if "--exclude=" in line][-1] == (
        "#SBATCH --exclude=gpu7,gpu0,gpu1"
    )
