"""Ways to run on a real Slurm: a driver in its own job, workers in the present job, a profile for
the site.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import daskmetrics as dm
from daskmetrics.cluster import ProfileCluster
from daskmetrics.cluster.slurm import driver_job as driver_job
from daskmetrics.cluster.slurm.commands import queue
from tests.slurm.site import comes_true, command, jobs, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm

SMALL = {
    "name": "small",
    "models": [
        {"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2, "vocabulary": 300}}
    ],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order"],
    "search": {"budget": 0.6},
}
DRIVER = ["--time=00:10:00", "--cpus-per-task=1", "--mem=1G"]
HELD = f"cluster.driver_directives=[{','.join([*DRIVER, '--hold'])}]"


@pytest.fixture(scope="module")
def place(slurm, tmp_path_factory) -> Path:
    """A folder with the experiment and the profile of the site; its runs share a cache of trained
    models.
    """
    folder = tmp_path_factory.mktemp("modes")
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    (folder / "site.yaml").write_text(
        yaml.safe_dump(profile(slurm, memory="1GiB", driver_directives=DRIVER))
    )
    return folder


def call(place: Path, *words: str, before: tuple[str, ...] = (), code: int = 0) -> str:
    """The output of our command, standard output and standard error."""
    variables = {"DASKMETRICS_CACHE": str(place / "cache"), "COLUMNS": "200"}
    done = subprocess.run(
        [*before, sys.executable, "-m", "daskmetrics", *words],
        cwd=place,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def driver(run: Path) -> driver_job.Submitted:
    """The job that was submitted to drive a run."""
    job = driver_job.submitted(run / "driver")
    assert job is not None
    return job


def answer(run: Path) -> dict[str, Any]:
    """The recommendation, without the location of its files."""
    result = dm.open(run).result
    assert result is not None
    return {name: value for name, value in vars(result).items() if name != "location"}


@pytest.fixture(scope="module")
def local(place) -> dict[str, Any]:
    call(place, "run", "small.yaml", "--folder", "runs/local")
    return answer(place / "runs/local")


def test_a_submitted_run_ends_with_the_same_recommendation(place, local):
    output = call(
        place, "run", "small.yaml", "--cluster", "site.yaml", "--submit", "--folder", "runs/away"
    )
    job = driver(place / "runs/away").job
    for part in (
        f"Job {job} will drive",
        "daskmetrics status --follow runs/away",
        f"scancel --batch --signal=TERM {job}",
    ):
        assert part in output
    assert f"Job {job} already drives this run" in call(
        place,
        "run",
        "small.yaml",
        "--cluster",
        "site.yaml",
        "--submit",
        "--folder",
        "runs/away",
        code=2,
    )
    followed = call(place, "status", "--follow", "runs/away")
    assert f"Job {job} is completed, exit code 0" in followed and "best  " in followed
    assert answer(place / "runs/away") == local
    log = Path(driver(place / "runs/away").log).read_text()
    assert "Dashboard: http://127.0.0.1:" in log and "ssh -N -L" in log and "/proxy/" in log
    assert no_job_is_left()
    again = call(
        place, "run", "small.yaml", "--cluster", "site.yaml", "--submit", "--folder", "runs/away"
    )
    assert "Nothing to do: the run in 'runs/away' is finished." in again and not jobs()
    plan = call(place, "plan", "small.yaml", "--folder", "runs/away")
    assert "finished: nothing is left to do" in plan


def test_worker_jobs_that_slurm_would_refuse_are_refused_before_the_driver_is_submitted(place):
    before = jobs()
    words = ("--cluster", "site.yaml", "--submit", "--folder", "runs/refused")
    output = call(place, "run", "small.yaml", *words, "--set", "cluster.gpus_per_job=9", code=2)
    assert "would refuse the gpu jobs" in output and "node configuration is not available" in output
    assert jobs() == before and driver_job.submitted(place / "runs/refused" / "driver") is None


def test_a_driver_that_ran_out_of_walltime_says_so(place):
    """Its workers wait for ever; Slurm stops it two minutes before the end of three."""
    words = ("--cluster", "site.yaml", "--submit", "--folder", "runs/short")
    short = "cluster.driver_directives=[--time=00:03:00, --cpus-per-task=1, --mem=1G]"
    held = "cluster.directives=[--begin=now+1day]"
    call(place, "run", "small.yaml", *words, "--set", short, "--set", held)
    output = call(place, "status", "--follow", "runs/short", code=1)
    assert "ran out of its walltime. Submit the same command again to resume" in output
    assert "(out of walltime) before the run was finished" in output and no_job_is_left(90)


def test_scancel_of_the_driver_ends_all_jobs(place):
    call(place, "run", "small.yaml", "--cluster", "site.yaml", "--submit", "--folder", "runs/ended")
    job = driver(place / "runs/ended").job
    assert comes_true(lambda: len(jobs("RUNNING")) == 3) is not None  # the driver and two workers
    command("scancel", job)
    assert no_job_is_left(within=90)
    followed = call(place, "status", "--follow", "runs/ended", code=1)
    assert f"Job {job} ended (cancelled" in followed and "The end of its log" in followed


def test_the_failure_of_a_driver_is_reported_with_the_end_of_its_log(place):
    broken = {**SMALL, "name": "broken", "corpus": {"source": "prompts.txt", "prompts": 2}}
    (place / "broken.yaml").write_text(yaml.safe_dump(broken))
    (place / "prompts.txt").write_text("one\ntwo\nthree\n")
    call(place, "run", "broken.yaml", "--cluster", "site.yaml", "--submit", "--set", HELD)
    (place / "prompts.txt").unlink()
    command("scontrol", "release", driver(place / "runs/broken").job)
    output = call(place, "status", "--follow", "runs/broken", code=1)
    assert (
        "failed, exit code 2" in output
        and "prompts.txt" in output.partition("The end of its log")[2]
    )


def test_inside_an_allocation_each_worker_has_one_gpu(place, local):
    words = (
        "run",
        "small.yaml",
        "--in-job",
        "--set",
        "cluster.interface=lo",
        "--folder",
        "runs/inside",
    )
    output = call(
        place,
        *words,
        before=("salloc", "-N2", "--ntasks-per-node=1", "-c4", "--gres=gpu:1", "--mem=2G"),
    )
    assert "Starting 2 workers (allocation)" in output
    assert answer(place / "runs/inside") == local
    assert {record.worker for record in dm.open(place / "runs/inside").records} == {
        "step-0",
        "step-1",
    }
    assert no_job_is_left()


def test_more_workers_than_fit_into_the_allocation_are_refused(place):
    words = ("run", "small.yaml", "--in-job", "--workers", "3", "--folder", "runs/toomany")
    output = call(place, *words, before=("salloc", "-c2", "--gres=gpu:2", "--mem=1G"), code=2)
    assert "3 workers do not fit" in output and "Use --workers 2" in output
    assert not (place / "runs/toomany").exists()


def test_a_profile_written_for_this_site_passes_its_test(place):
    assert "Wrote 'written.yaml'" in call(place, "cluster", "init", "-o", "written.yaml")
    assert "already exists" in call(place, "cluster", "init", "-o", "written.yaml", code=2)
    written = yaml.safe_load((place / "written.yaml").read_text())
    assert (written["partition"], written["gpu_type"], written["interface"]) == (
        "gpu",
        "l40s",
        "lo",
    )
    output = call(place, "cluster", "test", "written.yaml")
    for check in (
        "worker",
        "versions",
        "device",
        "shared folder",
        "network",
    ):
        assert check in output
    assert "has GPU 0" in output and "failed" not in output
    assert no_job_is_left()


def test_a_notebook_shows_the_jobs_of_its_cluster(place, monkeypatch):
    monkeypatch.chdir(place)
    with ProfileCluster("site.yaml", workers=1) as cluster:
        cluster.client.wait_for_workers(1, timeout=240)
        page = cluster._repr_html_()
        cluster.scale(2)
        cluster.client.wait_for_workers(2, timeout=240)
        assert len(queue(name="daskmetrics-notebook")) == 2
    assert "1 running, 0 pending" in page and "ssh -N -L" in page
    assert no_job_is_left()


def test_status_shows_a_job_that_has_not_started(place):
    held = ("--folder", "runs/waiting", "--set", HELD)
    call(place, "run", "small.yaml", "--cluster", "site.yaml", "--submit", *held)
    output = call(place, "status", "runs/waiting")
    assert "is pending: JobHeldUser" in output
    command("scancel", driver(place / "runs/waiting").job)
    assert no_job_is_left()
