"""The main job on a real Slurm of one machine (see ci/slurm.sh)."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

import daskmetrics as dm
from daskmetrics.cluster import connect, workers
from daskmetrics.cluster.slurm import options
from daskmetrics.config import Cluster, parse

ROOT = Path(__file__).parent.parent

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(
        not os.environ.get("DASKMETRICS_TEST_SLURM") or shutil.which("slurmctld") is None,
        reason="needs Slurm's packages and DASKMETRICS_TEST_SLURM=1; .ci/run provides both",
    ),
]

SMALL = {
    "name": "small",
    "models": [{"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2, "vocabulary": 300}}],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order"],
}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("slurm")
    script = str(ROOT / "ci" / "slurm.sh")
    subprocess.run([script, "start", str(place), "2", "2", free_ports(3)], check=True, stdout=subprocess.DEVNULL)
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(place / "slurm.conf")
    yield place
    subprocess.run([script, "stop", str(place)], check=False)
    os.environ.pop("SLURM_CONF")
    if before is not None:
        os.environ["SLURM_CONF"] = before


def free_ports(count: int) -> str:
    """The first of so many neighbouring ports that are free, for the controller and a daemon per node."""
    for first in range(16817, 30000, 50):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return str(first)
    raise OSError(f"no {count} neighbouring ports are free")


def profile(place: Path, **changes: object) -> dict[str, object]:
    return {
        "kind": "slurm",
        "workers": 2,
        "partition": "gpu",
        "gpu_type": "l40s",
        "walltime": "00:10:00",
        "interface": "lo",
        "logs": str(place / "logs"),
        "memory": "1GiB",
        **changes,
    }


def no_job_is_left() -> bool:
    """Slurm takes some seconds to clear away cancelled jobs."""
    for _ in range(60):
        if not jobs():
            return True
        time.sleep(0.5)
    return False


def jobs() -> list[str]:
    return subprocess.run(["squeue", "-h", "-o", "%A"], capture_output=True, text=True, check=True).stdout.split()


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
    assert {record.worker.split("-")[0] for record in run.records} == {"SLURMCluster"}
    assert no_job_is_left()


@pytest.mark.parametrize("name", ["cpu", "a100", "l40s"])
def test_the_job_of_each_profile(name, request):
    """Compared with a recorded job script, so that a change of it is seen."""
    from dask_jobqueue.slurm import SLURMJob

    given = parse({"name": "x", "models": [{"name": "m", "source": "s"}], "cluster": name}).cluster
    wanted = options(given, "/prefix")
    wanted.pop("scheduler_options")
    script = SLURMJob(
        "tls://scheduler:1", name="worker", python="python", **{k: v for k, v in wanted.items() if k != "python"}
    ).job_script()
    recorded = ROOT / "tests" / "recorded" / f"{name}.sbatch"
    if os.environ.get("DASKMETRICS_RECORD"):
        recorded.parent.mkdir(exist_ok=True)
        recorded.write_text(script)
    assert script == recorded.read_text()
