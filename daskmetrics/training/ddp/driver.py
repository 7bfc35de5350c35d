"""What runs in the driver: it starts ranks, and again on failure."""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from distributed import Client, Future

from daskmetrics.core.errors import ClusterLostError, DaskmetricsError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.holder import Holder
from daskmetrics.core.machine import ask, replace_worker, thread_of, workers
from daskmetrics.core.telemetry import EVERY, TelemetryFile
from daskmetrics.domain.training import (
    Cause,
    Progress,
    RankEnding,
    TrainingStatus,
    failed_ranks,
)
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import (
    Program,
    RankHost,
    RankSpec,
    place_ranks,
    rank_table,
)
from daskmetrics.training.ddp.remedies import late_text

POLL = 1.0  # seconds between two requests for the list of workers
GRACE = 1.0  # seconds to receive the errors of other ranks before the failed rank is named
STOP = 15.0  # seconds in which a worker must end its rank; a worker that does not is excluded


class TrainingObserver(Protocol):
    """Receives the progress of a training."""

    def message(self, text: str) -> None:
        """A line for the user."""

    def progressed(self, program: Program, progress: Progress) -> None:
        """Rank 0 has taken steps."""


class ProcessGroupError(DaskmetricsError):
    """A process group failed too often; what the program saved is kept.

    ``cause`` says which rank failed, and why.
    """

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"{cause} What was saved is kept: run the same command again to resume from it."
        )


class Places:
    """The workers that have ranks of programs which train side by side."""

    def __init__(self) -> None:
        self.taken: set[str] = set()  # addresses
        self.lock = threading.Lock()  # held while a program looks for workers and takes them


def launch(
    client: Client,
    program: Program,
    observer: TrainingObserver,
    stopping: Callable[[], bool] = lambda: False,
    places: Places | None = None,
) -> None:
    """Run a program with one rank per worker to its end.

    Any failure of a rank ends the process group. It starts again, with as many ranks as there are
    workers at that time, from what the program has saved. Repeated failures without a further step,
    or one that would occur again, raise `ProcessGroupError`. The ranks end once ``stopping`` says
    so. Programs that are launched side by side share their ``places``. What the workers use
    meanwhile, and how far the program is, are kept in its folder.
    """
    run_id = f"train-{program.name}-{secrets.token_hex(4)}"
    telemetry = TelemetryFile(RunFolder(program.folder).telemetry)
    status = TrainingStatus(program.name, program.ranks, time.time(), Holder.this_process())
    launcher = _Launcher(
        client, program, observer, stopping, places or Places(), run_id, telemetry, status
    )
    with thread_of(client):
        try:
            launcher.drive()
        finally:
            launcher.keep(driver=None)


