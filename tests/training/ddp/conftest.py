from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import pytest
from distributed import Client

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster
from daskmetrics.domain.training import Progress
from daskmetrics.training.ddp.ranks import Program


@dataclass(frozen=True)
class Fault:
    """What happens to a rank after a step: a signal, or its worker is killed, or stopped with it."""

    step: int
    rank: int
    kind: signal.Signals | str

    def inject(self, process: psutil.Process) -> None:
        if isinstance(self.kind, signal.Signals):
            process.send_signal(self.kind)
        elif self.kind == "its worker is killed":
            process.parent().kill()
        else:  # no connection closes
            process.parent().suspend()
            process.suspend()


@dataclass
class Recorder:
    """Records what a user would see, and injects faults, at most one into each process group."""

    faults: list[Fault] = field(default_factory=list)
    interrupted_at: float = float("inf")  # step after which the user presses Ctrl-C
    lines: list[str] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    hit: dict[int, psutil.Process] = field(default_factory=dict)  # the group of the last fault
    workers: list[psutil.Process] = field(default_factory=list)  # of the ranks that were hit

    def message(self, text: str) -> None:
        self.lines.append(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        self.progress.append(progress)
        if progress.step >= self.interrupted_at:
            self.interrupted_at = float("inf")  # once
            raise KeyboardInterrupt
        if not self.faults or progress.step < self.faults[0].step:
            return
        ranks = ranks_alive()
        if self.faults[0].rank in ranks and not set(ranks.values()) & set(self.hit.values()):
            fault = self.faults.pop(0)
            self.hit = ranks
            self.workers.append(ranks[fault.rank].parent())
            fault.inject(ranks[fault.rank])

    def failures(self) -> list[str]:
        """Which rank failed first, in each process group that failed, and why."""
        return [line for line in self.lines if "failed first" in line]


def ranks_alive(parent: psutil.Process | None = None) -> dict[int, psutil.Process]:
    """Processes of ranks below a process, this one by default, by rank."""
    ranks = {}
    for process in (parent or psutil.Process()).children(recursive=True):
        # it ends, or begins, meanwhile
        with suppress(psutil.Error, ProcessLookupError, KeyError):
            is_rank = "daskmetrics.training._rank" in process.cmdline()
            # the others are its loaders
            if is_rank and os.getsid(process.pid) == process.pid and process.status() != "zombie":
                ranks[int(process.environ()["RANK"])] = process
    return ranks


@pytest.fixture(scope="package")
def client() -> Iterator[Client]:
    """Two workers, which tests kill; they ignore Ctrl-C as those that a run has used, and the ranks
    that they start do not.
    """
    with connect(Cluster(workers=2)) as client:
        client.run(lambda: bool(signal.signal(signal.SIGINT, signal.SIG_IGN)))
        yield client


@pytest.fixture
def observer() -> Recorder:
    return Recorder()
