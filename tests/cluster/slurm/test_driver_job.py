from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from daskmetrics import config
from daskmetrics.cluster.slurm.commands import parse_job_state
from daskmetrics.cluster.slurm.driver_job import Submitted, script, state_text, submit, submitted
from daskmetrics.core.errors import ConfigError

JOB = Submitted("7", "7.log", "today")
RECORDED = Path(__file__).parent / "recorded" / "driver.sbatch"
SITE = {
    "kind": "slurm",
    "account": "abc123",
    "partition": "gpu",
    "driver_directives": ["--partition=cpu", "--time=3-00:00:00", "--mail-type=END"],
}


def test_the_script_of_a_driver_is_as_recorded():
    folder = Path("/data/my runs/demo/driver")
    command = ["/env/bin/python", "-P", "-u", "-m", "daskmetrics", "run", f"{folder}/config.yaml"]
    text = script(config.cluster(SITE), "daskmetrics:driver:demo", folder, command, "COMMENT")
    if os.environ.get("DASKMETRICS_RECORD"):
        RECORDED.parent.mkdir(exist_ok=True)
        RECORDED.write_text(text)
    assert text == RECORDED.read_text()


@pytest.mark.parametrize("folder", ["a\n#SBATCH --begin=now+1day", 'a"b', "a\\b"])
def test_a_folder_whose_name_would_break_the_script_is_refused(folder):
    with pytest.raises(ConfigError, match="cannot be written into a job script: choose"):
        script(config.cluster(SITE), "demo", Path(folder), ["true"], "COMMENT")


@pytest.mark.parametrize(
    ("ended", "is_out_of_time"),
    [
        ("JobState=TIMEOUT ExitCode=0:15 RunTime=01:00:10 TimeLimit=01:00:00", True),
        ("JobState=FAILED ExitCode=130:0 RunTime=00:57:20 TimeLimit=01:00:00", True),
        ("JobState=FAILED ExitCode=130:0 RunTime=00:20:00 TimeLimit=01:00:00", False),
        ("JobState=FAILED ExitCode=2:0 RunTime=00:59:00 TimeLimit=01:00:00", False),
        ("JobState=RUNNING ExitCode=0:0 RunTime=00:59:00 TimeLimit=01:00:00", False),
    ],
)
def test_a_driver_that_ran_out_of_walltime_is_known(ended, is_out_of_time):
    assert JOB.is_out_of_time(parse_job_state(ended)) == is_out_of_time


@pytest.mark.parametrize(
    ("printed", "facts"),
    [
        (None, "submitted today"),
        ("JobState=PENDING Reason=Priority StartTime=2030-01-01T14:05:00", "Priority, .*T14:05"),
        ("JobState=FAILED Reason=None ExitCode=2:0", "failed, exit code 2"),
        ("JobState=CANCELLED+ Reason=None ExitCode=0:0", "is cancelled, exit code 0"),
        ("JobState=TIMEOUT", "walltime.*cluster.driver_directives"),
    ],
)
def test_the_state_of_a_drivers_job_is_described_with_its_log(printed, facts):
    state = parse_job_state(printed) if printed else None
    assert re.search(rf"7.*{facts}.*7\.log", state_text(JOB, state))


def test_without_slurm_no_submission_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "driver"
    with pytest.raises(ConfigError, match="'sbatch' is not on PATH"):
        submit(config.cluster(SITE), "demo", folder, ["run"], print, "name: demo\n")
    assert submitted(folder) is None