@dataclass
class _Launcher:
    client: Client
    program: Program
    observer: TrainingObserver
    stopping: Callable[[], bool]
    places: Places
    run_id: str
    telemetry: TelemetryFile
    status: TrainingStatus
    furthest: int = 0  # step that the program has reported
    failures: int = 0  # since then
    excluded: set[str] = field(default_factory=set)  # workers that hung, or did not end their ranks
    workers_checked: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)  # last heartbeats of workers
    silent: dict[str, float] = field(default_factory=dict)  # seconds without another one
    # the latest process group
    reports: queue.SimpleQueue[Mapping[str, Any]] = field(default_factory=queue.SimpleQueue)
    hosts: tuple[RankHost, ...] = ()  # by rank
    begun: set[int] = field(default_factory=set)  # ranks
    late: list[str] = field(default_factory=list)  # for each late rank, or empty if it has joined
    endings: dict[int, RankEnding] = field(default_factory=dict)  # by rank
    futures: list[Future] = field(default_factory=list)

    def keep(self, **changes: Any) -> None:
        """Change the status, and write it into the folder of the program."""
        self.status = replace(self.status, at=time.time(), **changes)
        # the disk is full, or the file is none; that does not end a training
        with suppress(OSError, DataError):
            self.program.folder.mkdir(parents=True, exist_ok=True)
            self.status.write(self.program.folder)

    def drive(self) -> None:
        program = self.program
        message = self.observer.message
        self.keep()
        while hosts := self._wait_for_workers():
            self.hosts = hosts
            attempt = self.status.attempt + 1
            self.keep(nodes=[host.node for host in hosts], attempt=attempt)
            if attempt > 1 or len(hosts) < program.ranks:
                message(f"Starting with {len(hosts)} of {program.ranks} ranks.")
            if program.ranks > 1:
                message(rank_table(hosts).as_text())
            else:
                message(f"{program.name} trains on {hosts[0].text}")
            try:
                failure = self._run_group()
            finally:
                self.places.taken -= {host.address for host in hosts}
            if failure is None or self.stopping():
                self.keep(finished=failure is None)
                return
            self.failures += 1
            # others were ended because of them
            failed = failed_ranks(self.endings.values())
            self.keep(failed=[ending for ending in failed if ending.cause != Cause.ENDED])
            message(f"Rank {failure.rank} of {program.name} failed first: {failure.reason}")
            for line in failure.lines:
                message(f"  {line}")
            if failure.permanent or self.failures > program.restarts:
                cause = (
                    f"Training '{program.name}' failed: rank {failure.rank}: "
                    f"{hosts[failure.rank].text}: {failure.reason.rstrip('.')}. The output of the "
                    f"ranks is in '{program.folder / 'logs'}'."
                )
                self.keep(error=cause)
                raise ProcessGroupError(cause)

    def _wait_for_workers(self) -> tuple[RankHost, ...]:
        """The workers of the next process group; none if it is to end.

        After some time these are fewer than the program has ranks, as far as it allows.
        """
        program = self.program
        expected = min(program.ranks, program.workers or program.ranks)
        deadline = time.monotonic() + program.patience
        while not self.stopping():
            with self.places.lock:
                hosts = self._free_workers()
                late = time.monotonic() - deadline
                if len(hosts) >= expected or (len(hosts) >= program.least and late > 0):
                    placed = place_ranks(hosts, program.ranks)
                    self.places.taken |= {host.address for host in placed}
                    return placed
            if self.places.taken:  # by programs that end
                deadline = time.monotonic() + program.patience
            elif late > STOP:
                raise ClusterLostError(
                    f"{len(hosts)} of {program.ranks} workers are there to train '{program.name}' "
                    "on. Run the same command again to resume, with fewer ranks or more workers."
                )
            time.sleep(POLL)
        return ()

    def _free_workers(self) -> list[RankHost]:
        present = self._present()
        # ranks avoid the workers that only score, where there are others
        with_gpu = [each for each, info in present.items() if info["resources"].get("GPU")]
        asked = [
            address
            for address in with_gpu or present
            # a worker that hangs would never reply
            if address not in self.excluded | self.places.taken and self.silent[address] < STOP
        ]
        if not asked:
            return []
        network = self.program.interface
        replies = ask(
            self.client,
            self.client.run,
            worker.inventory,
            network,
            workers=asked,
            on_error="ignore",
            asynchronous=True,
        )
        return list(replies.values())

    def _run_group(self) -> RankEnding | None:
        """The rank that failed first; None if all succeeded."""
        self.begun = set()
        self.late = []
        self.endings = {}
        self.excluded = set()
        reports = self.reports = queue.SimpleQueue()
        topic = f"{self.run_id}-{self.status.attempt}"
        self.client.subscribe_topic(topic, lambda event: reports.put(event[1]))
        try:
            self._start(topic)
            while self._running() and not self.stopping():
                self._update(POLL)
                if failed_ranks(self.endings.values()):
                    self._update(GRACE)
                    break
        finally:
            try:
                self._stop()
            finally:
                self.status = replace(self.status, notice="", left=None, began=None)
            self.client.unsubscribe_topic(topic)
        return next(iter(failed_ranks(self.endings.values())), None)

    def _start(self, topic: str) -> None:
        directory = str(Path.cwd())
        address = self.hosts[0].address
        store = self.client.submit(
            worker.open_store, address, workers=[address], priority=1, pure=False
        )
        self.futures = []
        for rank, host in enumerate(self.hosts):
            spec = RankSpec(self.program, self.hosts, rank, topic, self.status.attempt, directory)
            future = self.client.submit(
                worker.run_rank,
                spec,
                store,
                key=spec.key,
                workers=[host.address],
                resources={"GPU": 1} if host.offers_gpu else None,
                priority=1,  # before units that wait for this worker
                pure=False,
            )
            self.futures.append(future)

    def _running(self) -> set[int]:
        return set(range(len(self.hosts))) - self.endings.keys()

    def _stop(self) -> None:
        ask(self.client, self.client.cancel, self.futures, force=True, asynchronous=True)
        deadline = time.monotonic() + STOP
        while (unanswered := self._running() & self.begun) and time.monotonic() < deadline:
            self._update(POLL)
        self.excluded |= {self.hosts[rank].address for rank in unanswered}
        for rank in self._running():
            self.endings[rank] = RankEnding(rank, Cause.MISSING, "its worker did not answer")
        for address in self.excluded & workers(self.client).keys():
            # not awaited: a node that is gone does not answer
            self.client.loop.add_callback(replace_worker, self.client, address)

    def _update(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._running() and (remaining := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._handle(self.reports.get(timeout=remaining))
        running = self._running()
        # before the list of workers: the tasks of a lost one fail, too
        failed = {rank for rank in running if self.futures[rank].status == "error"}
        present = self._present()
        metrics = {str(info["name"]): info["metrics"] for info in present.values()}
        self.telemetry.add(time.time(), metrics, {})
        if not 0 <= time.time() - self.status.at < EVERY:
            self.keep()
        for rank in running:
            address = self.hosts[rank].address
            if address not in present:
                reason = "its worker was lost"
            elif rank in failed:
                reason = f"its worker failed: {self.futures[rank].exception()!r}"
            elif self.silent[address] > self.program.timeout:
                reason = f"its worker stopped reporting {self.silent[address]:.0f} s ago"
                self.excluded.add(address)
            else:
                continue
            self.endings[rank] = RankEnding(rank, Cause.LOST, reason)

    def _present(self) -> Mapping[str, Any]:
        """The workers that the scheduler knows; notes how long each is silent."""
        now = time.monotonic()
        # a driver that was stopped itself has heard of none meanwhile
        elapsed = min(now - self.workers_checked, 2 * POLL)
        self.workers_checked = now
        present = workers(self.client)
        for address, info in present.items():
            is_silent = self.seen.get(address) == info["last_seen"]
            self.silent[address] = self.silent[address] + elapsed if is_silent else 0.0
            self.seen[address] = info["last_seen"]
        return present

    def _handle(self, report: Mapping[str, Any]) -> None:
        if "ending" in report:
            ending = RankEnding(**report["ending"])
            # a worker that hung may report after it was given up
            self.endings.setdefault(ending.rank, ending)
        elif "begun" in report:
            self.begun.add(report["begun"])
        elif "late" in report:
            self.late.append(report["late"])
            ranks = len(self.hosts)
            if len(self.late) == ranks > 1 and self.status.began is None:
                text = late_text(self.program, ranks, list(filter(None, self.late)))
                self.observer.message(text)
                self.keep(notice=text)
        else:
            progress = Progress(**report["progress"])
            self.status = self.status.reached(progress, time.time())
            if progress.step > self.furthest:
                self.furthest = progress.step
                self.failures = 0
            self.observer.progressed(self.program, progress)
