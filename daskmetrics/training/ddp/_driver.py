"""What runs in the driver: it starts a process group, watches it, and restarts it from its last state on failure."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from distributed import Client, Future

from daskmetrics.core._machine import workers
from daskmetrics.core._telemetry import PROCESS_GROUP, TelemetryFile
from daskmetrics.core.errors import ClusterLostError, DaskmetricsError
from daskmetrics.training import _suite as suite
from daskmetrics.training._estimate import require_memory
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp._diagnosis import RankFailure, RankState, first_failure
from daskmetrics.training.ddp._ranks import (
    DdpTraining,
    RankHost,
    RankPlacement,
    RankSpec,
    place_ranks,
    rank_specs,
    rank_table,
)

POLL = 0.25  # seconds between two checks of the reports
CHECK_WORKERS = 1.0  # seconds between two requests for the list of workers
GRACE = 1.0  # seconds to receive the errors of other ranks before the failed rank is named
STOP = 15.0  # seconds in which a worker must end its rank; a worker that does not is excluded

T = TypeVar("T")


class TrainingObserver(Protocol):
    """Receives the progress of a training."""

    def message(self, text: str) -> None:
        """A line for the user."""

    def step_done(self, training: DdpTraining, report: Mapping[str, Any]) -> None:
        """Steps up to ``took`` were taken; also ``loss``, ``rate`` in samples per second, and ``memory``."""


class ProcessGroupError(DaskmetricsError):
    """A process group failed more often than ``ddp.restarts`` allows; training resumes from its last state."""


def train(client: Client, training: DdpTraining, observer: TrainingObserver) -> None:
    """Train a suite with one rank per worker, up to the recipe's number of ranks.

    Any failure of a rank ends the process group; it restarts from its last state with as many ranks as there are
    workers at that time. With an equal number of ranks, failures do not change a bit of the weights. Repeated failures
    without a new state, or one that would occur again, raise `ProcessGroupError`.
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
        if failure := driver.attempt(placements):
            raise ProcessGroupError(
                f"The ranks could not measure '{training.name}': {placements[failure.rank]}: {failure.reason}. "
                f"Their output is in '{training.folder / 'logs'}'."
            )
        return placements, [driver.measured[place.rank] for place in placements]
    finally:
        driver.close()


class _DdpDriver:
    """One training, from its first process group to its last."""

    def __init__(self, client: Client, training: DdpTraining, observer: TrainingObserver) -> None:
        self.client, self.training, self.observer = client, training, observer
        self.topic = f"train-{training.name}-{secrets.token_hex(4)}"
        self.attempts = 0
        self.stores: set[str] = set()
        self.excluded: set[str] = set()
        self.measured: dict[int, Mapping[str, Any]] = {}

    def place(self) -> tuple[RankPlacement, ...]:
        """Where the ranks run, once their workers have arrived and have the memory for them."""
        planned, message = self.training.recipe.ranks, self.observer.message
        placements = self._wait_for_workers()
        if len(placements) < planned:
            message(f"{len(placements)} of {planned} ranks share each step: there are no more workers.")
        require_memory(self.training.recipe, placements)
        return placements

    def drive(self) -> None:
        training, message = self.training, self.observer.message
        planned = training.recipe.ranks
        placements = self.place()
        failures, saved = 0, suite.newest_step(training.folder)
        while (failure := self.attempt(placements)) is not None:
            now = suite.newest_step(training.folder)
            failures, saved = failures + 1 if now == saved else 1, now
            message(f"Rank {failure.rank} failed first: {failure.reason}")
            if failure.permanent or failures > training.ddp.restarts:
                raise ProcessGroupError(
                    f"Training '{training.name}' failed: {placements[failure.rank]}: {failure.reason}. The output of "
                    f"the ranks is in '{training.folder / 'logs'}'. The state of step {now} is kept: run the same "
                    "command again to resume from it."
                )
            placements = self._wait_for_workers()
            message(f"Restarting from step {now} with {len(placements)} of {planned} ranks.")

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
                store = self._call(worker.open_store, self.topic, training.ddp.timeout, at=address, timeout=120)
        except DaskmetricsError:  # the user's corpus cannot be read
            raise
        except Exception as error:  # whatever happened to the worker
            return RankFailure(0, f"its worker could not prepare ({type(error).__name__}: {error})")
        specs = rank_specs(training, placements, self.topic, self.attempts, store)
        with _subscribed(self.client, self.topic) as reports:
            group = _ProcessGroup(self.client, training, specs, placements, reports, self.observer)
            try:
                return group.wait()
            finally:
                self.measured = group.measured
                self.excluded = group.stop()

    def _call(self, function: Callable[..., T], *args: object, at: str, timeout: float | None = None) -> T:
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
        until = time.monotonic() + self.training.ddp.patience
        while True:
            known = workers(self.client)
            # ranks avoid the workers that only score, where there are others
            able = [address for address, about in known.items() if about["resources"].get("GPU")] or list(known)
            replies = self.client.run(worker.inventory, workers=able, on_error="ignore")
            hosts: list[RankHost] = [host for host in replies.values() if host.address not in self.excluded]
            if len(hosts) >= expected or (hosts and time.monotonic() > until):
                return place_ranks(hosts, planned)
            if time.monotonic() > until + STOP:
                raise ClusterLostError("No worker is left to train on. Run the same command again to resume.")
            time.sleep(POLL)


