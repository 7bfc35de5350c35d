"""The verb on real failures: of a Slurm, of folders, of caches, of versions."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from daskmetrics.execution import Journal
from daskmetrics.execution import _handshake as handshake
from daskmetrics.planning.doctor import Verdict, examine, gather, subject
from tests.slurm.site import needs_slurm, profile

PREFIX = [sys.executable, "-m", "daskmetrics", "doctor"]


def doctor(*words, limit=None, **environment):
    """What the verb finds, by check, and its exit code."""
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


def failures(found):
    return {name for name, each in found.items() if each["verdict"] == "failure"}


def test_this_machine_has_no_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found, code = doctor("local", DASKMETRICS_CACHE=str(tmp_path))
    assert failures(found) == set() and code == 0


def test_folders_that_cannot_be_written_are_failures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    Path("site.yaml").write_text(yaml.safe_dump({"scratch": "/proc/1/scratch"}))
    found, code = doctor("site.yaml", DASKMETRICS_CACHE=str(tmp_path / "file" / "cache"))
    assert failures(found) == {"scratch-folder", "cache-folder"} and code == 2
    assert "cluster.scratch" in found["scratch-folder"]["remedy"]
    assert "is a file" in found["cache-folder"]["said"]


def test_a_disk_without_room_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))

    found, code = doctor("local", limit=no_room, DASKMETRICS_CACHE=str(tmp_path))
    assert failures(found) == {"run-folder", "cache-folder"} and code == 2
    assert "File too large" in found["run-folder"]["said"] and "--folder" in found["run-folder"]["remedy"]


def test_an_offline_cache_that_lacks_a_model_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = {"name": "m", "source": "org/m", "revisions": ["step1"], "depth": 2, "width": 8}
    Path("x.yaml").write_text(yaml.safe_dump({"name": "x", "models": [model]}))
    found, code = doctor("x.yaml", HF_HOME=str(tmp_path / "hub"), HF_HUB_OFFLINE="1", DASKMETRICS_CACHE=str(tmp_path))
    assert failures(found) == {"hub-cache"} and code == 1
    assert "hf download org/m --revision step1" in found["hub-cache"]["remedy"]


def test_one_task_for_four_gpus_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    found, code = doctor("local", DASKMETRICS_CACHE=str(tmp_path), **job)
    assert failures(found) == {"allocation-layout"} and code == 1
    assert "--ntasks-per-node=4 --gpus-per-task=1" in found["allocation-layout"]["remedy"]


def test_a_run_whose_workers_had_other_versions_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ours = handshake.versions()
    worker = {"type": "worker", "name": "w0", "host": "n0", "gpus": [], "versions": {**ours, "torch": "1.13.1"}}
    with Journal(Path("journal.jsonl"), Path("lock")) as journal:
        for entry in ({"type": "start", "key": "k"}, worker, {"type": "finished", "key": "k"}):
            journal.append(entry)
    found, code = doctor(".", DASKMETRICS_CACHE=str(tmp_path))
    assert failures(found) == {"same-versions"} and code == 1
    assert "torch 1.13.1 there" in found["same-versions"]["said"]


def test_what_is_no_subject_is_refused():
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
            ({"walltime": "9-00:00:00"}, "walltime", "24:00:00"),
            ({"partition": "paid"}, "account", "cluster.account=abc123"),
        ],
    )
    def test_a_profile_that_cannot_work_is_told(self, slurm, tmp_path, monkeypatch, changes, name, remedy):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, **changes)))
        found = examine(gather(subject("site.yaml")))[name]
        assert found.verdict is Verdict.FAILURE and remedy in found.remedy

    def test_a_sound_profile_has_no_failure_and_its_worker_is_looked_at(self, slurm, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm, gpus_per_job=0, gpu_type=None)))
        found, code = doctor("site.yaml", "--worker", DASKMETRICS_CACHE=str(tmp_path))
        assert failures(found) == set() and code == 0
        assert found["same-versions"]["verdict"] == "ok" and found["interface-on-worker"]["verdict"] == "ok"

    def test_a_job_without_a_gpu_driver_is_told(self, slurm, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("site.yaml").write_text(yaml.safe_dump(profile(slurm)))
        found, _ = doctor("site.yaml", "--worker", DASKMETRICS_CACHE=str(tmp_path))
        there = Path("/proc/driver/nvidia/gpus").exists()
        assert ("gpu" in failures(found)) is not there
