"""The command on real failures: of a Slurm, of folders, of caches, of versions."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from daskmetrics.core._events import RunFinished
from daskmetrics.execution import Journal
from daskmetrics.execution import _handshake as handshake
from daskmetrics.planning.doctor import Severity, collect, examine, subject
from tests.config.weights import write
from tests.events import joined, started
from tests.slurm.site import needs_slurm, profile

PREFIX = [sys.executable, "-m", "daskmetrics", "doctor"]


def doctor(*words, limit=None, **environment):
    """The findings of the command, by check, and its exit code."""
    done = subprocess.run(
        [*PREFIX, *map(str, words), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        preexec_fn=limit,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.returncode


def failures(findings):
    return {name for name, each in findings.items() if each["severity"] == "failure"}


def test_this_machine_has_no_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    findings, code = doctor("local", DASKMETRICS_CACHE=str(tmp_path))
    assert failures(findings) == set() and code == 0


def test_folders_that_cannot_be_written_are_failures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    Path("site.yaml").write_text(yaml.safe_dump({"scratch": "/proc/1/scratch"}))
    findings, code = doctor("site.yaml", DASKMETRICS_CACHE=str(tmp_path / "file" / "cache"))
    assert failures(findings) == {"scratch-folder", "cache-folder"} and code == 2
    assert "cluster.scratch" in findings["scratch-folder"]["remedy"]
    assert "is a file" in findings["cache-folder"]["message"]


def test_a_full_disk_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))

    findings, code = doctor("local", limit=no_room, DASKMETRICS_CACHE=str(tmp_path))
    assert failures(findings) == {"run-folder", "cache-folder"} and code == 2
    assert "File too large" in findings["run-folder"]["message"] and "--folder" in findings["run-folder"]["remedy"]


def test_a_missing_model_in_an_offline_cache_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = {"name": "m", "source": "org/m", "revisions": ["step1"], "depth": 2, "width": 8}
    Path("x.yaml").write_text(yaml.safe_dump({"name": "x", "models": [model]}))
    findings, code = doctor(
        "x.yaml", HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1", DASKMETRICS_CACHE=str(tmp_path)
    )
    assert failures(findings) == {"hub-cache"} and code == 1
    assert "hf download org/m --revision step1" in findings["hub-cache"]["remedy"]


def test_equal_and_exchanged_weights_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i, place in enumerate((0, 2, 1, 3, 4, 4)):
        direction = np.random.default_rng(1).normal(size=100)
        write(
            tmp_path / "suite" / f"step{i}", place * direction if i > 3 else place * direction + rng.normal(0, 0.1, 100)
        )
    Path("x.yaml").write_text(yaml.safe_dump({"name": "x", "models": [{"name": "m", "source": "suite"}]}))
    findings, code = doctor("x.yaml", DASKMETRICS_CACHE=str(tmp_path / "cache"))
    assert code == 0 and findings["checkpoints"]["message"].startswith("5 checkpoints")
    assert findings["equal-weights"]["message"] == "equal weights: m@step5 = step4"
    assert "step1 and step2 seem to be exchanged" in findings["weights"]["message"]


def test_one_task_for_four_gpus_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    findings, code = doctor("local", DASKMETRICS_CACHE=str(tmp_path), **job)
    assert failures(findings) == {"allocation-layout"} and code == 1
    assert "--ntasks-per-node=4 --gpus-per-task=1" in findings["allocation-layout"]["remedy"]


def test_other_versions_on_the_workers_of_a_run_are_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = handshake.versions()
    worker = joined("w0", **{**ours, "torch": "1.13.1"})
    with Journal(Path("journal.jsonl"), Path("lock")) as journal:
        for entry in (started(), worker, RunFinished("k", 1.0)):
            journal.append(entry)
    findings, code = doctor(".", DASKMETRICS_CACHE=str(tmp_path))
    assert failures(findings) == {"same-versions"} and code == 1
    assert "torch 1.13.1 there" in findings["same-versions"]["message"]


def test_an_unknown_subject_is_refused():
    done = subprocess.run([*PREFIX, "nowhere"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Unknown cluster profile 'nowhere'" in done.stderr


class TestSlurm:
    pytestmark = needs_slurm

    @pytest.mark.parametrize(
        ("changes", "name", "remedy"),
        [
            ({"partition": "gpuu"}, "partition", "cluster.partition="),
            ({"gpu_type": "h100"}, "gres", "cluster.gpu_type=l40s"),
            ({"gpus_per_job": 9}, "gres", "cluster.gpus_per_job=4"),
            ({"interface": "ib7"}, "interface", "cluster.interface=lo"),
            ({"directives": ["--gres=gpu:l40s:4"]}, "task-layout", "gpus_per_job: 4"),
            ({"walltime": "9-00:00:00"}, "walltime", "1-00:00:00"),
            ({"partition": "paid"}, "account", "cluster.account=abc123"),
        ],
    )
    def test_an_impossible_profile_is_reported(self, slurm, tmp_path, monkeypatch, changes, name, remedy):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, **changes)))
        finding = examine(collect(subject("site.yaml")))[name]
        assert finding.severity is Severity.FAILURE and remedy in finding.remedy

    def test_a_sound_profile_has_no_failure_and_its_worker_is_checked(self, slurm, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, gpus_per_job=0, gpu_type=None)))
        findings, code = doctor("site.yaml", "--worker", DASKMETRICS_CACHE=str(tmp_path))
        assert failures(findings) == set() and code == 0
        assert findings["same-versions"]["severity"] == "ok" and findings["interface-on-worker"]["severity"] == "ok"

    def test_a_job_without_a_gpu_driver_is_reported(self, slurm, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm)))
        findings, _ = doctor("site.yaml", "--worker", DASKMETRICS_CACHE=str(tmp_path))
        there = Path("/proc/driver/nvidia/gpus").exists()
        assert ("gpu" in failures(findings)) is not there