class _ProcessGroup:
    """A process group that has been started."""

    def __init__(
        self,
        client: Client,
        training: DdpTraining,
        specs: Sequence[RankSpec],
        placements: Sequence[RankPlacement],
        reports: queue.SimpleQueue[Mapping[str, Any]],
        observer: TrainingObserver,
    ) -> None:
        self.client, self.training, self.placements = client, training, placements
        self.reports, self.observer = reports, observer
        self.workers_checked = now = time.monotonic()
        self.states = {spec.rank: RankState(spec.rank, now) for spec in specs}
        self.attempt = specs[0].attempt
        self.measured: dict[int, Mapping[str, Any]] = {}
        self.telemetry = TelemetryFile(training.telemetry) if training.telemetry else None
        known = workers(client)
        self.futures: list[Future] = [
            client.submit(
                worker.run_rank,
                spec,
                key=spec.key,
                workers=[place.host.address],
                resources={"GPU": 1} if known.get(place.host.address, {}).get("resources", {}).get("GPU") else None,
                pure=False,
            )
            for spec, place in zip(specs, placements, strict=True)
        ]

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
        until = time.monotonic() + STOP
        while (rest := [s for s in self.states.values() if s.code is None and not s.lost]) and time.monotonic() < until:
            self._update(POLL)
        return {self.placements[state.rank].host.address for state in rest}

    def _failure(self) -> RankFailure | None:
        return first_failure(self.states.values(), time.monotonic(), self.training.ddp.timeout)

    def _update(self, seconds: float) -> None:
        """Handle the reports of the next seconds, then check which workers have left."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._handle(self.reports.get(timeout=left))
        if time.monotonic() - self.workers_checked < CHECK_WORKERS:
            return
        self.workers_checked = time.monotonic()
        known = workers(self.client)
        if self.telemetry:
            doing = {p.host.name: PROCESS_GROUP for p in self.placements if self.states[p.rank].code is None}
            self.telemetry.add(time.time(), {str(each["name"]): each["metrics"] for each in known.values()}, doing)
        for rank, state in self.states.items():
            if state.code is None and self.placements[rank].host.address not in known:
                self.states[rank] = replace(state, lost=True)

    def _handle(self, report: Mapping[str, Any]) -> None:
        if report["attempt"] != self.attempt:
            return
        names = ("step", "phase", "error", "failed", "permanent", "code")
        news = {name: report[name] for name in names if name in report}
        self.states[report["rank"]] = replace(self.states[report["rank"]], heard=time.monotonic(), **news)
        if "measured" in report:
            self.measured[report["rank"]] = report["measured"]
        if "took" in report and report["rank"] == 0:
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
