"""A plan of three profiles on a real Slurm, one of them busy, and the run of the chosen option."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.report import Run
from tests.planning.test_bench import SMALL
from tests.report.conftest import invoke
from tests.slurm.site import comes_true, command, jobs, needs_slurm, profile

pytestmark = needs_slurm


@pytest.fixture
def busy(slurm, tmp_path, monkeypatch):
    """Profiles for two GPUs, for all of them while another job holds two, and for one CPU worker."""
    monkeypatch.chdir(tmp_path)
    profiles = {
        "two": profile(slurm),
        "all": profile(slurm, workers=32),
        "cpu": profile(slurm, partition="cpu", gpus_per_job=0, gpu_type=None, workers=1),
    }
    for name, keys in profiles.items():
        Path(f"{name}.yaml").write_text(yaml.safe_dump(keys))
    Path("small.yaml").write_text(yaml.safe_dump({**SMALL, "cluster": "two.yaml"}))
    options = ("--gres=gpu:l40s:2", "--time=30:00", "--output=/dev/null")
    held = command("sbatch", "--parsable", *options, "--wrap=sleep 1800")
    comes_true(lambda: held.strip() in jobs("RUNNING"))
    yield held.strip()
    command("scancel", *jobs())
    comes_true(lambda: not jobs())


def is_finished() -> bool:
    with suppress(ConfigError, DataError):  # it does not exist, or is being prepared
        return bool(Run("runs/small").finished)
    return False


def test_the_chosen_option_of_three_runs(busy):
    benched = invoke("bench", "small.yaml", "--workers", 1, "--repeats", 1)
    assert benched.exit_code == 0, benched.output
    profiles = "two.yaml,all.yaml,cpu.yaml"
    done = invoke("plan", "small.yaml", "--profiles", profiles, "--submit", 1)
    assert done.exit_code == 0, done.output
    assert re.search(r"run of 1 and 2: .* x measure a measured on", done.stdout)
    two, all_, cpu = (
        next(row for row in done.stdout.splitlines() if row.startswith(f"{n} ")) for n in (1, 2, 3)
    )
    assert re.match(r"1 +two.yaml gpu +1 +2 l40s .* \d+ +none ", two)
    assert re.match(r"3 +cpu.yaml cpu +1 +1 cpu .* \d+ +none ", cpu)
    # until the job that holds two GPUs ends at the latest
    assert re.match(r"2 +all.yaml gpu +8 +32 l40s .* \d+ +[\d.]+ min ", all_)
    assert re.search(r"wait of 2: sbatch --test-only, ", done.stdout)
    assert comes_true(is_finished, 300)
