from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from tests.cli.calling import MODEL, fails
from tests.cli.calling import call as call_main

CONFIG = {"name": "x", "models": [MODEL], "tasks": ["stdlib:order"]}


def call(folder: Path, *words: str, **variables: str | None) -> Result:
    """A command outside a Slurm job."""
    of_slurm = dict.fromkeys(name for name in os.environ if name.startswith("SLURM_"))
    return call_main(folder, *words, config=CONFIG, **of_slurm, **variables)


def output(folder: Path, *words: str, **variables: str) -> str:
    """What a process prints that reads Dask's configuration at its start."""
    command = [sys.executable, "-m", "daskmetrics", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_profiles_are_listed_with_where_they_come_from(tmp_path):
    shown = output(tmp_path, "list", "profiles")
    for part in ("l40s", "1 a100, 8 CPUs", "configs/clusters"):
        assert part in shown


def test_each_key_is_shown_with_where_it_comes_from(tmp_path):
    (tmp_path / "mine.yaml").write_text("kind: slurm\npartition: gpu\n")
    (tmp_path / "dask").mkdir()
    settings = {"account": "abc123", "queue": "other", "interface": "ib0", "cores": 4}
    (tmp_path / "dask" / "jobqueue.yaml").write_text(
        yaml.safe_dump({"jobqueue": {"slurm": settings}})
    )
    own = {"DASK_CONFIG": str(tmp_path / "dask"), "DASK_DASKMETRICS__CLUSTER__WORKERS": "3"}
    lines = output(tmp_path, "cluster", "show", "mine.yaml", **own).splitlines()
    shown = {tuple(line.split(maxsplit=2)) for line in lines if len(line.split()) > 2}
    assert {
        ("partition", "gpu", "profile"),
        ("account", "abc123", "jobqueue.yaml"),
        ("interface", "ib0", "jobqueue.yaml"),
        ("workers", "3", "Dask's configuration"),
        ("threads", "1", "default"),
    } <= shown
    script = output(tmp_path, "cluster", "script", "mine.yaml", **own)
    assert (
        "#SBATCH --account=abc123" in script
        and "--partition=gpu" in script
        and "--interface ib0" in script
    )


def test_a_job_script_is_printed_for_each_kind_of_job(tmp_path):
    (tmp_path / "mine.yaml").write_text("kind: slurm\npartition: gpu\nscoring: {workers: 2}\n")
    done = call(tmp_path, "cluster", "script", "mine.yaml")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("#!/usr/bin/env bash") == 2
    assert "--partition=gpu" in done.stdout and f"exec {sys.executable}" in done.stdout
    assert f'--output="{tmp_path}/slurm-logs/' in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cluster", "script", "local"), "is of kind 'local', which has no jobs"),
        (("cluster", "script", "l40"), "Unknown cluster profile 'l40'. Did you mean 'l40s'?"),
        (("run", "config.yaml", "--submit"), "name a Slurm profile with --cluster"),
        (("run", "config.yaml", "--submit", "--in-job"), "exclude each other: choose one"),
        (("run", "config.yaml", "--in-job"), "--in-job needs a Slurm allocation"),
        (("run", "config.yaml", "--cluster", "none.yaml"), "No configuration file 'none.yaml'"),
        (("status", "--follow", "runs/none"), "No run in 'runs/none'"),
    ],
    ids=["no jobs", "unknown", "submit locally", "both", "no allocation", "no file", "no run"],
)
def test_a_mistake_gives_one_message_and_starts_nothing(tmp_path, words, message):
    done = call(tmp_path, *words)
    assert fails(done, message), done.output
    assert not (tmp_path / "runs").exists()


# what every command of Slurm 22 prints on a machine without slurm.conf and without a controller in
# the DNS
NO_SOURCE = """#!/bin/sh
echo "{name}: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host" >&2
echo "{name}: fatal: Could not establish a configuration source" >&2
exit 1
"""
SENTENCE = "Run on the cluster's login node, or with: --cluster local"


@pytest.mark.parametrize(
    "words",
    [
        ("cluster", "init"),
        ("cluster", "test", "l40s"),
        ("plan", "--profiles", "l40s"),
        ("run", "--cluster", "l40s"),
        ("run", "--cluster", "l40s", "--submit"),
        ("map", "module.py:step", "--iterations", "1", "--cluster", "l40s"),
    ],
    ids=" ".join,
)
def test_every_command_says_in_one_sentence_that_there_is_no_slurm(tmp_path, words):
    (tmp_path / "module.py").write_text("def step(item):\n    return item\n")
    done = call(tmp_path, *words, PATH=str(tmp_path))
    (error,) = [line for line in done.stderr.splitlines() if "Error" in line]
    assert done.exit_code in (1, 2) and SENTENCE in error, done.output
    assert "is not on PATH" in error


def test_a_slurm_without_a_configuration_is_none(tmp_path):
    for name in ("sinfo", "sbatch", "squeue", "scontrol"):
        (tmp_path / name).write_text(NO_SOURCE.format(name=name))
        (tmp_path / name).chmod(0o755)
    done = call(tmp_path, "cluster", "init", PATH=str(tmp_path))
    assert SENTENCE in done.stderr and "Slurm is not configured on this machine" in done.stderr


def test_doctor_says_that_there_is_no_slurm(tmp_path):
    done = call(tmp_path, "doctor", "l40s", PATH=str(tmp_path))
    assert "The command 'sbatch' is not on PATH" in done.stdout


def test_init_without_a_slurm_says_where_to_go(tmp_path):
    done = call(tmp_path, "cluster", "init", "-o", "site.yaml", PATH=str(tmp_path))
    assert fails(done, "'sinfo' is not on PATH")
    assert not (tmp_path / "site.yaml").exists()
