"""Ways to run on a real Slurm: a driver in its own job, workers in the present job, a profile for
the site.
"""

from __future__ import annotations

import json
import os
import shlex
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

MODEL = {"name": "a", "train": {"width": 16, "depth": 1, "heads": 2, "steps": 2}}
SMALL = {
    "name": "small",
    "models": [MODEL],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order"],
    "search": {"budget": 0.6},
}
DRIVER = ["--time=00:10:00", "--cpus-per-task=1", "--mem=1G"]
HELD = f"--set cluster.driver_directives=[{','.join([*DRIVER, '--hold'])}]"
SUBMIT = "run small.yaml --cluster site.yaml --submit"


@pytest.fixture(scope="module")
def place(slurm, tmp_path_factory) -> Path:
    """A folder with the experiment and the profile of the site; its runs share a cache of trained
    models.
    """
    folder = tmp_path_factory.mktemp("modes")
    site = profile(slurm, memory="1GiB", driver_directives=DRIVER)
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    (folder / "site.yaml").write_text(yaml.safe_dump(site))
    return folder


def call(place: Path, line: str, before: str = "", code: int = 0) -> str:
    """The output of our command, standard output and standard error."""
    variables = {"DASKMETRICS_CACHE": str(place / "cache"), "COLUMNS": "200"}
    done = subprocess.run(
        shlex.split(f"{before} {sys.executable} -m daskmetrics {line}"),
        cwd=place,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
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


@pytest.fixture
def run(tmp_path) -> Path:
    """The folder of a run: a new one each time that a test is run."""
    return tmp_path / "run"


@pytest.fixture(scope="module")
def local(place) -> dict[str, Any]:
    call(place, "run small.yaml --folder local")
    return answer(place / "local")


def test_a_submitted_run_ends_with_the_same_recommendation(place, run, local):
    output = call(place, f"{SUBMIT} --folder {run}")
    job = driver(run).job
    for part in (
        f"Job {job} will drive",
        f"daskmetrics status --follow {run}",
        f"scancel --batch --signal=TERM {job}",
    ):
        assert part in output
    assert f"Job {job} already drives '{run}'" in call(place, f"{SUBMIT} --folder {run}", code=2)
    followed = call(place, f"status --follow {run}")
    assert f"Job {job} is completed, exit code 0" in followed and "Use   " in followed
    assert answer(run) == local
    log = Path(driver(run).log).read_text()
    assert "Dashboard: http://127.0.0.1:" in log and "ssh -N -L" in log and "/proxy/" in log
    assert no_job_is_left()
    again = call(place, f"{SUBMIT} --folder {run}")
    assert f"Nothing to do: the run in '{run}' is finished." in again and not jobs()
    plan = call(place, f"plan small.yaml --folder {run}")
    assert "finished: nothing is left to do" in plan


WAITS = """
import os, time
from pathlib import Path
import daskmetrics
if os.environ["RANK"] == "0":
    daskmetrics.progress(1, 2)
while not Path("go_on").exists():
    time.sleep(0.1)
if os.environ["RANK"] == "0":
    daskmetrics.progress(2, 2)
"""


def test_a_submitted_training_is_shown_stopped_and_resumed(place):
    (place / "mine.py").write_text(WAITS)
    line = "train mine.py --ranks 2 --cluster site.yaml --submit"
    folder = place / "training" / "mine"
    output = call(place, line)
    first = driver(folder).job
    assert f"Job {first} will drive the work in" in output
    assert f"status --follow {folder}" in output
    assert f"Job {first} already drives '{folder}'" in call(place, line, code=2)

    def shown() -> str:
        return call(place, "status training/mine")

    assert comes_true(lambda: "step        1 of 2 (50 %)" in shown()) is not None, shown()
    running = shown()
    for fact in (
        f"Job {first} is running",
        "ranks       2 of 2, on ",
        "running, driven by process ",
    ):
        assert fact in running
    command("scancel", "--batch", "--signal=TERM", first)
    assert no_job_is_left(within=90)
    stopped = call(place, "status --follow training/mine", code=1)
    assert "unfinished, and no process drives it" in stopped

    (place / "go_on").touch()
    call(place, line)
    assert driver(folder).job != first
    finished = call(place, "status --follow training/mine")
    assert "mine        finished" in finished and "2 of 2 (100 %)" in finished
    assert no_job_is_left()


def test_a_submitted_map_has_its_options(place):
    (place / "bench.py").write_text("def step(item):\n    return {'twice': 2 * item}\n")
    line = "map bench.py:step --iterations 7 --cluster site.yaml --batch-size 2 --output out.csv"
    output = call(place, f"{line} --submit")
    job = driver(place / "runs" / "step").job
    assert f"Job {job} will drive the work in 'runs/step'" in output
    followed = call(place, "status --follow runs/step")
    assert f"Job {job} is completed, exit code 0" in followed and "7 items: 7 ok" in followed
    rows = (place / "out.csv").read_text().splitlines()
    assert len(rows) == 8 and "twice" in rows[0]
    assert no_job_is_left()


def test_of_a_submitted_training_of_suites_each_is_shown(place):
    two = {**SMALL, "name": "two", "models": [MODEL, {**MODEL, "name": "b"}]}
    (place / "two.yaml").write_text(yaml.safe_dump(two))
    line = "train two.yaml --cluster site.yaml --folder suites --submit"
    output = call(place, line)
    assert "Job " in call(place, "status suites/two")
    assert not json.loads(call(place, "status --json suites/two"))["finished"]
    assert "is completed, exit code 0" in call(place, "status --follow suites/two")
    assert json.loads(call(place, "status --json suites/two"))["finished"]
    for name in ("a", "b"):
        assert f"look    daskmetrics status {place / 'suites' / name}" in output
        assert f"{name}           finished" in call(place, f"status suites/{name}")
    assert "a: 3 checkpoints" in call(place, line)  # there is nothing to submit
    assert not jobs()


def test_jobs_slurm_would_refuse_stop_before_submission(place, run):
    before = jobs()
    output = call(place, f"{SUBMIT} --folder {run} --set cluster.gpus_per_job=9", code=2)
    assert "would refuse the gpu jobs" in output and "node configuration is not available" in output
    assert jobs() == before and driver_job.submitted(run / "driver") is None


def test_a_driver_that_ran_out_of_walltime_says_so(place, run):
    """Its workers wait for ever; Slurm stops it two minutes before the end of three."""
    short = "--set 'cluster.driver_directives=[--time=00:03:00, --cpus-per-task=1, --mem=1G]'"
    call(place, f"{SUBMIT} --folder {run} {short} --set cluster.directives=[--begin=now+1day]")
    output = call(place, f"status --follow {run}", code=1)
    assert "ran out of its walltime. Submit the same command again to resume" in output
    assert "(out of walltime) before the run was finished" in output and no_job_is_left(90)


def test_scancel_of_the_driver_ends_all_jobs(place, run):
    call(place, f"{SUBMIT} --folder {run}")
    job = driver(run).job
    assert comes_true(lambda: len(jobs("RUNNING")) == 3) is not None  # the driver and two workers
    command("scancel", job)
    assert no_job_is_left(within=90)
    followed = call(place, f"status --follow {run}", code=1)
    assert f"Job {job} ended (cancelled" in followed and "The end of its log" in followed


def test_a_waiting_driver_is_shown_and_a_failed_one_with_its_log(place, run):
    broken = {**SMALL, "name": "broken", "corpus": {"source": "prompts.txt", "prompts": 2}}
    (place / "broken.yaml").write_text(yaml.safe_dump(broken))
    (place / "prompts.txt").write_text("one\ntwo\nthree\n")
    call(place, f"run broken.yaml --cluster site.yaml --submit --folder {run} {HELD}")
    assert "is pending: JobHeldUser" in call(place, f"status {run}")
    (place / "prompts.txt").unlink()
    command("scontrol", "release", driver(run).job)
    output = call(place, f"status --follow {run}", code=1)
    assert "failed, exit code 2" in output
    assert "prompts.txt" in output.partition("The end of its log")[2]


def test_inside_an_allocation_each_worker_has_one_gpu(place, run, local):
    allocation = "salloc -N2 --ntasks-per-node=1 -c4 --gres=gpu:1 --mem=2G"
    line = f"run small.yaml --folder {run} --in-job --set cluster.interface=lo"
    output = call(place, line, allocation)
    assert "Starting 2 workers (allocation)" in output
    assert answer(run) == local
    names = {record.worker for record in dm.open(run).records if record.kind != "train"}
    assert names == {"step-0", "step-1"}
    assert no_job_is_left()


def test_a_profile_written_for_this_site_passes_its_test(place):
    assert "Wrote 'written.yaml'" in call(place, "cluster init -o written.yaml")
    written = yaml.safe_load((place / "written.yaml").read_text())
    wanted = {"partition": "gpu", "gpu_type": "l40s", "interface": "lo"}
    assert written.items() >= wanted.items()
    output = call(place, "doctor written.yaml --worker")
    for check in ("worker", "versions", "device", "same-folder", "network"):
        assert f"OK    {check} " in output or f"WARN  {check} " in output
    assert "has GPU 0" in output and " 0 failed" in output
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
