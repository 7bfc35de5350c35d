"""What differs between real sites, staged on a real Slurm: wrappers of sbatch, working folders,
leftovers, clocks.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.cluster._certificates import PREFIX
from daskmetrics.cluster.slurm.commands import queue
from daskmetrics.cluster.slurm.script import job_name
from daskmetrics.core.machine import workers
from daskmetrics.execution import Journal, Settings, Sweep, run
from tests.slurm import units
from tests.slurm.site import comes_true, command, driver, jobs, needs_slurm, no_job_is_left, profile

pytestmark = needs_slurm

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


def patient(place: Path, **changes: Any) -> dict[str, Any]:
    """A profile with which a test that fails does not wait for a week."""
    return profile(place, **{"arrive_within": 180, **changes})


@pytest.fixture
def wrapper(tmp_path, monkeypatch):
    """Put an ``sbatch`` on PATH that prints a banner around what the real one prints without
    ``--parsable``.
    """
    real = shutil.which("sbatch")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(
        '#!/bin/bash\nset -- "${@/--parsable/--export=ALL}"\n'
        f'echo "*** Welcome to the site ***"; {real} "$@"; code=$?; echo; echo 2026; exit $code\n'
    )
    (folder / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_banner_of_sbatch_is_not_taken_for_a_job(slurm, tmp_path, wrapper):
    said: list[str] = []
    with connect(config.cluster(patient(tmp_path, workers=2)), "banner", said.append) as client:
        assert comes_true(lambda: len(workers(client)) == 2) is not None, said
        known = client.cluster.supervisor.pools["gpu"].jobs.jobs
        assert {job.id for job in known} == set(jobs())
    assert no_job_is_left()


def test_workers_lost_before_any_reading_are_replaced_at_once(slurm, tmp_path):
    """The queue is read every two minutes; none of the cancelled jobs counts as failed."""
    lines: list[str] = []
    cluster = config.cluster(patient(tmp_path, workers=6, poll_seconds=120))
    with connect(cluster, "early", lines.append) as client:
        assert comes_true(lambda: len(workers(client)) == 6) is not None, lines
        lost = set(jobs())
        command("scancel", *lost)
        assert comes_true(lambda: len(workers(client)) < 6) is not None
        took = comes_true(lambda: len(workers(client)) == 6, within=100)
        assert took is not None, lines
        assert client.cluster.supervisor.pools["gpu"].jobs.failed == 0
        assert not set(jobs()) & lost
    print(f"\nsix jobs cancelled before the second reading: {took:.1f} s until six workers")
    assert no_job_is_left()


def broken_on_the_first(slurm: Path, tmp_path: Path, prologue: str) -> list[str]:
    """Lines of a run of four workers, for two units of 2 s each, whose prologue runs on gpu0 only."""
    said: list[str] = []
    changes = {"prologue": [f'if [ "$SLURMD_NODENAME" = gpu0 ]; then {prologue}; fi']}
    cluster = config.cluster(patient(tmp_path, workers=5, threads=4, **changes))
    units_of_run = units.naps(tmp_path, 2.0, 20)
    with (
        connect(cluster, "broken", said.append) as client,
        Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal,
    ):
        run(Sweep(units_of_run), client, journal, Settings(), say=said.append)
        assert [record.status for record in journal.records()] == ["ok"] * 20
        jobs_of_pool = client.cluster.supervisor.pools["gpu"].jobs
        assert jobs_of_pool.excluded == ("gpu0",), said
        nodes = {job.nodes for job in queue(name="daskmetrics-broken") if job.state == "RUNNING"}
        assert nodes and "gpu0" not in nodes
    assert no_job_is_left()
    assert not [line for line in said if "CANCELLED" in line], "the driver ended them itself"
    return said


def test_a_node_that_breaks_jobs_is_excluded_and_its_log_shown(slurm, tmp_path):
    prologue = "echo module cuda/13 not found; for i in $(seq 40); do echo $i; done; exit 1"
    [line] = [
        line
        for line in broken_on_the_first(slurm, tmp_path, prologue)
        if "were lost at their start on gpu0: further gpu jobs exclude it." in line
    ]
    print(line)
    assert line.endswith("  40")


def test_refusing_a_late_worker_of_another_version_ends_no_run(slurm, tmp_path):
    """The jobs of gpu0 wait until others have begun to work."""
    other = tmp_path / "other" / "daskmetrics-9.9.9.dist-info" / "METADATA"
    other.parent.mkdir(parents=True)
    other.write_text("Metadata-Version: 2.1\nName: daskmetrics\nVersion: 9.9.9\n")
    begun = tmp_path / "begun"
    prologue = (
        f"until [ -s {begun} ]; do sleep 0.2; done; "
        f"export PYTHONPATH={other.parent.parent}:$PYTHONPATH"
    )
    said = broken_on_the_first(slurm, tmp_path, prologue)
    print("\n".join(said))
    assert any("has daskmetrics 9.9.9" in line and "the run goes on" in line for line in said)
    assert any("on gpu0 was refused: its worker has other versions" in line for line in said)


def test_commands_that_hang_hold_nothing_up_and_are_reported(slurm, tmp_path, monkeypatch):
    said: list[str] = []
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue"):
        hangs = f"while [ -e {tmp_path}/{name}.hangs ]; do sleep 0.2; done"
        (folder / name).write_text(f'#!/bin/bash\n{hangs}\nexec {shutil.which(name)} "$@"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def is_said(text: str) -> bool:
        return comes_true(lambda: any(text in line for line in said), 60) is not None

    with connect(config.cluster(patient(tmp_path, workers=2)), "hangs", said.append) as client:
        assert comes_true(lambda: len(workers(client)) == 2) is not None, said
        first, second = jobs()
        (tmp_path / "sbatch.hangs").touch()
        command("scancel", first)
        assert is_said("sbatch gave no answer within 10 s: further gpu jobs wait"), said
        command("scancel", second)
        assert is_said(f"Job {second} "), "the queue is read while sbatch hangs"
        (tmp_path / "sbatch.hangs").unlink()
        assert comes_true(lambda: len(workers(client)) == 2) is not None, said
        (tmp_path / "squeue.hangs").touch()
        assert is_said("Slurm does not answer (no answer within 10 s)"), said
        (tmp_path / "squeue.hangs").unlink()
        assert is_said("Slurm answers again."), said
    assert no_job_is_left()
    assert sum("does not answer" in line or "sbatch gave" in line for line in said) == 2, said


def test_a_cached_queue_does_not_make_jobs_lost(slurm, tmp_path, monkeypatch):
    """``squeue`` shows for 25 seconds what it showed first, as a wrapper of some sites does."""
    real, folder, said = shutil.which("squeue"), tmp_path / "bin", []
    folder.mkdir()
    (folder / "squeue").write_text(
        f"""#!/bin/bash
