"""What runs in the driver: a gang is started, watched, and after a failure started again from its last state."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from distributed import Client, Future

from daskmetrics.config import DDP, Recipe
from daskmetrics.core.errors import ClusterLostError, DaskmetricsError
from daskmetrics.training import _suite as suite
from daskmetrics.training._estimate import require_memory
from daskmetrics.training.ddp import _worker as worker
from daskmetrics.training.ddp._diagnosis import Blame, Sign, blame
from daskmetrics.training.ddp._ranks import Host, Order, Place, orders, places

LISTEN = 0.25  # seconds between two judgements of what was heard
LOOK = 1.0  # seconds between two questions for the workers that are there
GRACE = 1.0  # seconds to hear of other ranks' failures before one is blamed
STOP = 15.0  # seconds in which a worker has ended its rank, or is passed over


@dataclass(frozen=True)
class Job:
    """A suite to be trained.

    Attributes
    ----------
    name : str
        Of the model.
    recipe : Recipe
    folder : Path
        The suite's.
    gang : DDP
    workers : int or None
        How many there can be; ranks beyond them are not waited for.
    """

    name: str
    recipe: Recipe
    folder: Path
    gang: DDP
    workers: int | None = None

    @property
    def expected(self) -> int:
        """Ranks that are worth waiting for."""
        return min(self.recipe.ranks, self.workers or self.recipe.ranks)

    @property
    def revisions(self) -> tuple[str, ...]:
        return suite.revisions(self.recipe)

    @property
    def is_done(self) -> bool:
        return all(suite.is_complete(self.folder, revision) for revision in self.revisions)


class Watch(Protocol):
    """Who is told how a training goes."""

    def say(self, text: str) -> None:
        """A line for the user."""

    def took(self, job: Job, facts: Mapping[str, Any]) -> None:
        """Steps were taken: ``took`` is the last of them; with ``loss``, ``rate`` in samples per second, ``memory``."""


class GangError(DaskmetricsError):
    """A gang failed more often than it may; its last state is kept, and training goes on from it."""


def train(client: Client, job: Job, watch: Watch) -> None:
    """Train a suite by one rank per worker, up to the recipe's number of ranks.

    Whatever ends a rank ends the gang; it starts again from its last state, with as many ranks as there are workers
    then. The weights are the same to the last bit whatever happened, as long as the number of ranks is the same.

    Parameters
    ----------
    client : distributed.Client
    job : Job
    watch : Watch

    Raises
    ------
    ConfigError
        If the corpus cannot be read, or a machine lacks the memory.
    GangError
        If the gang fails time and again without a state saved between, or of what would fail again.
    ClusterLostError
        If there is no worker.
    """
    if job.is_done:
        return
    driver = _Driver(client, job, watch)
    try:
        driver.drive()
    finally:
        driver.close()


class _Driver:
    def __init__(self, client: Client, job: Job, watch: Watch) -> None:
        self.client, self.job, self.watch = client, job, watch
        self.topic = f"train-{job.name}-{secrets.token_hex(4)}"
        self.attempt = 0
        self.stores: set[str] = set()
        self.shunned: set[str] = set()

    def drive(self) -> None:
        where = self._gather()
        self._tell_inventory(where)
        if len(where) < self.job.recipe.ranks:
            self.watch.say(f"{len(where)} of {self.job.recipe.ranks} ranks share each step: there are no more workers.")
        require_memory(self.job.recipe, where)
        failures, saved = 0, suite.newest(self.job.folder)
        while (found := self._attempt(where)) is not None:
            now = suite.newest(self.job.folder)
            failures, saved = failures + 1 if now == saved else 1, now
            self.watch.say(f"Rank {found.rank} failed first: {found.reason}")
            if found.permanent or failures > self.job.gang.restarts:
                logs = self.job.folder / "logs"
                raise GangError(
                    f"Training '{self.job.name}' failed: {where[found.rank]}: {found.reason}. What the ranks printed "
                    f"lies in '{logs}'. The state of step {now} is kept: run the same command again to go on from it."
                )
            where = self._gather()
            self.watch.say(f"Starting again from step {now} with {len(where)} of {self.job.recipe.ranks} ranks.")

    def close(self) -> None:
        """Let go of what the workers hold for this training."""
        for address in self.stores & set(_workers(self.client)):
            with suppress(Exception):  # the worker may be going, too
                self._call(worker.close_store, self.topic, at=address, timeout=STOP)

    def _attempt(self, where: Sequence[Place]) -> Blame | None:
        """One gang from its start to its end; None if all went well."""
        self.attempt += 1
        for place in where:
            self.watch.say(f"  {place}")
        try:
            self._call(suite.write_corpus, self.job.recipe, self.job.folder, at=where[0].host.address)
            store = self._store(where) if len(where) > 1 else None
        except DaskmetricsError:  # of the user's corpus
            raise
        except Exception as error:  # whatever became of the worker
            return Blame(0, f"its worker could not prepare ({type(error).__name__}: {error})")
        given = orders(
            where, self.topic, self.attempt, store, self.job.folder, self.job.revisions, self.job.recipe, self.job.gang
        )
        with _heard(self.client, self.topic) as heard:
            gang = _Running(self.client, self.job, given, where, heard, self.watch)
            try:
                return gang.watch_over()
            finally:
                self.shunned = gang.stop()

    def _store(self, where: Sequence[Place]) -> tuple[str, int]:
        first = where[0].host.address
        self.stores.add(first)
        host, port = self._call(worker.open_store, self.topic, self.job.gang.timeout, at=first, timeout=120)
        return str(host), int(port)

    def _call(self, function: Any, *args: Any, at: str, timeout: float | None = None) -> Any:
        future = self.client.submit(function, *args, workers=[at], pure=False)
        try:
            return future.result(timeout)
        finally:
            future.release()

    def _gather(self) -> tuple[Place, ...]:
        """Workers for all ranks, or for as many as have come when patience is over."""
        until = time.monotonic() + self.job.gang.patience
        while True:
            there = _workers(self.client)
            # where some workers are for scores alone, ranks keep off them
            able = [each for each, about in there.items() if about["resources"].get("GPU")] or list(there)
            told = self.client.run(worker.inventory, workers=able, on_error="ignore")
            hosts: list[Host] = [host for host in told.values() if host.address not in self.shunned]
            if len(hosts) >= self.job.expected or (hosts and time.monotonic() > until):
                return places(hosts, self.job.recipe.ranks)
            if time.monotonic() > until + STOP:
                raise ClusterLostError("No worker is left to train on. Run the same command again to resume.")
            time.sleep(LISTEN)

    def _tell_inventory(self, where: Sequence[Place]) -> None:
        for node in dict.fromkeys(place.host.node for place in where):
            own = [place.host for place in where if place.host.node == node]
            gpus = ", ".join(own[0].models) or "no GPU"
            self.watch.say(
                f"Node {node}: {len(own)} ranks, {own[0].cores} CPUs, {own[0].available / 2**30:.1f} GiB free, {gpus}"
            )


class _Running:
    """A gang that has been started."""

    def __init__(
        self,
        client: Client,
        job: Job,
        given: Sequence[Order],
        where: Sequence[Place],
        heard: queue.SimpleQueue[Mapping[str, Any]],
        watch: Watch,
    ) -> None:
        self.client, self.job, self.where, self.heard, self.watch = client, job, where, heard, watch
        now = time.monotonic()
        self.signs = {order.rank: Sign(order.rank, now) for order in given}
        self.attempt = given[0].attempt
        self.looked = now
        offered = _workers(client)
        self.futures: list[Future] = [
            client.submit(
                worker.host,
                order,
                key=order.key,
                workers=[place.host.address],
                resources={"GPU": 1} if offered.get(place.host.address, {}).get("resources", {}).get("GPU") else None,
                pure=False,
            )
            for order, place in zip(given, where, strict=True)
        ]

    def watch_over(self) -> Blame | None:
        """Wait for the end, or for whoever must be blamed for a failure."""
        while not all(sign.is_done for sign in self.signs.values()):
            self._listen(LISTEN)
            self._look()
            if self._blamed() is not None:
                self._listen(GRACE)
                self._look()
                return self._blamed()
        return None

    def stop(self) -> set[str]:
        """End all ranks; the workers that did not answer."""
        self.client.cancel(self.futures, force=True)
        until = time.monotonic() + STOP
        while (rest := [s for s in self.signs.values() if s.code is None and not s.lost]) and time.monotonic() < until:
            self._listen(LISTEN)
            self._look()
        return {self.where[sign.rank].host.address for sign in rest}

    def _blamed(self) -> Blame | None:
        return blame(self.signs.values(), time.monotonic(), self.job.gang.timeout)

    def _listen(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with suppress(queue.Empty):
                self._hear(self.heard.get(timeout=left))

    def _hear(self, said: Mapping[str, Any]) -> None:
        if said["attempt"] != self.attempt:
            return
        news = {name: said[name] for name in ("step", "phase", "error", "failed", "permanent", "code") if name in said}
        self.signs[said["rank"]] = self.signs[said["rank"]].with_news(time.monotonic(), **news)
        if "took" in said and said["rank"] == 0:
            self.watch.took(self.job, said)

    def _look(self) -> None:
        """See which workers are gone."""
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        there = _workers(self.client)
        for rank, sign in self.signs.items():
            if sign.code is None and self.where[rank].host.address not in there:
                self.signs[rank] = sign.with_news(sign.heard, lost=True)


def _workers(client: Client) -> Mapping[str, Any]:
    """The workers by address, asked of the scheduler itself: the client's own list can lack some."""
    return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])


@contextmanager
def _heard(client: Client, topic: str) -> Iterator[queue.SimpleQueue[Mapping[str, Any]]]:
    """What ranks say about a topic, as it arrives."""
    heard: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
    client.subscribe_topic(topic, lambda event: heard.put(event[1]))
    try:
        yield heard
    finally:
        client.unsubscribe_topic(topic)
