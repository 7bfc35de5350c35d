"""What runs in the driver: it starts the ranks of a program, watches them, and starts them again on
failure.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from distributed import Client, Future, fire_and_forget

from daskmetrics.core.errors import ClusterLostError, ConfigError, DaskmetricsError
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetryFile
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import (
    Program,
    Progress,
    RankFailure,
    RankHost,
    RankPlacement,
    RankSpec,
    RankState,
    first_failure,
    place_ranks,
    rank_table,
)

POLL = 0.25  # seconds between two checks of the reports
CHECK_WORKERS = 1.0  # seconds between two requests for the list of workers
GRACE = 1.0  # seconds to receive the errors of other ranks before the failed rank is named
STORE_OPENS = 600.0  # seconds until a worker that is busy with other work opens the store
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
        with suppress(_Stopped):
            launcher.drive()
    finally:
        client.unsubscribe_topic(topic)
    return launcher.measured


@dataclass
class _Launcher:
    """One program, from its first process group to its last."""

    client: Client
    program: Program
    observer: TrainingObserver
    stopping: Callable[[], bool]
    topic: str  # of the reports of the ranks
    telemetry: TelemetryFile | None = None
    reports: queue.SimpleQueue[Mapping[str, Any]] = field(default_factory=queue.SimpleQueue)
    furthest: tuple[float, int] = (0.0, 0)  # epoch and step that the program has reported
    measured: Mapping[str, Any] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)  # workers that did not end their ranks
    workers_checked: float = 0.0
    # the latest process group
    attempt: int = 0
    placements: tuple[RankPlacement, ...] = ()
    states: dict[int, RankState] = field(default_factory=dict)
    futures: list[Future] = field(default_factory=list)

    def drive(self) -> None:
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
            for line in self.states[failure.rank].lines:
                message(f"  {line}")
            if failure.permanent or failures > program.restarts:
                raise ProcessGroupError(
                    f"Training '{program.name}' failed: {self.placements[failure.rank]}: "
                    f"{failure.reason}. The output of the ranks is in '{program.folder / 'logs'}'. "
                    "What was saved is kept: run the same command again to resume from it."
                )
            self.placements = self._wait_for_workers()
            message(f"Starting again with {len(self.placements)} of {program.ranks} ranks.")

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

    def _run_group(self) -> RankFailure | None:
        """Run one process group to its end; None if it succeeded."""
        self.attempt += 1
        self.observer.message(rank_table(self.placements).as_text())
        now = time.monotonic()
        self.states = {rank.rank: RankState(rank.rank, now) for rank in self.placements}
        name = f"{self.topic}-{self.attempt}"  # ranks of an earlier attempt must not meet them
        leader: dict[str, Any] = {
            "workers": [self.placements[0].host.address],
            "pure": False,
            "priority": 1,
        }
        try:
            store = self.client.submit(
                worker.open_store, name, self.program.timeout, **leader
            ).result(STORE_OPENS)
        except Exception as error:  # whatever happened to the worker
            return RankFailure(0, f"its worker could not prepare ({type(error).__name__}: {error})")
        try:
            self._start(store)
            return self._wait()
        finally:
            self._stop()
            if leader["workers"][0] in workers(self.client):
                fire_and_forget(self.client.submit(worker.close_store, name, **leader))

    def _start(self, store: tuple[str, int]) -> None:
        directory = str(Path.cwd())
        self.futures = []
        for rank, placement in enumerate(self.placements):
            spec = RankSpec(
                self.program, self.placements, rank, self.topic, self.attempt, store, directory
            )
            future = self.client.submit(
                worker.run_rank,
                spec,
                key=spec.key,
                workers=[placement.host.address],
                resources={"GPU": 1} if placement.host.offers_gpu else None,
                priority=1,  # before units that wait for this worker
                pure=False,
            )
            self.futures.append(future)

    def _wait(self) -> RankFailure | None:
        """Wait until all ranks are done, or one has failed."""
        while any(state.code != 0 for state in self.states.values()):
            self._update(POLL)
            if self.stopping():
                raise _Stopped
            failure = self._failure()
            if failure is not None:
                self._update(GRACE)
                return self._failure() or failure
        return None

    def _failure(self) -> RankFailure | None:
        return first_failure(self.states.values(), time.monotonic(), self.program.timeout)

    def _running(self) -> list[RankPlacement]:
        return [rank for rank in self.placements if self.states[rank.rank].is_running]

    def _stop(self) -> None:
        """End all ranks, and exclude the workers that do not confirm it."""
        self.client.cancel(self.futures, force=True)
        deadline = time.monotonic() + STOP
        while (running := self._running()) and time.monotonic() < deadline:
            self._update(POLL)
        self.excluded = {rank.host.address for rank in running}

    def _update(self, seconds: float) -> None:
        """Handle the reports of the next seconds, then check which workers have left."""
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
            doing = {rank.host.name: PROCESS_GROUP for rank in running}
            self.telemetry.add(time.time(), metrics, doing)
        for rank in running:
            if rank.host.address not in present:
                self.states[rank.rank] = replace(self.states[rank.rank], lost=True)

    def _handle(self, report: Mapping[str, Any]) -> None:
        if report["attempt"] != self.attempt:
            return
        rank = report["rank"]
        state_fields = {of_state.name for of_state in fields(RankState)}
        changes = {name: value for name, value in report.items() if name in state_fields}
        # a report comes from the process, or from a worker that has started it
        changes |= {"heard": time.monotonic(), "began": True}
        self.states[rank] = replace(self.states[rank], **changes)
        if rank == 0:
            self.measured = report.get("measured", self.measured)
        if "progress" in report and rank == 0:
            progress = Progress(**report["progress"])
            # a bar of each epoch begins again
            self.furthest = max(self.furthest, (progress.numbers.get("epoch", 0.0), progress.step))
            self.observer.progressed(self.program, progress)