cache={folder}/$(echo "$@" | md5sum | cut -c1-8)
if [ ! -f "$cache" ] || [ $(($(date +%s) - $(stat -c %Y "$cache"))) -ge 25 ]; then
  {real} "$@" > "$cache.new"; mv "$cache.new" "$cache"
fi
cat "$cache"
"""
    )
    (folder / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def submitted() -> int:
        words = ("-h", "--states=all", f"--name={job_name('cached')}", "-o", "%A")
        return len(command(str(real), *words).split())

    with connect(config.cluster(patient(tmp_path, workers=4)), "cached", said.append) as client:
        assert comes_true(lambda: len(workers(client)) == 4) is not None, said
        time.sleep(30)
        assert submitted() == 4 and len(workers(client)) == 4, said
        assert not any("no longer in the queue" in line for line in said)
        [first, *_] = jobs_of(str(real), "cached")
        command("scancel", first)
        assert comes_true(lambda: submitted() == 5) is not None, said
        assert comes_true(lambda: len(workers(client)) == 4) is not None, said
    assert comes_true(lambda: not jobs_of(str(real), "cached")) is not None


def jobs_of(squeue: str, run: str) -> list[str]:
    """Ids of the jobs of a run that have not ended."""
    return command(squeue, "-h", f"--name={job_name(run)}", "-o", "%A").split()


def test_at_the_end_jobs_are_cancelled_whose_ids_are_not_known(slurm, tmp_path):
    """One job of the run that the supervisor does not know, and one of another driver of the same
    name.
    """
    other = command("sbatch", "--parsable", "--hold", f"--job-name={job_name('lost')}", "--comment=other/gpu-0",
                    "--output=/dev/null", "--wrap=true").strip()  # fmt: skip
    with connect(config.cluster(patient(tmp_path, workers=1)), "lost") as client:
        owner = client.cluster.supervisor.launch.owner
        command("sbatch", f"--job-name={job_name('lost')}", f"--comment={owner}/gpu-9", "--output=/dev/null",
                "--wrap=sleep 300")  # fmt: skip
        assert len(jobs()) == 3
    assert comes_true(lambda: jobs() == [other]) is not None, jobs()
    command("scancel", other)
    assert no_job_is_left()


def test_any_name_of_the_working_folder_works(slurm, tmp_path, monkeypatch):
    """It contains a module that has the name of one of Python's own, and one that has not."""
    folder = tmp_path / "my $(touch owned) 50%j #1"
    folder.mkdir()
    (folder / "queue.py").write_text(
        "raise SystemExit('queue.py of the working folder was imported')\n"
    )
    (folder / "mine.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(folder)
    with connect(config.cluster(patient(slurm, workers=1, logs="slurm-logs")), "folder") as client:
        assert client.submit(_value_of_mine).result() == 7
        [log] = Path("slurm-logs").glob("*.log")
        assert log.name == f"{job_name('folder')}-{jobs()[0]}.log"
    assert not list(tmp_path.rglob("owned"))
    assert no_job_is_left()


def _value_of_mine() -> int:
    return __import__("mine").VALUE  # type: ignore[no-any-return]


def test_keys_of_workers_are_private_and_go_with_a_killed_driver(slurm, tmp_path):
    settings = patient(tmp_path, workers=1)
    logs = Path(settings["logs"])
    with driver(tmp_path, settings, seconds=1000, count=1) as process:
        assert comes_true((tmp_path / "begun").exists) is not None
        [folder] = logs.glob(f"{PREFIX}*")
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "key.pem")}
        assert modes == {0o700, 0o600}
        os.killpg(process.pid, signal.SIGKILL)
        assert no_job_is_left()
    assert comes_true(lambda: not folder.exists()) is not None


