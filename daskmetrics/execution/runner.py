"""Runs the loop on Dask: turns actions into submissions, and events of Dask into messages. It
decides nothing. `client_of` is a user's client or cluster of any class as a synchronous client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import math
import pickle
import queue
import secrets
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from distributed import Client, Future, Worker
from distributed.core import Status
from distributed.scheduler import KilledWorker

from daskmetrics.core.errors import ClusterLostError, ConfigError, describe
from daskmetrics.core.files import RunFolder
from daskmetrics.core.machine import is_whole, replace_worker
from daskmetrics.core.telemetry import RANK, TelemetryFile
from daskmetrics.domain.events import REFUSED, WorkerJoined
from daskmetrics.domain.record import Record
from daskmetrics.domain.retry import Fault
from daskmetrics.execution import _worker as worker
from daskmetrics.execution import handshake
from daskmetrics.execution._units import Settings, Source, TaskId, WorkUnit, pickled
from daskmetrics.execution.journal import Journal
from daskmetrics.execution.loop import (
    Asked,
    Failed,
    Finished,
    Joined,
    Kill,
    Left,
    Loop,
    Message,
    Notice,
    OfferChanged,
    Release,
    Started,
    StopRequested,
    Submit,
    Vanished,
)
from daskmetrics.execution.placement import WorkerState
from daskmetrics.execution.stopping import stop_signals

LOOK_EVERY = 5.0  # seconds between polls of the workers, in case an event was missed
# bytes of a call, above which it is submitted alone, since Dask warns of large submissions
LARGE = 2**16
PLAIN = {"GPU": 1.0, "CPU": 1.0}  # what a worker that offers none of these counts as
LOST = "The scheduler was lost. Nothing recorded is lost: run the same command again to resume."
DECADE = 3e8  # seconds
FROZEN = 300.0  # seconds without a sign of life after which a worker without a unit is replaced
SETTLE = 0.3  # seconds for the last message of a lost worker to arrive
# seconds for a new worker to answer: importing can be slow on a shared file system
ANSWER_WITHIN = 120.0

log = logging.getLogger(__name__)
Incoming: TypeAlias = Message | BaseException | list[Any]  #: a list is the report of a worker


def run(
    source: Source,
    client: Client,
    journal: Journal,
    settings: Settings,
    on_record: Callable[[Record], None] = lambda record: None,
    say: Callable[[str], None] = log.warning,
    on_share: Callable[[WorkUnit, float], None] = lambda unit, share: None,
) -> None:
    """Run all units of a source.

    Units that are already in the journal are not run again.

    A line of the journal commits a unit; only then does the source receive its record. The first
    Ctrl-C lets running units finish, the second stops at once; SIGTERM and SIGHUP act as the first,
    with a short grace period.

    Parameters
    ----------
    source : Source
    client : distributed.Client
    journal : Journal
    settings : Settings
    on_record : callable
        Called with each new record, after it was journaled.
    say : callable
        Called with messages for the user, such as a pause or a missing worker.
    on_share : callable
        Called now and then with a unit that takes long, and the share of it that is done.

    Raises
    ------
    ClusterLostError
        If the scheduler is lost, or no worker can run the remaining units. Run again to resume.
    ConfigError
        If the versions of a worker differ from those of the driver before the first unit; a worker
        that comes later is refused.
    KeyboardInterrupt
        If the user stopped it.
    """
    # driver and workers share it, for tracebacks of stopped units; its name is new, since the user
    # may keep files of the same folder in "scratch"
    scratch = (journal.path.parent / "scratch" / secrets.token_hex(4)).absolute()
    backend = _DaskBackend(client, scratch, settings, say, on_share)
    try:
        with stop_signals(backend.on_signal), backend.listening():
            loop = Loop(source, journal, settings, on_record, time.time)
            backend.drive(loop, TelemetryFile(RunFolder(journal.path.parent).telemetry))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        with suppress(OSError):  # others have files there
            scratch.parent.rmdir()
    if backend.stopping:  # also if the signal arrived after the last unit
        raise KeyboardInterrupt


class _DaskBackend:
    """The only code that calls Dask. Other threads only put events into the queue."""

    def __init__(
        self,
        client: Client,
        scratch: Path,
        settings: Settings,
        say: Callable[[str], None],
        on_share: Callable[[WorkUnit, float], None] = lambda unit, share: None,
    ) -> None:
        self.client = client
        self.scratch = scratch
        self.settings = settings
        self.say = say
        self.on_share = on_share
        self.units: dict[TaskId, WorkUnit] = {}  # of the futures
        # on a shared scheduler, an old future with the same key would return the result of another
        # function
        self.nonce = secrets.token_hex(4)
        self.topic = f"daskmetrics-{self.nonce}"
        self.events: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.futures: dict[TaskId, Future] = {}
        # of the workers by address; only the event loop of the client uses it
        self.offers: dict[str, OfferChanged] = {}
        self.looking = asyncio.Lock()
        self.leaving: set[str] = set()  # addresses of lost workers until the loop knows it
        self.asked: set[str] = set()  # of those that have not answered yet
        self.seen: dict[str, tuple[Any, float]] = {}  # latest heartbeats, and when they were new
        # what the workers reported of themselves at the latest look, by name
        self.metrics: Mapping[str, Mapping[str, Any]] = {}
        self.plain: set[str] = set()  # workers that were started without our resources
        # workers that their nanny killed because they used too much memory
        self.over_memory: set[str] = set()
        self.stopping = False
        self.has_submitted = False  # from then on a worker of another version ends no run

    def on_signal(self, by_hand: bool) -> None:
        """Handle a stop signal."""
        self.stopping = True
        self.events.put(StopRequested(math.inf if by_hand else self.settings.stop_grace))
        self.say(
            "Stopping: running units are finished and recorded first. Press Ctrl-C (again) to stop "
            "at once."
        )

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Subscribe to events of workers, and of attempts that start."""
        handlers: dict[str, Callable[[tuple[float, Any]], None]] = {
            self.topic: lambda event: self.events.put(list(event[1])),
            "all": lambda event: self._post(self._look()),
            "worker-restart-memory": lambda event: self.over_memory.add(event[1]["worker"]),
        }
        for topic, handler in handlers.items():
            self.client.subscribe_topic(topic, handler)
        try:
            yield
        finally:
            self.futures.clear()  # the scheduler drops results that no client waits for
            if self.client.status == "running":
                for topic in handlers:
                    self.client.unsubscribe_topic(topic)

    def drive(self, loop: Loop, telemetry: TelemetryFile) -> None:
        """Carry messages to the loop and its actions to Dask until it is done.

        The file tells what each worker does.
        """
        messages: list[Message] = []
        looked = -math.inf
        while True:
            actions = loop.step(time.monotonic(), messages)
            self._submit(action for action in actions if isinstance(action, Submit))
            for action in actions:
                match action:
                    case Release(task):
                        self.units.pop(task, None)
                        if future := self.futures.pop(task, None):
                            future.release()
                    case Kill(address):
                        self._post(replace_worker(self.client, address))
                    case Notice(text):
                        self.say(text)
            if loop.done:
                return
            if time.monotonic() >= looked + LOOK_EVERY:
                looked = time.monotonic()
                doing = {state.name: state.kind for state in loop.workers.values()}
                telemetry.add(time.time(), self.metrics, doing)
                self._post(self._look())
                self._find_unreported_ends()
                self._replace_frozen(loop.workers.values())
            messages = self._receive(min(loop.wake, looked + LOOK_EVERY))

    def _receive(self, until: float) -> list[Message]:
        events: list[Incoming] = []
        with suppress(queue.Empty):
            timeout = max(0.0, until - time.monotonic())
            events.append(self.events.get(timeout=timeout))
            while True:
                events.append(self.events.get_nowait())
        if self.client.status != "running" or not is_whole(self.client):
            raise ClusterLostError(LOST)
        messages: list[Message] = []
        for event in events:
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, list):
                messages += self._on_report(event)
            else:
                messages.append(event)
        return messages

    # actions

    def _submit(self, submits: Iterable[Submit]) -> None:
        """Submit attempts; small ones of the same worker and resources together."""
        calls: defaultdict[tuple[Any, ...], list[tuple[Submit, Any]]] = defaultdict(list)
        for submit in submits:
            unit = submit.unit
            task = submit.task
            try:
                packed = pickled((unit.function, unit.args))
            except pickle.PicklingError as error:
                reason = f"It cannot be sent to a worker. {error}"
                self.events.put(Failed(task, Fault.PERMANENT, reason))
                continue
            self.has_submitted = True
            given = [self.futures[submit.given]] if submit.given else []
            settings = self.topic, str(self.scratch), unit.timeout, submit.shared
            alone = submit.given or len(packed) > LARGE
            needs = frozenset(unit.resources.items())
            calls[submit.worker, needs, alone and task].append(
                (submit, (task, packed, *settings, *given))
            )
        for (address, needs, _), together in calls.items():
            submitted, rows = zip(*together, strict=True)
            futures = self.client.map(
                worker.perform,
                *zip(*rows, strict=True),
                key=[f"{submit.task}-{self.nonce}" for submit in submitted],
                workers=[address],
                resources={
                    name: need
                    for name, need in needs
                    if address not in self.plain or name not in PLAIN
                },
                pure=False,
            )
            for submit, future in zip(submitted, futures, strict=True):
                self.futures[submit.task] = future
                self.units[submit.task] = submit.unit

    # events of Dask

    def _on_report(self, report: list[Any]) -> Iterator[Message]:
        match report:
            case ["started", task]:
                yield Started(task)
            case ["doing", task, share] if task in self.units:
                self.on_share(self.units[task], share)
            case ["finished", task]:
                yield Finished(task)
            case ["finished", task, value, seconds]:
                yield Finished(task, json.loads(value), seconds)
            case ["failed", task, fault, reason, trace]:
                yield Failed(task, Fault(fault), reason, trace)
            case ["stored", task] if task in self.futures:
                self._post(self._fetch(task, self.futures[task]))

    def _find_unreported_ends(self) -> None:
        """Look for attempts that were cancelled, or that Dask could not begin.

        One that lost its worker is none of these: that is reported, too, and decides.
        """
        for task, future in self.futures.items():
            if future.status == "cancelled":
                self.events.put(Vanished(task))
            elif future.status == "error":
                error = future.exception()
                if not isinstance(error, KilledWorker):
                    self.events.put(Failed(task, worker.blame(error), describe(error)))

    def _replace_frozen(self, workers: Iterable[WorkerState]) -> None:
        """Kill workers without a unit that show no sign of life.

        These are stopped processes, for instance.

        One with a unit may be busy: its unit's time limit decides.
        """
        now = time.monotonic()
        for state in workers:
            _, seen = self.seen.get(state.address, (0.0, now))
            if now - seen > FROZEN and not state.running():
                self._post(replace_worker(self.client, state.address))

    async def _fetch(self, task: TaskId, future: Future) -> None:
        message: Message = Vanished(task)  # its worker died, or it was released meanwhile
        with suppress(OSError, asyncio.CancelledError, concurrent.futures.CancelledError):
            for result in await self.client.gather([future], errors="skip", asynchronous=True):
                value, seconds = result
                message = Finished(task, json.loads(value), seconds)
        self.events.put(message)

    async def _look(self) -> None:
        """Compare the workers of the scheduler with those of the latest look.

        This asks the scheduler: the cached ``scheduler_info`` of the client can be incomplete.
        """
        try:
            async with self.looking:  # of two at once the earlier answer may arrive last
                workers = (await self.client.scheduler.identity(n_workers=-1))["workers"]
        except OSError:
            return  # the connection is lost; the client reports it
        self.metrics = {str(info["name"]): info["metrics"] for info in workers.values()}
        for address in self.offers.keys() - workers.keys():
            del self.offers[address]
            self.seen.pop(address, None)
            self.leaving.add(address)
            self._post(self._report_left(address))
        for address in workers.keys() - self.leaving:
            info = workers[address]
            heartbeat = info.get("last_seen")
            if self.seen.get(address, (None,))[0] != heartbeat:  # its clock may jump
                self.seen[address] = heartbeat, time.monotonic()
            offered = info["resources"]
            if address in self.plain or not offered.keys() & PLAIN.keys():
                self.plain.add(address)
                offered = {**offered, **PLAIN}
            offer = OfferChanged(address, offered, RANK in info["metrics"])
            before = self.offers.get(address)
            self.offers[address] = offer
            if before is None:
                self._post(self._ask_versions(address, info))
            elif offer != before:
                self.events.put(offer)

    async def _ask_versions(self, address: str, info: Mapping[str, Any]) -> None:
        """Handshake with a new worker; it gets units only after its answer."""
        self.asked.add(address)
        self.events.put(Asked(len(self.asked)))
        try:
            await self._admit(address, info)
        finally:
            self.asked.discard(address)
            self.events.put(Asked(len(self.asked)))

    async def _admit(self, address: str, info: Mapping[str, Any]) -> None:
        name = str(info["name"])
        asked = self.client.run(
            eval, handshake.question(), workers=[address], on_error="return", asynchronous=True
        )
        try:
            answer = (await asyncio.wait_for(asked, ANSWER_WITHIN))[address]
            if isinstance(answer, OSError | KeyError):  # a TimeoutError is an OSError
                raise answer
        except (OSError, KeyError):
            # it is gone or too busy; if it is still there, it is asked again
            self.offers.pop(address, None)
            return
        theirs = answer if isinstance(answer, BaseException) else answer["versions"]
        try:
            handshake.require_same(name, theirs)
        except ConfigError as error:
            if not self.has_submitted:
                raise
            self.say(f"{error} It gets no units, and the run goes on.")
            await self.client.scheduler.log_event(topic=REFUSED, msg=name)
            return
        joined = WorkerJoined(name, answer["host"], answer["versions"], answer["gpus"])
        if address not in self.offers:
            return  # it left meanwhile
        offer = self.offers[address]
        threads = info["nthreads"]
        remaining = answer["remaining"]
        if address in self.plain and self.settings.alone:
            # Dask would start a waiting unit on a free thread; with a walltime no unit waits on a
            # worker
            threads = 1
            remaining = min(remaining, DECADE)
        memory = info["memory_limit"] or math.inf
        self.events.put(
            Joined(address, name, threads, offer.resources, remaining, joined, memory, offer.trains)
        )

    async def _report_left(self, address: str) -> None:
        await asyncio.sleep(SETTLE)
        self.events.put(
            Left(address, worker.last_words(self.scratch, address), address in self.over_memory)
        )
        self.leaving.remove(address)
        self._post(self._look())  # another worker may have this address now

    def _post(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the event loop of the client.

        So the driver never waits for a worker.
        """

        def on_end(posted: concurrent.futures.Future[None]) -> None:
            if not posted.cancelled() and (error := posted.exception()):
                self.events.put(error)

        loop = self.client.loop.asyncio_loop
        asyncio.run_coroutine_threadsafe(work, loop).add_done_callback(on_end)


@contextmanager
def client_of(given: Any) -> Iterator[Client]:
    """A synchronous client for a client or a cluster object of the user, who keeps it.

    A cluster gets a client of its own, and so does an asynchronous client, as in a notebook's event
    loop.

    Raises
    ------
    ConfigError
        If it is neither, is not connected, or was made before this process was forked; if its
        workers are threads of this process, or its scheduler needs the event loop that the caller
        would block.
    """
    if isinstance(given, Client):
        address = given.scheduler.address if given.status == "running" else ""
    else:
        try:
            address = str(given.scheduler_address)
        except AttributeError:
            raise ConfigError(
                f"client or cluster: got a {type(given).__name__}; pass a client or a cluster of Dask."
            ) from None
        except RuntimeError as error:  # of a ProfileCluster
            raise ConfigError(f"client or cluster: {error}.") from None
    if "://" not in address:
        raise ConfigError("client or cluster: it is not connected. Await it if it is asynchronous.")
    loop = getattr(getattr(given, "loop", None), "asyncio_loop", None)
    threads = {thread.ident for thread in threading.enumerate()}
    if getattr(loop, "_thread_id", None) not in {None, *threads}:
        raise ConfigError(
            "client or cluster: it was made before this process was forked, and its thread is not"
            f" here. Make one in this process, such as Client('{address}')."
        )
    running = [worker for worker in Worker._instances if worker.status is Status.running]
    if any(worker.scheduler.address == address for worker in running):
        raise ConfigError(
            "client or cluster: its workers are threads of this process, which a failing unit would"
            " end. Use LocalCluster(..., processes=True)."
        )
    if isinstance(given, Client) and not given._asynchronous:
        yield given
        return
    if needs_this_loop(given):
        raise ConfigError(
            "client or cluster: its cluster runs in this event loop, which the call would block."
            " Use: await asyncio.to_thread(...), or run(..., background=True)"
        )
    try:
        client = Client(address, security=given.security, set_as_default=False, timeout=30)
    except OSError as error:
        raise ConfigError(
            f"client or cluster: no scheduler answers at '{address}': {error}."
        ) from None
    with client:
        yield client


def needs_this_loop(given: object) -> bool:
    """Whether the scheduler of a client or cluster lives in this event loop.

    Then it cannot answer if the loop blocks.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return False
    cluster = given
    if isinstance(given, Client):
        cluster = given.cluster
    return getattr(getattr(cluster, "loop", None), "asyncio_loop", None) is running
