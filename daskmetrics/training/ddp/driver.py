"""What runs in the driver: it starts the ranks of a program, watches them, and starts them again on
failure.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from distributed import Client, Future

from daskmetrics.core.errors import ClusterLostError, ConfigError, DaskmetricsError
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetryFile
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp._diagnosis import RankFailure, RankState, first_failure
from daskmetrics.training.ddp.ranks import (
    Program,
    Progress,
    RankHost,
    RankPlacement,
    RankSpec,
    place_ranks,
    rank_table,
)
from daskmetrics.training.recipe import DdpTraining

POLL = 0.25  # seconds between two checks of the reports
CHECK_WORKERS = 1.0  # seconds between two requests for the list of workers
GRACE = 1.0  # seconds to receive the errors of other ranks before the failed rank is named
STORE_OPENS = 600.0  # seconds until a worker that is busy with other work opens the store
STOP = 15.0  # seconds in which a worker must end its rank; a worker that does not is excluded

T = TypeVar("T")


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
) -> tuple[tuple[RankPlacement, ...], list[Mapping[str, Any]]]:
    """Run a program with one rank per worker to its end; return where the ranks were, and what each
    has measured.

    Any failure of a rank ends the process group. It starts again, with as many ranks as there are
    workers at that time, from what the program has saved. Repeated failures without a further step,
    or one that would occur again, raise `ProcessGroupError`. The ranks end once ``stopping`` says
    so.
    """
    launcher = _Launcher(client, program, observer, stopping)
    with suppress(_Stopped):
        launcher.drive()
    ranks = launcher.placements
    return ranks, [launcher.measured.get(rank.rank, {}) for rank in ranks]


def train(client: Client, training: DdpTraining, observer: TrainingObserver) -> None:
    """Train a suite with one rank per worker, up to the recipe's number of ranks; see `launch`.

    With an equal number of ranks, failures do not change a bit of the weights.
    """
    if not training.is_done:
        launch(client, training.program(), observer)


class _Launcher:
    """One program, from its first process group to its last."""

    def __init__(
        self,
        client: Client,
        program: Program,
        observer: TrainingObserver,
        stopping: Callable[[], bool],
    ) -> None:
        self.client = client
        self.program = program
        self.observer = observer
        self.stopping = stopping
        self.topic = f"train-{program.name}-{secrets.token_hex(4)}"
        self.attempts = 0
        self.furthest = (0.0, 0)  # epoch and step that the program has reported
        self.excluded: set[str] = set()
        self.placements: tuple[RankPlacement, ...] = ()  # of the latest attempt
        self.measured: dict[int, Mapping[str, Any]] = {}

    def drive(self) -> None:
        program, message = self.program, self.observer.message
        placements = self._wait_for_workers()
        if len(placements) < program.ranks:
            message(
                f"{len(placements)} of {program.ranks} ranks share each step: there are no more "
                "workers."
            )
        self._require_memory(placements)
        failures, furthest = 0, self.furthest
        while (failure := self.attempt(placements)) is not None:
            if self.furthest > furthest:
                failures, furthest = 0, self.furthest
            failures += 1
            message(f"Rank {failure.rank} failed first: {failure.reason}")
            for line in failure.lines:
                message(f"  {line}")
            if failure.permanent or failures > program.restarts:
                raise ProcessGroupError(
                    f"Training '{program.name}' failed: {placements[failure.rank]}: "
                    f"{failure.reason}. The output of the ranks is in '{program.folder / 'logs'}'. "
                    "What was saved is kept: run the same command again to resume from it."
                )
            placements = self._wait_for_workers()
            message(f"Starting again with {len(placements)} of {program.ranks} ranks.")

    def _require_memory(self, placements: Sequence[RankPlacement]) -> None:
        """Check that each machine has the memory for its ranks; ranks on a GPU are not checked."""
        for placement in placements:
            host = placement.host
            needed = placement.neighbours * self.program.memory
            if placement.gpu is None and needed > host.available:
                raise ConfigError(
                    f"{placement.neighbours} ranks on {host.node} need about "
                    f"{needed / 2**30:.1f} GiB, {host.available / 2**30:.1f} GiB are free. Lower "
                    "'batch' (and raise 'accumulate'), set activation_checkpointing, or use fewer "
                    "ranks per node."
                )

    def attempt(self, placements: Sequence[RankPlacement]) -> RankFailure | None:
        """Run one process group to its end; None if it succeeded."""
        program, address = self.program, placements[0].host.address
        self.attempts += 1
        self.placements = tuple(placements)
        self.observer.message(rank_table(placements).as_text())
        name = f"{self.topic}-{self.attempts}"  # ranks of an earlier attempt must not meet them
        try:
            store = self._call(
                worker.open_store, name, program.timeout, at=address, timeout=STORE_OPENS
            )
        except Exception as error:  # whatever happened to the worker
            return RankFailure(0, f"its worker could not prepare ({type(error).__name__}: {error})")
        here = str(Path.cwd())
        specs = [
            RankSpec(program, tuple(placements), rank, self.topic, self.attempts, store, here)
            for rank in range(len(placements))
        ]
        with _subscribed(self.client, self.topic) as reports:
            group = _ProcessGroup(self.client, specs, reports, self.observer, self.stopping)
            try:
                return group.wait()
            finally:
                self.measured = group.measured
                self.furthest = max(self.furthest, group.furthest)
                self.excluded = group.stop()
                if address in workers(self.client):
                    with suppress(Exception):  # the worker may be ending, too
                        self._call(worker.close_store, name, at=address, timeout=STOP)

    def _call(
        self, function: Callable[..., T], *args: object, at: str, timeout: float | None = None
    ) -> T:
        """Run a function on the worker with this address."""
        future = self.client.submit(function, *args, workers=[at], pure=False, priority=1)
        try:
            result: T = future.result(timeout)
            return result
        finally:
            future.release()

    def _wait_for_workers(self) -> tuple[RankPlacement, ...]:
        """Workers for all ranks, or for as many as may go on and have arrived in time."""
        planned = self.program.ranks
        expected = min(planned, self.program.workers or planned)
        deadline = time.monotonic() + self.program.patience
        while True:
            present = workers(self.client)
            # ranks avoid the workers that only score, where there are others
            addresses = [name for name in present if _has_gpu(present, name)] or list(present)
            replies = self.client.run(worker.inventory, workers=addresses, on_error="ignore")
            hosts: list[RankHost] = [
                host for host in replies.values() if host.address not in self.excluded
            ]
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


def _has_gpu(present: Mapping[str, Any], address: str) -> bool:
    """Whether a worker is there, and offers the resource GPU."""
    return bool(present.get(address, {}).get("resources", {}).get("GPU"))


class _ProcessGroup:
    """A process group that has been started."""

    def __init__(
        self,
        client: Client,
        specs: Sequence[RankSpec],
        reports: queue.SimpleQueue[Mapping[str, Any]],
        observer: TrainingObserver,
        stopping: Callable[[], bool],
    ) -> None:
        self.client = client
        self.program = specs[0].program
        self.stopping = stopping
        self.placements = specs[0].placements
        self.attempt = specs[0].attempt
        self.reports = reports
        self.observer = observer
        self.workers_checked = time.monotonic()
        self.states = {spec.rank: RankState(spec.rank, self.workers_checked) for spec in specs}
        self.measured: dict[int, Mapping[str, Any]] = {}
        self.furthest = (0.0, 0)
        self.lines: dict[int, tuple[str, ...]] = {}
        self.telemetry: TelemetryFile | None = None
        if self.program.telemetry:
            self.telemetry = TelemetryFile(self.program.telemetry)
        present = workers(client)
        self.futures: list[Future] = []
        for spec in specs:
            address = spec.placement.host.address
            resources = {"GPU": 1} if _has_gpu(present, address) else None
            self.futures.append(
                client.submit(
                    worker.run_rank,
                    spec,
                    key=spec.key,
                    workers=[address],
                    resources=resources,
                    priority=1,  # before units that wait for this worker
                    pure=False,
                )
            )

    def wait(self) -> RankFailure | None:
        """Wait until all ranks are done, or one has failed."""
        while not all(state.is_done for state in self.states.values()):
            self._update(POLL)
            if self.stopping():
                raise _Stopped
            if self._failure() is not None:
                self._update(GRACE)
                failure = self._failure()
                self.stop()  # then each rank's last lines are there
                return failure and replace(failure, lines=self.lines.get(failure.rank, ()))
        return None

    def stop(self) -> set[str]:
        """End all ranks; return the addresses of workers that did not confirm it."""
        self.client.cancel(self.futures, force=True)
        deadline = time.monotonic() + STOP
        while (running := self._running()) and time.monotonic() < deadline:
            self._update(POLL)
        return {placement.host.address for placement in running}

    def _running(self) -> list[RankPlacement]:
        """The ranks whose processes have not ended, as far as their workers have reported."""
        states = self.states
        return [
            rank
            for rank in self.placements
            if states[rank.rank].code is None and not states[rank.rank].lost
        ]

    def _failure(self) -> RankFailure | None:
        return first_failure(self.states.values(), time.monotonic(), self.program.timeout)

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
        if self.telemetry:
            metrics = {str(info["name"]): info["metrics"] for info in present.values()}
            doing = {
                rank.host.name: PROCESS_GROUP
                for rank in self.placements
                if self.states[rank.rank].code is None
            }
            self.telemetry.add(time.time(), metrics, doing)
        for rank in self._running():
            if rank.host.address not in present:
                self.states[rank.rank] = replace(self.states[rank.rank], lost=True)

    def _handle(self, report: Mapping[str, Any]) -> None:
        if report["attempt"] != self.attempt:
            return
        rank = report["rank"]
        names = ("step", "error", "of_partner", "failed", "permanent", "code")
        changes = {name: report[name] for name in names if name in report}
        # a report comes from the process, or from a worker that has started it
        self.states[rank] = replace(
            self.states[rank], heard=time.monotonic(), began=True, **changes
        )
        if "lines" in report:
            self.lines[rank] = tuple(report["lines"])
        if "measured" in report:
            self.measured[rank] = report["measured"]
        if "progress" in report and rank == 0:
            progress = Progress(**report["progress"])
            # a bar of each epoch begins again
            self.furthest = max(self.furthest, (progress.numbers.get("epoch", 0.0), progress.step))
            self.observer.progressed(self.program, progress)


@contextmanager
def _subscribed(client: Client, topic: str) -> Iterator[queue.SimpleQueue[Mapping[str, Any]]]:
    """The reports of ranks on a topic, as they arrive."""
    reports: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    client.subscribe_topic(topic, lambda event: reports.put(event[1]))
    try:
        yield reports
    finally:
        client.unsubscribe_topic(topic)
