from __future__ import annotations

import time
from pathlib import Path

import pytest

from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm.commands import SlurmError, SlurmRefusal, queue, slurm, submit


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A function that puts a command on PATH, which a shell script stands for."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def put(name: str, script: str) -> Path:
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    return put


def test_an_answer_is_read_whatever_its_bytes(site):
    site("squeue", r"printf 'bient\364t\n7|RUNNING|N/A|1:00|n1|None\n\200\377\0'")
    [job] = queue("any")
    assert (job.id, job.state) == ("7", "RUNNING")
    site("squeue", r"printf 'refus\351\n' >&2; exit 1")
    with pytest.raises(SlurmRefusal, match="refus\ufffd"):
        queue("any")


def test_variables_that_are_options_reach_no_command_of_slurm(site, monkeypatch):
    site("squeue", "env")
    options = [
        "SBATCH_PARTITION",
        "SBATCH_WAIT",
        "SQUEUE_STATES",
        "SCANCEL_STATE",
        "SLURM_TIME_FORMAT",
    ]
    for name in (*options, "SLURM_CONF"):
        monkeypatch.setenv(name, "x")
    passed = {line.partition("=")[0] for line in slurm("squeue").splitlines()}
    assert "SLURM_CONF" in passed and not passed & set(options)
    assert "SBATCH_PARTITION, SBATCH_WAIT of the environment" in commands.ignored_options()


def test_a_command_that_does_not_answer_ends_with_its_children(site, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "TIMEOUT", 0.5)
    monkeypatch.setattr(commands, "LOOKS", (0,))
    site("sbatch", f"(sleep 2; touch '{tmp_path}/late'); true")
    site("squeue", "true")
    with pytest.raises(SlurmError, match="sbatch did not answer within"):
        submit("", "any", "comment")
    time.sleep(2.5)
    assert not (tmp_path / "late").exists()


def test_a_job_that_appears_after_sbatch_was_given_up_is_found(site, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "TIMEOUT", 0.5)
    monkeypatch.setattr(commands, "LOOKS", (0, 0.1))
    site("sbatch", "sleep 5")
    site("squeue", f"[ -e '{tmp_path}/asked' ] && echo comment 17; touch '{tmp_path}/asked'")
    assert submit("", "any", "comment") == "17"
