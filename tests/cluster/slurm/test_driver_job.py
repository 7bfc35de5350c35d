from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from daskmetrics import config
from daskmetrics.cluster.slurm._driver_job import DriverFiles, JobState, parse_state, script, submit, submitted
from daskmetrics.core.errors import ConfigError

RECORDED = Path(__file__).parent / "recorded" / "driver.sbatch"
SITE = {
    "kind": "slurm",
    "account": "abc123",
    "partition": "gpu",
    "driver": {"partition": "cpu", "qos": "long", "walltime": "3-00:00:00", "directives": ["--mail-type=END"]},
}


def test_the_script_of_a_driver():
    """Compared with a recorded one, so that a change of it is seen."""
    command = ["/env/bin/python", "-u", "-m", "daskmetrics", "run", "/data/my runs/demo/driver/config.yaml"]
    text = script(config.cluster(SITE), "demo", DriverFiles(Path("/data/my runs/demo/driver")), command)
    if os.environ.get("DASKMETRICS_RECORD"):
        RECORDED.parent.mkdir(exist_ok=True)
        RECORDED.write_text(text)
    assert text == RECORDED.read_text()


def test_a_folder_that_would_be_more_than_a_path_in_the_script():
    with pytest.raises(ConfigError, match="cannot stand in a job script"):
        script(config.cluster(SITE), "demo", DriverFiles(Path('/data/a"\n#SBATCH --uid=0')), ["true"])


def test_a_mistake_in_the_section_is_named():
    with pytest.raises(ConfigError, match=r"Unknown key 'wall'\. Did you mean 'walltime'"):
        config.cluster({"kind": "slurm", "driver": {"wall": "1"}})


def test_the_configuration_comes_back_as_it_was_submitted():
    wanted = config.parse({"name": "x", "models": [{"name": "m", "source": "s"}], "cluster": SITE})
    assert config.parse(yaml.safe_load(yaml.safe_dump(wanted.as_dict()))) == wanted


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        (
            "JobId=7 JobState=PENDING Reason=Resources StartTime=2030-01-01T14:05:00 ExitCode=0:0",
            JobState("PENDING", "Resources", "2030-01-01T14:05:00", "0:0"),
        ),
        ("JobId=7 JobState=FAILED Reason=NonZeroExitCode StartTime=Unknown ExitCode=2:0",
         JobState("FAILED", "NonZeroExitCode", "", "2:0")),
        ("JobId=7 JobState=CANCELLED+ Reason=None", JobState("CANCELLED")),
    ],
)  # fmt: skip
def test_how_a_job_stands(shown, state):
    assert parse_state(shown) == state
    assert state.ended == (state.name != "PENDING")


def test_where_there_is_no_slurm_nothing_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    place = DriverFiles(tmp_path / "driver")
    with pytest.raises(ConfigError, match="There is no 'sbatch' here"):
        submit(config.cluster(SITE), "demo", place, "name: demo\n")
    assert submitted(place) is None
