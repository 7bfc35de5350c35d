from __future__ import annotations

import sys

from tests.cli.calling import call, start

SITE = {"ACCOUNT": "abc123", "WORKERS": "3"}


def test_each_key_is_shown_with_where_it_comes_from(place):
    own = {f"DASK_DASKMETRICS__CLUSTER__{key}": value for key, value in SITE.items()}
    lines = start(place, "cluster show slurm.yaml", **own).stdout.splitlines()
    shown = {tuple(line.split(maxsplit=2)) for line in lines if len(line.split()) > 2}
    assert {
        ("partition", "gpu", "profile"),
        ("account", "abc123", "Dask's configuration"),
        ("workers", "3", "Dask's configuration"),
        ("threads", "1", "default"),
    } <= shown


def test_profiles_are_listed_and_a_script_of_each_job_is_printed(place):
    profiles = call(place, "list profiles").stdout
    assert "1 a100, 8 CPUs" in profiles and "configs/clusters" in profiles
    done = call(place, "cluster script slurm.yaml")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("#!/usr/bin/env bash") == 2
    assert "--partition=gpu" in done.stdout and f"exec {sys.executable}" in done.stdout
    assert f'--output="{place}/slurm-logs/' in done.stdout
