"""What runs in the driver: it starts the ranks of a program, watches them, and starts them again on
failure.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from distributed import Client, Future, fire_and_forget

from daskmetrics.core.errors import ClusterLostError, ConfigError, DaskmetricsError
from daskmetrics.core.machine import replace_worker, workers
from daskmetrics.core.telemetry import PROCESS_GROUP, TelemetryFile
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp.ranks import (
    Cause,
    Program,
    Progress,
    RankEnding,
    RankHost,
    RankSpec,
    first_failure,
    gpu_of,
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
    failures: int = 0  # since then
    excluded: set[str] = field(default_factory=set)  # workers that hung, or did not end their ranks
    workers_checked: float = 0.0
    seen: dict[str, float] = field(default_factory=dict)  # last heartbeats of workers
    silent: dict[str, float] = field(default_factory=dict)  # seconds without another one
    telemetry: TelemetryFile | None = None
    # the latest process group
    attempt: int = 0
    hosts: tuple[RankHost, ...] = ()  # by rank
    begun: set[int] = field(default_factory=set)  # ranks
    endings: dict[int, RankEnding] = field(default_factory=dict)  # by rank
    futures: list[Future] = field(default_factory=list)

    def drive(self) -> Mapping[str, Any]:
        program = self.program
        message = self.observer.message
        self.hosts = self._wait_for_workers()
        if len(self.hosts) < program.ranks:
            message(
                f"{len(self.hosts)} of {program.ranks} ranks share each step: there are no more "
                "workers."
            )
        self._require_memory()
        while (failure := self._run_group()) is not None:
            self.failures += 1
            message(f"Rank {failure.rank} failed first: {failure.reason}")
            for line in failure.lines:
                message(f"  {line}")
            alike = [each for each in self.endings.values() if each.cause == failure.cause]
            if any(each.permanent for each in alike) or self.failures > program.restarts:
                host = self.hosts[failure.rank]
                gpu = gpu_of(self.hosts, failure.rank) or "none"
                raise ProcessGroupError(
                    f"Training '{program.name}' failed: rank {failure.rank}: node {host.node}, GPU "
                    f"{gpu}, worker {host.name}: {failure.reason}. The output of the ranks is in "
                    f"'{program.folder / 'logs'}'. What was saved is kept: run the same command "
                    "again to resume from it."
                )
            self.hosts = self._wait_for_workers()
            message(f"Starting again with {len(self.hosts)} of {program.ranks} ranks.")
        return self.endings[0].measured

    def _wait_for_workers(self) -> tuple[RankHost, ...]:
        """Workers for all ranks, or for as many as may go on and have arrived in time."""
        planned = self.program.ranks
        expected = min(planned, self.program.workers or planned)
        deadline = time.monotonic() + self.program.patience
        while True:
            present = self._present()
            # ranks avoid the workers that only score, where there are others
            with_gpu = [each for each, info in present.items() if info["resources"].get("GPU")]
            # a worker that hangs would never reply
            asked = [
                address
                for address in with_gpu or present
                if address not in self.excluded and self.silent[address] < STOP
            ]
            replies = self.client.run(worker.inventory, workers=asked, on_error="ignore")
            hosts: list[RankHost] = list(replies.values())
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
        ranks = Counter(host.node for host in self.hosts)
        for host in self.hosts:
            needed = ranks[host.node] * self.program.memory
            if not host.gpus and needed > host.available:
                raise ConfigError(
                    f"{ranks[host.node]} ranks on {host.node} need about {needed / 2**30:.1f} GiB, "
                    f"{host.available / 2**30:.1f} GiB are free. Lower 'batch' (and raise "
                    "'accumulate'), set activation_checkpointing, or use fewer ranks per node."
                )

    def _run_group(self) -> RankEnding | None:
        """Run one process group to its end; return the rank that failed first, None if it
        succeeded.
        """
        self.attempt += 1
        self.observer.message(rank_table(self.hosts).as_text())
        self.begun = set()
        self.endings = {}
        self.excluded = set()
        name = f"{self.topic}-{self.attempt}"  # ranks of an earlier attempt must not meet them
        address = self.hosts[0].address
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
        for rank, host in enumerate(self.hosts):
            spec = RankSpec(self.program, self.hosts, rank, self.topic, self.attempt, directory)
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
        return set(range(len(self.hosts))) - self.endings.keys()

    def _stop(self) -> None:
        """End all ranks; replace the workers that hang or do not confirm it."""
        self.client.cancel(self.futures, force=True)
        deadline = time.monotonic() + STOP
        while (unanswered := self._running() & self.begun) and time.monotonic() < deadline:
            self._update(POLL)
        self.excluded |= {self.hosts[rank].address for rank in unanswered}
        for rank in self._running():
            reason = "it did not start"
            if rank in unanswered:
                reason = f"its worker did not answer in {STOP:.0f} s"
            self.endings[rank] = RankEnding(rank, Cause.MISSING, reason)
        for address in self.excluded & workers(self.client).keys():
            # not awaited: a node that is gone does not answer
            self.client.loop.add_callback(replace_worker, self.client, address)

    def _update(self, seconds: float) -> None:
        """Handle the reports of the next seconds, then check the workers of the ranks."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._handle(self.reports.get(timeout=remaining))
        if time.monotonic() - self.workers_checked < CHECK_WORKERS:
            return
        running = self._running()
        # before the list of workers: the tasks of a lost one fail, too
        failed = {rank for rank in running if self.futures[rank].status == "error"}
        present = self._present()
        if self.telemetry:
            metrics = {str(info["name"]): info["metrics"] for info in present.values()}
            doing = {self.hosts[rank].name: PROCESS_GROUP for rank in running}
            self.telemetry.add(time.time(), metrics, doing)
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
        """The workers that the scheduler knows; for how long each is silent is noted."""
        now = time.monotonic()
        # a driver that was stopped itself has heard of none meanwhile
        elapsed = min(now - self.workers_checked, 2 * CHECK_WORKERS)
        self.workers_checked = now
        present = workers(self.client)
        for address, info in present.items():
            is_silent = self.seen.get(address) == info["last_seen"]
            self.silent[address] = self.silent[address] + elapsed if is_silent else 0.0
            self.seen[address] = info["last_seen"]
        return present

    def _handle(self, report: Mapping[str, Any]) -> None:
        if report["attempt"] != self.attempt:
            return
        if "ending" in report:
            ending = RankEnding(**report["ending"])
            # a worker that hung may report after it was given up
            self.endings.setdefault(ending.rank, ending)
        elif "begun" in report:
            self.begun.add(report["begun"])
        else:
            progress = Progress(**report["progress"])
            # a bar of each epoch begins again
            reached = progress.numbers.get("epoch", 0.0), progress.step
            if reached > self.furthest:
                self.furthest = reached
                self.failures = 0
            self.observer.progressed(self.program, progress)
