"""Programs that know nothing of daskmetrics, as process groups on real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.training.ddp.driver import STOP, ProcessGroupError, launch
from daskmetrics.training.ddp.ranks import Program, Progress, RankHost, RankSpec, place_ranks
from tests.training.ddp import trains

PROGRAM = Path(trains.__file__)
ROOT = PROGRAM.parents[3]


class Observer:
    """Records what a user would see; sends a signal to a rank after some steps."""

    def __init__(self, rank: int = 0, after: int | None = None) -> None:
        self.lines: list[str] = []
        self.progress: list[Progress] = []
        self.rank, self.after = rank, after

    def message(self, text: str) -> None:
        self.lines.append(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        self.progress.append(progress)
        if self.after is not None and progress.step >= self.after:
            self.after = None
            os.kill(ranks_alive()[self.rank], signal.SIGKILL)


def ranks_alive(parent: psutil.Process | None = None) -> dict[int, int]:
    """Processes of ranks below a process, by rank."""
    ranks = {}
    for process in (parent or psutil.Process()).children(recursive=True):
        if "daskmetrics.training._rank" in process.cmdline():
            ranks[int(process.environ()["RANK"])] = process.pid
    return ranks


def program(folder: Path, *args: str, ranks: int = 2, restarts: int = 1) -> Program:
    words = (str(PROGRAM), *args)
    return Program("mine", words, folder, ranks, least=ranks, restarts=restarts)


def weights(folder: Path) -> str:
    return (folder / "logs" / "rank0.log").read_text().rpartition("weights ")[2]


@pytest.fixture(scope="module")
def undisturbed(client, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    observer = Observer()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        launch(client, program(folder), observer)
    return folder, observer


def test_a_program_has_the_environment_of_torchrun(undisturbed, tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, PROGRAM, "--steps", "1"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        theirs = json.loads((tmp_path / f"environment{rank}.json").read_text())
        ours = json.loads((undisturbed[0] / f"environment{rank}.json").read_text())
        added = {name for name in theirs if name not in os.environ}
        added -= {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "OMP_NUM_THREADS"}
        assert added - {"TORCHINDUCTOR_CACHE_DIR", "KMP_INIT_AT_FORK"} <= set(ours)
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK")
        assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
        assert ours["TORCHELASTIC_RUN_ID"] and int(ours["MASTER_PORT"])


def test_the_progress_is_read_from_the_bar_that_is_printed(undisturbed):
    progress = undisturbed[1].progress
    assert progress[-1].step == progress[-1].total == 30
    assert progress[-1].numbers["loss"] >= 0


def test_a_killed_rank_is_named_and_the_program_resumes(client, undisturbed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    observer = Observer(rank=1, after=5)
    launch(client, program(tmp_path, "--seconds", "0.2"), observer)
    (failed,) = [line for line in observer.lines if "failed first" in line]
    assert failed.startswith("Rank 1 failed first: its process was ended by signal 9")
    assert "from step 1," not in (tmp_path / "logs" / "rank0.log").read_text()
    assert weights(tmp_path) == weights(undisturbed[0])
    assert not ranks_alive()


def test_an_error_names_its_rank_with_its_last_lines_after_the_restarts(
    client, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    observer = Observer()
    with pytest.raises(ProcessGroupError, match=r"rank 1: node .* ValueError: no batch 7"):
        launch(client, program(tmp_path, "--raise-at", "3"), observer)
    failures = [line for line in observer.lines if "failed first" in line]
    assert failures == ["Rank 1 failed first: ValueError: no batch 7"] * 2
    assert "  the data of rank 1 are gone" in observer.lines
    assert not ranks_alive()


@pytest.mark.parametrize("args", [["--stepps", "3"], ["-m", "gone"]])
def test_what_would_fail_again_is_not_started_again(client, tmp_path, monkeypatch, args):
    monkeypatch.chdir(tmp_path)
    words = tuple(args) if args[0] == "-m" else (str(PROGRAM), *args)
    observer = Observer()
    with pytest.raises(ProcessGroupError, match=r"exit code 2|No module named gone"):
        launch(client, Program("mine", words, tmp_path, 2, least=2), observer)
    assert len([line for line in observer.lines if "failed first" in line]) == 1


def test_a_rank_that_its_worker_cannot_start_is_named(client, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ProcessGroupError, match=r"rank 0: .* its worker failed: \w+Error"):
        launch(client, program(tmp_path / "file", restarts=0), Observer())


class StoppingAWorker(Observer):
    """Stops the worker of a rank with the rank, so that no connection closes."""

    def progressed(self, program: Program, progress: Progress) -> None:
        if self.after is not None and progress.step >= self.after:
            self.after = None
            rank = psutil.Process(ranks_alive()[self.rank])
            self.processes = [rank.parent(), rank]
            for process in self.processes:
                process.suspend()
            self.stopped = time.monotonic()


@pytest.mark.parametrize(
    ("rank", "ranks", "workers", "nanny"),
    [(1, 2, 2, True), (0, 2, 3, False), (0, 1, 1, True)],
    ids=["it is replaced", "its node is gone", "the only one"],
)
def test_a_worker_that_is_stopped_as_a_whole_is_named_and_the_program_resumes(
    tmp_path, monkeypatch, rank, ranks, workers, nanny
):
    monkeypatch.chdir(tmp_path)
    if not nanny:
        monkeypatch.setattr("daskmetrics.training.ddp.driver.kill_worker", len)
    observer = StoppingAWorker(rank, after=5)
    mine = replace(program(tmp_path, "--seconds", "0.2", ranks=ranks), timeout=10.0)
    with connect(Cluster(workers=workers)) as client:
        launch(client, mine, observer)
        # the limit, the time to end the ranks, and that of new processes and all steps
        assert time.monotonic() - observer.stopped < 10 + STOP + 60
        if not nanny:
            observer.processes[0].kill()  # else the cluster waits for it
        _, alive = psutil.wait_procs(observer.processes, timeout=20)
        assert not alive
    (failed,) = [line for line in observer.lines if "failed first" in line]
    assert failed.startswith(f"Rank {rank} failed first: its worker stopped reporting 1")
    assert f"Starting again with {ranks} of {ranks} ranks." in observer.lines
    assert "from step 1," not in (tmp_path / "logs" / "rank0.log").read_text()


def test_a_killed_driver_ends_the_ranks_and_the_same_command_resumes(tmp_path):
    words = [sys.executable, "-m", "daskmetrics", "train", str(PROGRAM), "--ranks", "2", "--"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    slow = [*words, "--seconds", "0.5"]
    with subprocess.Popen(slow, cwd=tmp_path, env=environment, start_new_session=True) as driver:
        deadline = time.monotonic() + 300
        while not (tmp_path / "snapshot.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        ranks = ranks_alive(psutil.Process(driver.pid))
        assert set(ranks) == {0, 1}
        driver.kill()
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in ranks.values() if psutil.pid_exists(pid)], timeout=60
    )
    assert not alive
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    printed = (tmp_path / "training" / "trains" / "logs" / "rank0.log").read_text()
    assert "weights" in printed and "from step 1," not in printed


def hosts(gpus: tuple[str, ...]) -> list[RankHost]:
    return [RankHost(f"tcp://a:{i}", f"w{i}", "a", (0,), 0, gpus, ("L40S",)) for i in range(2)]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(("0", "1"), ("1", "2", "0", "1")), (("3",), ("0", "1", "1", "2"))],
    ids=["both GPUs visible", "a GPU for each worker"],
)
def test_a_rank_takes_the_gpu_with_the_number_of_its_local_rank(tmp_path, gpus, expected):
    placements = place_ranks(hosts(gpus), 2)
    spec = RankSpec(program(tmp_path), placements, 1, "t", 1, ".")
    names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    variables = spec.variables(("a", 1))
    assert tuple(variables[name] for name in names) == expected
