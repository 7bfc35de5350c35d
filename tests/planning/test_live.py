"""A plan of three profiles on a real Slurm, one of them busy, and the run of the chosen option."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from datetime import datetime
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
    assert re.search(r"Run +1 and 2: .* x measure a measured on", done.stdout)
    two, all_, cpu = (
        next(row for row in done.stdout.splitlines() if row.startswith(f"{n} ")) for n in (1, 2, 3)
    )
    assert re.match(r"1 +two.yaml gpu +1 +2 l40s .* \d+ +none ", two)
    assert re.match(r"3 +cpu.yaml cpu +1 +1 cpu .* \d+ +none ", cpu)
    # until the job that holds two GPUs ends at the latest
    assert re.match(r"2 +all.yaml gpu +8 +32 l40s .* \d+ +[\d.]+ min ", all_)
    assert re.search(r"Wait +2: sbatch --test-only; its error is not known", done.stdout)
    assert comes_true(is_finished, 300)


@pytest.fixture
def halves(slurm, tmp_path, monkeypatch):
    """Two partitions of half of the nodes each: all GPUs of ``full`` are held for three hours."""
    monkeypatch.chdir(tmp_path)
    for name, nodes in (("full", "gpu[0-3]"), ("free", "gpu[4-7]")):
        command("scontrol", "create", f"PartitionName={name}", f"Nodes={nodes}")
        Path(f"{name}.yaml").write_text(yaml.safe_dump(profile(slurm, partition=name)))
    options = ("--partition=full", "--gres=gpu:l40s:4", "--time=3:00:00", "--output=/dev/null")
    for _ in range(4):
        command("sbatch", *options, "--wrap=sleep 10800")
    comes_true(lambda: len(jobs("RUNNING")) == 4)
    Path("small.yaml").write_text(yaml.safe_dump({**SMALL, "cluster": "full.yaml"}))
    yield
    command("scancel", *jobs())
    comes_true(lambda: not jobs())
    for name in ("full", "free"):
        command("scontrol", "delete", f"PartitionName={name}")


@pytest.mark.parametrize("purpose", [[], ["--purpose", "fastest"]], ids=["balanced", "fastest"])
def test_of_two_partitions_the_free_one_is_recommended(halves, purpose):
    words = ("plan", "small.yaml", "--profiles", "full.yaml,fre.yaml,free.yaml", "--workers", 2)
    shown = invoke(*words, *purpose).stdout
    assert "Option 3 is the fastest and cheapest one." in shown
    assert re.search(
        r"Option 3 starts now and saves (3.0|2.9) h against waiting for option 1", shown
    )
    assert re.search(r"\n1 +full.yaml full +1 +2 l40s +0 +(3.0|2.9) h ", shown)
    assert re.search(r"\n3 +free.yaml free +1 +2 l40s +16 +none ", shown)
    assert "2: fre.yaml: Unknown cluster profile 'fre.yaml'. Did you mean 'free.yaml'?" in shown
    of_plan = shown.partition("daskmetrics run ")[0]
    assert max(map(len, of_plan.splitlines())) <= 100
    answer = json.loads(invoke(*words, *purpose, "--json").stdout)
    assert (answer["chosen"], answer["aggressive"]) == (3, None)
    # no earlier job is known, and so neither is the error of Slurm's estimate
    least, expected, most = answer["options"][0]["wait"]
    assert least == 0 and expected == pytest.approx(3 * 3600, abs=300) and most is None


def test_an_own_job_that_waits_could_give_its_place(halves):
    options = ("--gres=gpu:l40s:4", "--time=2:00:00", "--output=/dev/null", "--wrap=sleep 7200")
    # the first ones of the queue, on each node one, and one that is held
    waiting = [command("sbatch", "--parsable", "--partition=full", *options) for _ in range(4)]
    command("sbatch", "--partition=full", "--hold", *options)
    assert comes_true(lambda: "N/A" not in command("squeue", "-h", "-j", waiting[-1], "-o", "%S"))
    words = ("plan", "small.yaml", "--profiles", "full.yaml", "--workers", 2)
    shown = " ".join(invoke(*words).stdout.split())
    found = re.search(
        r"Your job (\d+) waits for as much, and starts in (3.0|2.9) h. If you cancel it \(scancel"
        r" (\d+)\), option 1 could take its place, and end (2.0|1.9) h earlier than option 1",
        shown,
    )
    assert found and found[1] == found[3] and found[1] in map(str.strip, waiting), shown
    option = json.loads(invoke(*words, "--json").stdout)["options"][0]
    assert option["offer"]["place"]["id"] == found[1]
    assert expected_wait() == pytest.approx(option["wait"][1], abs=300)
    command("scancel", found[1])  # what is said comes true
    assert comes_true(lambda: found[1] not in jobs())
    start = option["offer"]["place"]["start"]
    assert expected_wait() == pytest.approx(start - time.time(), abs=300)


def expected_wait() -> float:
    """Seconds until a job as that of the plan starts, as Slurm's scheduler expects it."""
    options = ("--gres=gpu:l40s:2", "--time=15", "--output=/dev/null", "--wrap=sleep 1")
    job = command("sbatch", "--parsable", "--partition=full", *options).strip()
    words = ("squeue", "-h", "-j", job, "-o", "%S")
    assert comes_true(lambda: "N/A" not in command(*words))
    start = datetime.fromisoformat(command(*words).strip()).timestamp()
    command("scancel", job)
    comes_true(lambda: job not in jobs())
    return start - time.time()


def test_a_smaller_or_shorter_own_job_gives_no_place(halves):
    for gpus, limit in (("1", "2:00:00"), ("4", "00:01:00")):
        options = (f"--gres=gpu:l40s:{gpus}", f"--time={limit}", "--output=/dev/null")
        last = command("sbatch", "--parsable", "--partition=full", *options, "--wrap=sleep 60")
    assert comes_true(lambda: "N/A" not in command("squeue", "-h", "-j", last, "-o", "%S"))
    words = ("plan", "small.yaml", "--profiles", "full.yaml", "--workers", 2)
    assert "Own jobs" not in invoke(*words).stdout
    assert json.loads(invoke(*words, "--json").stdout)["options"][0]["offer"]["place"] is None