def test_of_several_partitions_jobs_go_to_those_that_are_open(slurm, tmp_path):
    """One is closed, then the other one."""
    partitions = ("gpu", "cpu")
    cluster = config.cluster(patient(tmp_path, workers=1, partition=list(partitions)))
    try:
        command("scontrol", "update", "partitionname=gpu", "state=drain")
        with connect(cluster, "several") as client:
            assert command("squeue", "-h", "--states=running", "-o", "%P").split() == ["cpu"]
            command("scontrol", "update", "partitionname=gpu", "state=up")
            command("scontrol", "update", "partitionname=cpu", "state=drain")
            command("scancel", *jobs())
            running = ("squeue", "-h", "--states=running", "-o", "%P")
            assert comes_true(lambda: command(*running).split() == ["gpu"]) is not None
            assert comes_true(lambda: len(workers(client)) == 1) is not None
    finally:
        for name in partitions:
            command("scontrol", "update", f"partitionname={name}", "state=up")
    assert no_job_is_left()


@pytest.mark.skipif(not FAKETIME.exists(), reason="needs the package faketime; .ci/run installs it")
@pytest.mark.parametrize("shift", ["-3d", "-800d", "+800d"])
def test_a_node_with_another_clock_can_join(slurm, tmp_path, shift):
    other = {"LD_PRELOAD": str(FAKETIME), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    with connect(config.cluster(patient(tmp_path, workers=1, exports=other)), "clock") as client:
        assert client.submit(sum, [1, 2]).result() == 3
    assert no_job_is_left()
