"""What runs in the driver: it starts a process group, watches it, and restarts it from its last
state on failure.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from distributed import Client, Future

from daskmetrics.core.errors import ClusterLostError, DaskmetricsError
from daskmetrics.core.machine import workers
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetryFile
from daskmetrics.training import suite as suite
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp._diagnosis import RankFailure, RankState, first_failure
from daskmetrics.training.ddp.ranks import (
    DdpTraining,
    RankHost,
    RankPlacement,
    RankSpec,
    place_ranks,
    rank_table,
)
from daskmetrics.training.estimate import require_memory

POLL = 0.25  # seconds between two checks of the reports
CHECK_WORKERS = 1.0  # seconds between two requests for the list of workers
GRACE = 1.0  # seconds to receive the errors of other ranks before the failed rank is named
RESTARTS = 3  # failures in a row, without a new state, before training stops
STOP = 15.0  # seconds in which a worker must end its rank; a worker that does not is excluded

T = TypeVar("T")


class TrainingObserver(Protocol):
    """Receives the progress of a training."""

    def message(self, text: str) -> None:
        """A line for the user."""

    def step_done(self, training: DdpTraining, report: Mapping[str, Any]) -> None:
        """Steps up to ``took`` were taken; also ``loss``, ``rate`` in samples per second, and
        ``memory``.
        """


class ProcessGroupError(DaskmetricsError):
    """A process group failed more often than `RESTARTS` allows; training resumes from its
    last state.
    """


def train(client: Client, training: DdpTraining, observer: TrainingObserver) -> None:
    """Train a suite with one rank per worker, up to the recipe's number of ranks.

    Any failure of a rank ends the process group; it restarts from its last state with as many ranks
    as there are workers at that time. With an equal number of ranks, failures do not change a bit
    of the weights. Repeated failures without a new state, or one that would occur again, raise
    `ProcessGroupError`.
    """
    if training.is_done:
        return
    driver = _DdpDriver(client, training, observer)
    try:
        driver.drive()
    finally:
        driver.close()


def measure(
    client: Client, training: DdpTraining, observer: TrainingObserver
) -> tuple[tuple[RankPlacement, ...], list[Mapping[str, Any]]]:
    """The placement of the ranks, and what each measured, by rank; the training names the probe.

    Raises
    ------
    ProcessGroupError
        If a rank fails.
    """
    driver = _DdpDriver(client, training, observer)
    try:
        placements = driver.place()
        failure = driver.attempt(placements)
        if failure:
            raise ProcessGroupError(
                f"The ranks could not measure '{training.name}': {placements[failure.rank]}: "
                f"{failure.reason}. Their output is in '{training.folder / 'logs'}'."
            )
        return placements, [driver.measured[rank] for rank in range(len(placements))]
    finally:
        driver.close()


class _DdpDriver:
    """One training, from its first process group to its last."""

    def __init__(self, client: Client, training: DdpTraining, observer: TrainingObserver) -> None:
        self.client = client
        self.training = training
        self.observer = observer
        self.topic = f"train-{training.name}-{secrets.token_hex(4)}"
        self.attempts = 0
        self.stores: set[str] = set()
        self.excluded: set[str] = set()
        self.measured: dict[int, Mapping[str, Any]] = {}

    def place(self) -> tuple[RankPlacement, ...]:
        """Where the ranks run, once their workers have arrived and have the memory for them."""
        planned = self.training.recipe.ranks
        placements = self._wait_for_workers()
        if len(placements) < planned:
            self.observer.message(
                f"{len(placements)} of {planned} ranks share each step: there are no more workers."
            )
        require_memory(self.training.recipe, placements)
        return placements

    def drive(self) -> None:
        training = self.training
        message = self.observer.message
        placements = self.place()
        failures = 0
        saved_step = suite.newest_step(training.folder)
        while (failure := self.attempt(placements)) is not None:
            step_before, saved_step = saved_step, suite.newest_step(training.folder)
            if saved_step != step_before:
                failures = 0
            failures += 1
            message(f"Rank {failure.rank} failed first: {failure.reason}")
            if failure.permanent or failures > RESTARTS:
                raise ProcessGroupError(
                    f"Training '{training.name}' failed: {placements[failure.rank]}: "
                    f"{failure.reason}. The output of the ranks is in '{training.folder / 'logs'}'. "
                    f"The state of step {saved_step} is kept: run the same command again to resume "
                    "from it."
                )
            placements = self._wait_for_workers()
            message(
                f"Restarting from step {saved_step} with {len(placements)} of "
                f"{training.recipe.ranks} ranks."
            )

    def close(self) -> None:
        """Close the stores that workers hold for this training."""
        for address in self.stores & set(workers(self.client)):
            with suppress(Exception):  # the worker may be ending, too
                self._call(worker.close_store, self.topic, at=address, timeout=STOP)

    def attempt(self, placements: Sequence[RankPlacement]) -> RankFailure | None:
        """Run one process group to its end; None if it succeeded."""
        training, address = self.training, placements[0].host.address
        self.attempts += 1
        self.observer.message(rank_table(placements).as_text())
        try:
            self._call(suite.write_corpus, training.recipe, training.folder, at=address)
            store = None
            if len(placements) > 1:
                self.stores.add(address)
                store = self._call(
                    worker.open_store, self.topic, training.ddp.timeout, at=address, timeout=120
                )
        except DaskmetricsError:  # the user's corpus cannot be read
            raise
        except Exception as error:  # whatever happened to the worker
            return RankFailure(0, f"its worker could not prepare ({type(error).__name__}: {error})")
        specs = [
            RankSpec(training, tuple(placements), rank, self.topic, self.attempts, store)
            for rank in range(len(placements))
        ]
        with _subscribed(self.client, self.topic) as reports:
            group = _ProcessGroup(self.client, specs, reports, self.observer)
            try:
                return group.wait()
            finally:
                self.measured = group.measured
                self.excluded = group.stop()

    def _call(
        self, function: Callable[..., T], *args: object, at: str, timeout: float | None = None
    ) -> T:
        """Run a function on the worker with this address."""
        future = self.client.submit(function, *args, workers=[at], pure=False)
        try:
            result: T = future.result(timeout)
            return result
        finally:
            future.release()

    def _wait_for_workers(self) -> tuple[RankPlacement, ...]:
        """Workers for all ranks, or for as many as have arrived after ``ddp.patience`` seconds."""
        planned = self.training.recipe.ranks
        expected = min(planned, self.training.workers or planned)
        deadline = time.monotonic() + self.training.ddp.patience
        while True:
            present = workers(self.client)
            # ranks avoid the workers that only score, where there are others
            addresses = [name for name in present if _has_gpu(present, name)] or list(present)
            replies = self.client.run(worker.inventory, workers=addresses, on_error="ignore")
            hosts: list[RankHost] = [
                host for host in replies.values() if host.address not in self.excluded
            ]
            if len(hosts) >= expected or (hosts and time.monotonic() > deadline):
                return place_ranks(hosts, planned)
            if time.monotonic() > deadline + STOP:
                raise ClusterLostError(
                    "No worker is left to train on. Run the same command again to resume."
                )
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
    ) -> None:
        self.client = client
        self.training = specs[0].training
        self.placements = specs[0].placements
        self.attempt = specs[0].attempt
        self.reports = reports
        self.observer = observer
        self.workers_checked = time.monotonic()
        self.states = {spec.rank: RankState(spec.rank, self.workers_checked) for spec in specs}
        self.measured: dict[int, Mapping[str, Any]] = {}
        self.telemetry: TelemetryFile | None = None
        if self.training.telemetry:
            self.telemetry = TelemetryFile(self.training.telemetry)
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
                    pure=False,
                )
            )

    def wait(self) -> RankFailure | None:
        """Wait until all ranks are done, or one has failed."""
        while not all(state.is_done for state in self.states.values()):
            self._update(POLL)
            if self._failure() is not None:
                self._update(GRACE)
                return self._failure()
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
        return first_failure(self.states.values(), time.monotonic(), self.training.ddp.timeout)

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
        names = ("step", "phase", "error", "failed", "permanent", "code")
        changes = {name: report[name] for name in names if name in report}
        self.states[rank] = replace(self.states[rank], heard=time.monotonic(), **changes)
        if "measured" in report:
            self.measured[rank] = report["measured"]
        if "took" in report and rank == 0:
            self.observer.step_done(self.training, report)


@contextmanager
def _subscribed(client: Client, topic: str) -> Iterator[queue.SimpleQueue[Mapping[str, Any]]]:
    """The reports of ranks on a topic, as they arrive."""
    reports: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    client.subscribe_topic(topic, lambda event: reports.put(event[1]))
    try:
        yield reports
    finally:
        client.unsubscribe_topic(topic)
