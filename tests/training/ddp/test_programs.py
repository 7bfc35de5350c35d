"""Programs that know nothing of daskmetrics, as process groups on real workers, and the faults that
end them: a rank raises, is killed, stops, or is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGSTOP

import psutil
import pytest

from daskmetrics.domain.training import Progress, TrainingStatus
from daskmetrics.training.ddp.driver import ProcessGroupError, launch
from daskmetrics.training.ddp.ranks import Program
from tests.training.ddp import trains
from tests.training.ddp.conftest import Fault, Recorder, ranks_alive

PROGRAM = Path(trains.__file__)
ROOT = PROGRAM.parents[3]
STEPS = 30
FAULTS = {
    "KeyboardInterrupt": Fault(4, 1, SIGINT),
    "its process was ended by signal 9": Fault(7, 0, SIGKILL),
    "its worker was lost": Fault(10, 0, "its worker is killed"),
    "it stopped reporting": Fault(13, 1, SIGSTOP),
    "its worker stopped reporting 1": Fault(16, 1, "its worker is stopped"),
}


def program(folder: Path, *words: str, timeout: float = 15.0, restarts: int = 1) -> Program:
    return Program("mine", words, folder, 2, least=2, restarts=restarts, timeout=timeout)


def training(folder: Path, seconds: float = 0.02) -> Program:
    return program(folder, str(PROGRAM), "--seconds", str(seconds))


def last_words(log: Path) -> str:
    """The weights at the end, of a program that did not begin again."""
    before, _, weights = log.read_text().rpartition("weights ")
    assert weights and "from step 1," not in before
    return weights


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The folder in which the ranks work."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def undisturbed(client, tmp_path_factory):
    folder, observer = tmp_path_factory.mktemp("undisturbed"), Recorder()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        launch(client, training(folder), observer)
    assert not observer.failures()
    return folder, observer.progress


@pytest.fixture(scope="module")
def weights(undisturbed) -> str:
    return (undisturbed[0] / "logs" / "rank0.log").read_text().rpartition("weights ")[2]


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
    last = undisturbed[1][-1]
    assert last.step == last.total == STEPS
    assert last.numbers["loss"] >= 0


def test_faults_name_their_rank_and_change_no_weights(client, folder, weights, monkeypatch):
    """Ctrl-C, and then all faults in one training; each process group resumes from what the last
    one has saved.
    """
    monkeypatch.setattr("daskmetrics.training.ddp.driver.STOP", 5.0)
    with pytest.raises(KeyboardInterrupt):
        launch(client, training(folder, seconds=0.2), Recorder(interrupted_at=2))
    assert not ranks_alive()
    observer = Recorder(list(FAULTS.values()))
    launch(client, training(folder, seconds=0.2), observer)
    assert not observer.faults, "a fault was not injected"
    assert len(observer.failures()) == len(FAULTS)
    for line, (cause, fault) in zip(observer.failures(), FAULTS.items(), strict=True):
        assert line.startswith(f"Rank {fault.rank} of mine failed first: {cause}")
    assert observer.lines.count("Starting with 2 of 2 ranks.") == len(FAULTS)
    assert last_words(folder / "logs" / "rank0.log") == weights
    assert not ranks_alive()
    # the worker that was stopped is replaced, and both work
    assert not psutil.wait_procs(observer.workers[-1:], timeout=20)[1]
    assert client.gather(client.map(len, ["a", "bc"], pure=False)) == [1, 2]


RAISES = """
import os, sys, time
if os.environ["RANK"] == "1":
    print("the data of rank 1 are gone", file=sys.stderr)
    raise ValueError("no batch 7")
time.sleep(600)
"""
REFUSED = """
from daskmetrics.core.errors import DataError
raise DataError("wrong recipe")
"""


def test_an_error_names_its_rank_and_last_lines_after_restarts(client, folder, observer):
    (folder / "raises.py").write_text(RAISES)
    with pytest.raises(ProcessGroupError, match=r"rank 1: node .* ValueError: no batch 7"):
        mine = replace(program(folder, str(folder / "raises.py")), ranks=3, patience=0.0)
        launch(client, mine, observer)
    assert "Starting with 2 of 3 ranks." in observer.lines
    assert observer.failures() == ["Rank 1 of mine failed first: ValueError: no batch 7"] * 2
    assert "  the data of rank 1 are gone" in observer.lines
    assert not ranks_alive()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit(2)", "SystemExit: 2"),  # of a program that does not know its arguments
        ("import gone", "No module named 'gone'"),
        (REFUSED, r"(?s)wrong recipe.*logs.*run the same command again"),
    ],
)
def test_what_would_fail_again_is_not_started_again(client, folder, observer, script, message):
    (folder / "script.py").write_text(script)
    with pytest.raises(ProcessGroupError, match=message):
        launch(client, program(folder, str(folder / "script.py")), observer)
    assert len(observer.failures()) == 1


LATE = """
import os, sys, time
from pathlib import Path
import torch.distributed as dist
while os.environ["RANK"] == "1" and not Path("go_on").exists():
    time.sleep(0.1)
