"""What runs in the driver: it starts the ranks of a program, watches them, and starts them again on
failure.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from distributed import Client, Future, fire_and_forget

from daskmetrics.core.errors import ClusterLostError, ConfigError, DaskmetricsError
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetryFile
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import (
    Cause,
    Program,
    Progress,
    RankEnding,
    RankHost,
    RankPlacement,
    RankSpec,
    first_failure,
    place_ranks,
    rank_table,
)

POLL = 0.25  # seconds between two checks of the reports
CHECK_WORKERS = 1.0  # seconds between two requests for the list of workers
GRACE = 1.0  # seconds to receive the errors of other ranks before the failed rank is named
STOP = 15.0  # seconds in which a worker must end its rank; a worker that does not is excluded


class TrainingObserver(Protocol):
    """Receives the progress of a training."""

    def message(self, text: str) -> None:
        """A line for the user."""

    def progressed(self, program: Program, progress: Progress) -> None:
        """Rank 0 has taken steps."""


class ProcessGroupError(DaskmetricsError):
    """A process group failed more often than it may start again; what the program saved is kept."""


class _Stopped(Exception):
    """The launcher was asked to end the ranks."""


def launch(
    client: Client,
    program: Program,
    observer: TrainingObserver,
    stopping: Callable[[], bool] = lambda: False,
) -> Mapping[str, Any]:
    """Run a program with one rank per worker to its end; return what rank 0 has measured, if it
    measures.

    Any failure of a rank ends the process group. It starts again, with as many ranks as there are
    workers at that time, from what the program has saved. Repeated failures without a further step,
    or one that would occur again, raise `ProcessGroupError`. The ranks end once ``stopping`` says
    so.
    """
    topic = f"train-{program.name}-{secrets.token_hex(4)}"
    launcher = _Launcher(client, program, observer, stopping, topic)
    if program.telemetry:
        launcher.telemetry = TelemetryFile(program.telemetry)
    client.subscribe_topic(topic, lambda event: launcher.reports.put(event[1]))
    try:
        return launcher.drive()
    except _Stopped:
        return {}
    finally:
        client.unsubscribe_topic(topic)


@dataclass
class _Launcher:
    """One program, from its first process group to its last."""

    client: Client
    program: Program
    observer: TrainingObserver
    stopping: Callable[[], bool]
    topic: str  # of the reports of the ranks
    reports: queue.SimpleQueue[Mapping[str, Any]] = field(default_factory=queue.SimpleQueue)
    furthest: tuple[float, int] = (0.0, 0)  # epoch and step that the program has reported
    excluded: set[str] = field(default_factory=set)  # workers that did not end their ranks
    workers_checked: float = 0.0
    telemetry: TelemetryFile | None = None
    # the latest process group
    attempt: int = 0
    placements: tuple[RankPlacement, ...] = ()
    begun: set[int] = field(default_factory=set)  # ranks
    endings: dict[int, RankEnding] = field(default_factory=dict)  # by rank
    futures: list[Future] = field(default_factory=list)

    def drive(self) -> Mapping[str, Any]:
        program = self.program
        message = self.observer.message
        self.placements = self._wait_for_workers()
        if len(self.placements) < program.ranks:
            message(
                f"{len(self.placements)} of {program.ranks} ranks share each step: there are no "
                "more workers."
            )
        self._require_memory()
        failures, furthest = 0, self.furthest
        while (failure := self._run_group()) is not None:
            if self.furthest > furthest:
                failures, furthest = 0, self.furthest
            failures += 1
            message(f"Rank {failure.rank} failed first: {failure.reason}")
            for line in failure.lines:
                message(f"  {line}")
            if failure.permanent or failures > program.restarts:
                raise ProcessGroupError(
                    f"Training '{program.name}' failed: {self.placements[failure.rank]}: "
                    f"{failure.reason}. The output of the ranks is in '{program.folder / 'logs'}'. "
                    "What was saved is kept: run the same command again to resume from it."
                )
            self.placements = self._wait_for_workers()
            message(f"Starting again with {len(self.placements)} of {program.ranks} ranks.")
        return self.endings[0].measured

    def _wait_for_workers(self) -> tuple[RankPlacement, ...]:
        """Workers for all ranks, or for as many as may go on and have arrived in time."""
        planned = self.program.ranks
        expected = min(planned, self.program.workers or planned)
        deadline = time.monotonic() + self.program.patience
        while True:
            addresses = list(workers(self.client))
            replies = self.client.run(worker.inventory, workers=addresses, on_error="ignore")
            all_hosts: list[RankHost] = list(replies.values())
            # ranks avoid the workers that only score, where there are others
            suitable = [host for host in all_hosts if host.offers_gpu] or all_hosts
            hosts = [host for host in suitable if host.address not in self.excluded]
            is_late = time.monotonic() > deadline
            if len(hosts) >= expected or (len(hosts) >= self.program.least and is_late):
                return place_ranks(hosts, planned)
            if time.monotonic() > deadline + STOP:
                raise ClusterLostError(
                    f"{len(hosts)} of {planned} workers are there to train '{self.program.name}' "
                    "on. Run the same command again to resume, with fewer ranks or more workers."
                )
            if self.stopping():
                raise _Stopped
            time.sleep(POLL)

    def _require_memory(self) -> None:
        """Check that each machine has the memory for its ranks; ranks on a GPU are not checked."""
        for placement in self.placements:
            host = placement.host
            needed = placement.neighbours * self.program.memory
            if placement.gpu is None and needed > host.available:
                raise ConfigError(
                    f"{placement.neighbours} ranks on {host.node} need about "
                    f"{needed / 2**30:.1f} GiB, {host.available / 2**30:.1f} GiB are free. Lower "
                    "'batch' (and raise 'accumulate'), set activation_checkpointing, or use fewer "
                    "ranks per node."
                )

    def _run_group(self) -> RankEnding | None:
        """Run one process group to its end; return the rank that failed first, None if it
        succeeded.
        """
        self.attempt += 1
        self.observer.message(rank_table(self.placements).as_text())
        self.begun, self.endings = set(), {}
        name = f"{self.topic}-{self.attempt}"  # ranks of an earlier attempt must not meet them
        address = self.placements[0].host.address
        on_leader: dict[str, Any] = {"workers": [address], "pure": False, "priority": 1}
        store = self.client.submit(
            worker.open_store, name, address, self.program.timeout, **on_leader
        )
        try:
            self._start(store)
            self._wait()
        finally:
            self._stop()
            if address in workers(self.client):
                fire_and_forget(self.client.submit(worker.close_store, name, **on_leader))
        return first_failure(self.endings.values())

    def _start(self, store: Future) -> None:
        directory = str(Path.cwd())
        self.futures = []
        for rank, placement in enumerate(self.placements):
            spec = RankSpec(
                self.program, self.placements, rank, self.topic, self.attempt, directory
            )
            future = self.client.submit(
                worker.run_rank,
                spec,
                store,
                key=spec.key,
                workers=[placement.host.address],
                resources={"GPU": 1} if placement.host.offers_gpu else None,
                priority=1,  # before units that wait for this worker
                pure=False,
            )
            self.futures.append(future)

    def _wait(self) -> None:
        """Wait until all ranks have ended, or one has failed."""
        while self._running():
            self._update(POLL)
            if self.stopping():
                raise _Stopped
            if first_failure(self.endings.values()):
                self._update(GRACE)
                return

    def _running(self) -> set[int]:
        return set(range(len(self.placements))) - self.endings.keys()

    def _stop(self) -> None:
        """End all ranks, and exclude the workers that do not confirm it."""
        self.client.cancel(self.futures, force=True)
        deadline = time.monotonic() + STOP
        while (unanswered := self._running() & self.begun) and time.monotonic() < deadline:
            self._update(POLL)
        self.excluded = {self.placements[rank].host.address for rank in unanswered}
        for rank in self._running():
            reason = "it did not start"
            if rank in unanswered:
                reason = f"its worker did not answer in {STOP:.0f} s"
            self.endings[rank] = RankEnding(rank, Cause.MISSING, reason)

    def _update(self, seconds: float) -> None:
        """Handle the reports of the next seconds, then check the workers of the ranks."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._handle(self.reports.get(timeout=remaining))
        if time.monotonic() - self.workers_checked < CHECK_WORKERS:
            return
        self.workers_checked = time.monotonic()
        present = workers(self.client)
        running = self._running()
        if self.telemetry:
            metrics = {str(info["name"]): info["metrics"] for info in present.values()}
            doing = {self.placements[rank].host.name: PROCESS_GROUP for rank in running}
            self.telemetry.add(time.time(), metrics, doing)
        latest = max((info["last_seen"] for info in present.values()), default=0.0)
        for rank in running:
            info = present.get(self.placements[rank].host.address)
            future = self.futures[rank]
            if info is None:
                reason = "its worker was lost"
            elif future.status == "error":
                reason = f"its worker failed: {future.exception()!r}"
            elif latest - info["last_seen"] > self.program.timeout:
                reason = f"its worker stopped reporting {latest - info['last_seen']:.0f} s ago"
            else:
                continue
            self.endings[rank] = RankEnding(rank, Cause.LOST, reason)

    def _handle(self, report: Mapping[str, Any]) -> None:
        if report["attempt"] != self.attempt:
            return
        if "ending" in report:
            ending = RankEnding(**report["ending"])
            self.endings[ending.rank] = ending
        elif "begun" in report:
            self.begun.add(report["begun"])
        else:
            progress = Progress(**report["progress"])
            # a bar of each epoch begins again
            self.furthest = max(self.furthest, (progress.numbers.get("epoch", 0.0), progress.step))
            self.observer.progressed(self.program, progress)
