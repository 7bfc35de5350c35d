"""The command on real failures: of a Slurm, of folders, of caches, of versions."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.planning.doctor import collect, examine
from tests.slurm.site import comes_true, command, needs_slurm, profile


def doctor(*words, limit=None, **environment):
    """The findings of the command, by check, and its exit code; in a process of its own where a
    limit or the hub's variables, which are read at import, are set.
    """
    arguments = ["doctor", *map(str, words), "--json"]
    if limit is None and "HF_HOME" not in environment:
        result = CliRunner().invoke(main, arguments, env=environment, catch_exceptions=False)
        return json.loads(result.stdout), result.exit_code
    done = subprocess.run(
        [sys.executable, "-m", "daskmetrics", *arguments],
        stdout=subprocess.PIPE,
        check=False,
        env={**os.environ, **environment},
        preexec_fn=limit,
    )
    return json.loads(done.stdout), done.returncode


def failures(findings):
    return {name for name, each in findings.items() if each["severity"] == "failure"}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))


def test_only_unwritable_folders_are_failures_of_this_machine(tmp_path):
    findings, code = doctor("local")
    assert failures(findings) == set() and code == 0
    (tmp_path / "file").write_text("in the way")
    Path("site.yaml").write_text("exports: {DASK_TEMPORARY_DIRECTORY: /proc/1/scratch}")
    findings, code = doctor("site.yaml", DASKMETRICS_CACHE=str(tmp_path / "file" / "cache"))
    assert failures(findings) == {"folders"} and code == 1
    assert "DASK_TEMPORARY_DIRECTORY" in findings["folders"]["remedy"]
    assert "is a file" in findings["folders"]["message"]


def test_a_full_disk_is_a_failure():
    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))

    findings, code = doctor("local", limit=no_room)
    assert failures(findings) == {"folders"} and code == 1
    assert "File too large" in findings["folders"]["message"]


def test_a_missing_model_in_an_offline_cache_is_a_failure(tmp_path):
    model = {"name": "m", "source": "org/m", "revisions": ["step1"], "depth": 2, "width": 8}
    Path("x.yaml").write_text(yaml.safe_dump({"name": "x", "models": [model]}))
    findings, code = doctor("x.yaml", HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1")
    assert failures(findings) == {"hub-cache"} and code == 1


def test_an_unknown_subject_is_refused():
    done = CliRunner().invoke(main, ["doctor", "nowhere"])
    assert done.exit_code == 2 and "Unknown cluster profile 'nowhere'" in done.stderr


class TestSlurm:
    pytestmark = needs_slurm

    @pytest.mark.parametrize(
        ("changes", "remedy"),
        [
            ({"partition": "gpuu"}, "cluster.partition=gpu (up are: gpu, cpu, paid)"),
            ({"partition": "paid"}, "cluster.account=abc123 (the partition accepts only abc123)"),
            ({"walltime": "9-00:00:00"}, 'cluster.walltime="1-00:00:00"'),
            ({"gpus_per_job": 9}, "have up to 16 CPUs, 64 GiB, 4 GPUs l40s"),
            ({"threads": 99}, "fewer threads"),
            ({"scoring": {"workers": 1, "memory": "9TiB"}}, "less memory"),
            ({"directives": ["--constraint=h100"]}, "cluster.directives"),
        ],
    )
    def test_a_job_that_slurm_refuses_has_a_remedy(self, slurm, changes, remedy):
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, **changes)))
        finding = examine(collect("site.yaml"))["rehearsal"]
        assert finding.severity == "failure" and remedy in finding.remedy
        assert "Slurm would refuse the" in finding.message

    @pytest.mark.parametrize(
        ("close", "reopen", "check", "remedy"),
        [
            ("partitionname=gpu state=down", "partitionname=gpu state=up", "partition", "sinfo"),
            ("partitionname=gpu state=drain", "partitionname=gpu state=up", "rehearsal", "=cpu"),
            ("nodename=ALL state=drain reason=x", "nodename=ALL state=resume", "rehearsal", "-R"),
        ],
    )
    def test_what_is_closed_is_named(self, slurm, close, reopen, check, remedy):
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm)))
        command("scontrol", "update", *close.split())
        try:
            finding = examine(collect("site.yaml"))[check]
        finally:
            command("scontrol", "update", *reopen.split())
            comes_true(lambda: command("sinfo", "-h", "-o", "%t", "-p", "cpu").split() == ["idle"])
        assert finding.severity == "failure" and remedy in finding.remedy

    def test_a_wrong_interface_is_reported(self, slurm):
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, interface="ib7")))
        assert "cluster.interface=lo" in examine(collect("site.yaml"))["interface"].remedy

    def test_a_sound_profile_has_no_failure(self, slurm):
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, gpus_per_job=0, gpu_type=None)))
        findings, code = doctor("site.yaml")
        assert failures(findings) == set() and code == 0
        assert findings["rehearsal"]["severity"] == "ok"