dist.init_process_group("gloo")
print("50%|##   | 1/2 [00:01<00:01, 1.0it/s]")
"""


@dataclass
class Releasing(Recorder):
    """Lets the ranks go on after the message that one is late, once the status says it, too."""

    notices: list[str] = field(default_factory=list)

    def message(self, text: str) -> None:
        super().message(text)
        if "no step" in text:
            Path("go_on").touch()

    def progressed(self, program: Program, progress: Progress) -> None:
        status = TrainingStatus.read(program.folder)
        assert status is not None
        self.notices.append(status.notice)
        super().progressed(program, progress)


def test_ranks_that_miss_the_first_step_are_named_once(client, folder):
    (folder / "late.py").write_text(LATE)
    observer = Releasing()
    launch(client, program(folder, str(folder / "late.py"), timeout=20.0), observer)
    [message] = [line for line in observer.lines if "no step" in line]
    for fact in ("for 20 s", "1 of 2 ranks", "Missing: rank 1 (node", "interface lo", "logs"):
        assert fact in message
    assert observer.progress and observer.notices[0] == message
    status = TrainingStatus.read(folder)
    assert status and status.finished and not status.notice


def test_a_missing_interface_is_named_with_those_that_exist(client, folder, observer):
    (folder / "late.py").write_text(LATE)
    (folder / "go_on").touch()
    client.run(lambda: os.environ.update(GLOO_SOCKET_IFNAME="ib7"))
    try:
        with pytest.raises(
            ProcessGroupError, match=r"IFNAME=ib7, but this machine has .*\blo\b.*Unset"
        ):
            launch(client, program(folder, str(folder / "late.py")), observer)
    finally:
        client.run(lambda: os.environ.pop("GLOO_SOCKET_IFNAME"))
    assert len(observer.failures()) == 1


MEMORY = {
    "of Python": "bytearray(1 << 60)",
    "of torch": "import torch; torch.empty(1 << 55)",
    "of Slurm": "print('slurmstepd: error: Detected 1 oom_kill event'); import os; os._exit(137)",
}


@pytest.mark.parametrize("script", MEMORY.values(), ids=MEMORY)
def test_a_program_without_memory_is_not_tried_again(client, folder, observer, script):
    (folder / "script.py").write_text(script)
    words = (str(folder / "script.py"), "--batch-size", "32", "--gradient_checkpointing=False")
    with pytest.raises(ProcessGroupError) as raised:
        launch(client, program(folder, *words), observer)
    for fact in ("now --batch-size 32", "accumulation,", "now --gradient_checkpointing False"):
        assert fact in str(raised.value)
    assert len(observer.failures()) == 1 and ".." not in str(raised.value)


def test_a_rank_that_its_worker_cannot_start_is_named(client, tmp_path, observer):
    (tmp_path / "file").touch()
    with pytest.raises(ProcessGroupError, match=r"rank 0: .* its worker failed: \w+Error"):
        launch(client, program(tmp_path / "file", str(PROGRAM), restarts=0), observer)


def test_a_killed_driver_ends_the_ranks_and_the_program_resumes(client, folder, weights, observer):
    words = [sys.executable, "-m", "daskmetrics", "train", str(PROGRAM), "--ranks", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    slow = [*words, "--", "--seconds", "0.5"]
    with subprocess.Popen(slow, cwd=folder, env=environment, start_new_session=True) as driver:
        deadline = time.monotonic() + 300
        while not (folder / "snapshot.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        ranks = ranks_alive(psutil.Process(driver.pid))
        assert set(ranks) == {0, 1}
        driver.kill()
    assert not psutil.wait_procs(ranks.values(), timeout=60)[1]
    launch(client, training(folder), observer)
    assert last_words(folder / "logs" / "rank0.log") == weights
