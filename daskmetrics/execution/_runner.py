"""The loop on Dask: actions become submissions, what Dask reports becomes messages. It decides nothing itself."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import queue
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import cloudpickle
from distributed import Client
from distributed.scheduler import KilledWorker

from daskmetrics.core._events import Event, Record, WorkerJoined
from daskmetrics.core.errors import ClusterLostError, DiskFullError
from daskmetrics.execution import _handshake as handshake
from daskmetrics.execution import _worker as worker
from daskmetrics.execution._deadline import last_words
from daskmetrics.execution._journal import Journal
from daskmetrics.execution._loop import Loop
from daskmetrics.execution._messages import (
    Action,
    Failed,
    Finished,
    Joined,
    Kill,
    Left,
    Message,
    Offers,
    Release,
    Say,
    Started,
    StopAsked,
    Submit,
    TaskId,
    Vanished,
)
from daskmetrics.execution._retry import Fault, Settings
from daskmetrics.execution._signals import heeding
from daskmetrics.execution._units import Source

__all__ = ["ClusterLostError", "Settings", "run"]

LOOK_EVERY = 5.0  # seconds between looks at the scheduler's workers, in case an event was missed
SETTLE = 0.3  # seconds for which the last words of a lost worker may be on their way
ANSWER_WITHIN = 120.0  # seconds for a new worker to answer: importing can be slow on a shared file system

log = logging.getLogger(__name__)
Incoming: TypeAlias = Message | BaseException | tuple[TaskId, Any]


def run(
    source: Source,
    client: Client,
    journal: Journal,
    settings: Settings,
    on_record: Callable[[Record], None] = lambda record: None,
    say: Callable[[str], None] = log.warning,
) -> None:
    """Run all work of a source to its end; a unit that the journal already holds is answered from there.

    A unit is committed by its line in the journal; only then does the source learn of it. While this runs, the first
    Ctrl-C finishes what is running, the second stops at once; SIGTERM and SIGHUP are the first with a short grace.

    Parameters
    ----------
    source : Source
    client : distributed.Client
    journal : Journal
    settings : Settings
    on_record : callable
        Called with each new record, after it was journaled.
    say : callable
        Called with lines for the user: a pause, a worker that is missed.

    Raises
    ------
    ClusterLostError
        If the scheduler goes away, or no worker is left that could do the work. Run again to resume.
    ConfigError
        If a worker's versions are not the driver's.
    KeyboardInterrupt
        If it was asked to stop and did.
    """
    scratch = settings.scratch or journal.path.parent / "scratch"
    shell = _Shell(client, scratch.absolute(), settings, say)
    ledger = _Patient(journal, shell.stop_asked, settings.pause, say)
    with heeding(shell.hear), shell.listening():
        loop = Loop(source, ledger, settings, on_record)
        shell.drive(loop)
        if loop.stopping:
            raise KeyboardInterrupt


class _Patient:
    """A journal on a disk that may be full: the run pauses until there is room."""

    def __init__(
        self, journal: Journal, stop_asked: Callable[[], bool], pause: float, say: Callable[[str], None]
    ) -> None:
        self._journal, self._stop_asked, self._pause, self._say = journal, stop_asked, pause, say
        self.records = journal.records

    @property
    def entries(self) -> list[Event]:
        return self._journal.entries

    def append(self, entry: Event, wait: bool = True) -> None:
        paused = False
        while True:
            try:
                self._journal.append(entry, wait)
                break
            except DiskFullError as error:
                if self._stop_asked():
                    raise KeyboardInterrupt from error
                if not paused:
                    self._say(f"No room to write '{self._journal.path}': the run pauses until there is. ({error})")
                paused = True
                time.sleep(self._pause)
        if paused:
            self._say("There is room again: the run goes on.")


class _Shell:
    """Everything that touches Dask. Other threads only put events into the queue."""

    def __init__(self, client: Client, scratch: Path, settings: Settings, say: Callable[[str], None]) -> None:
        self.client, self.scratch, self.settings, self.say = client, scratch, settings, say
        # on a shared scheduler an old future of the same key would answer with its own function's result
        self.nonce = secrets.token_hex(4)
        self.topic = f"daskmetrics-{self.nonce}"
        self.events: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.futures: dict[TaskId, Any] = {}
        self.shared: set[TaskId] = set()  # attempts whose result stays on its worker
        # addresses with what they offer; touched by the client's event loop alone
        self.greeted: dict[str, Mapping[str, float]] = {}
        self.outgrown: set[str] = set()  # workers ended by their nanny for taking too much memory
        self._stop = False

    def stop_asked(self) -> bool:
        return self._stop

    def hear(self, by_hand: bool) -> None:
        """A signal has come."""
        self._stop = True
        self.events.put(StopAsked(math.inf if by_hand else self.settings.stop_grace))
        self.say("Stopping: what is running is finished and recorded first. Press Ctrl-C (again) to stop at once.")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear of workers that come and go, and of attempts that begin."""
        handlers: dict[str, Callable[[tuple[float, Any]], None]] = {
            self.topic: lambda event: self.events.put(Started(event[1])),
            "all": self._hear_of_workers,
            "worker-restart-memory": lambda event: self.outgrown.add(event[1]["worker"]),
        }
        for topic, handler in handlers.items():
            self.client.subscribe_topic(topic, handler)
        try:
            yield
        finally:
            self.futures.clear()  # the scheduler drops what nobody waits for
            if self.client.status == "running":
                for topic in handlers:
                    self.client.unsubscribe_topic(topic)

    def drive(self, loop: Loop) -> None:
        """Carry messages to the loop and its actions to Dask until it is done."""
        messages: list[Message] = []
        looked = -math.inf
        while True:
            for action in loop.step(time.monotonic(), messages):
                self._perform(action)
            if loop.done:
                return
            if time.monotonic() >= looked + LOOK_EVERY:
                looked = time.monotonic()
                self._post(self._look())
            messages = self._receive(loop.wake)

    def _receive(self, until: float) -> list[Message]:
        """Everything that has happened; waits for the first."""
        try:
            events = [self.events.get(timeout=max(0.0, until - time.monotonic()))]
        except queue.Empty:
            events = []
        while not self.events.empty():
            events.append(self.events.get())
        if self.client.status != "running":
            raise _lost()
        messages = []
        for event in events:
            if isinstance(event, BaseException):
                raise event
            message = self._ended(*event) if isinstance(event, tuple) else event
            if message is not None:
                messages.append(message)
        return messages

    # actions

    def _perform(self, action: Action) -> None:
        match action:
            case Submit():
                self._submit(action)
            case Release(task):
                if future := self.futures.pop(task, None):
                    future.release()
            case Kill(address):
                self._post(self._kill(address))
            case Say(text):
                self.say(text)

    def _submit(self, submit: Submit) -> None:
        unit = submit.unit
        try:
            packed = cloudpickle.dumps((unit.function, unit.args))
        except Exception as error:  # whatever an argument raises when it is pickled
            reason = f"It cannot be sent to a worker. {worker.describe(error)}"
            self.events.put(Failed(submit.task, Fault.PERMANENT, reason))
            return
        order = worker.Order(submit.task, packed, self.topic, str(self.scratch), unit.timeout, submit.shared)
        future = self.client.submit(
            worker.perform,
            order,
            *([self.futures[submit.given]] if submit.given else []),
            key=f"{submit.task}-{self.nonce}",
            workers=[submit.worker],
            resources=dict(unit.resources),
            pure=False,
        )
        self.futures[submit.task] = future
        if submit.shared:
            self.shared.add(submit.task)
        future.add_done_callback(lambda future, task=submit.task: self.events.put((task, future)))

    async def _kill(self, address: str) -> None:
        try:
            await self.client.run(worker.kill, workers=[address], nanny=True, asynchronous=True)
        except Exception as error:  # it is gone, or has no nanny: the loop has given it up in any case
            log.info("Worker %s could not be killed: %s", address, error)

    # what Dask reports

    def _ended(self, task: TaskId, future: Any) -> Message | None:
        if task not in self.futures:
            return None
        if future.status == "finished" and task in self.shared:
            return Finished(task)
        if future.status == "finished":
            self._post(self._fetch(task, future))
            return None
        if future.status == "cancelled":
            return Vanished(task)  # by another client of the scheduler, since we forget what we release
        error = future.exception()
        if isinstance(error, worker.AttemptError):
            return Failed(task, error.fault, error.reason, error.trace)
        if isinstance(error, KilledWorker):
            return None  # that its worker has left is told, too, and settles the matter
        return Failed(task, worker.blame(error), worker.describe(error))

    async def _fetch(self, task: TaskId, future: Any) -> None:
        try:
            result = await self.client.gather(future, asynchronous=True)
        except (Exception, asyncio.CancelledError):
            self.events.put(Vanished(task))  # its worker died, or we released it meanwhile
        else:
            self.events.put(Finished(task, json.loads(result[0]), result[1]))

    def _hear_of_workers(self, event: tuple[float, Any]) -> None:
        if event[1]["action"] in ("add-worker", "remove-worker"):
            self._post(self._look())

    async def _look(self) -> None:
        """Compare the scheduler's workers with those that were greeted.

        Asked of the scheduler itself: the client's cached ``scheduler_info`` can lack some.
        """
        try:
            here = (await self.client.scheduler.identity(n_workers=-1))["workers"]
        except OSError:
            return  # the connection is lost, which the client notices, too
        for address in here.keys() - self.greeted.keys():
            self.greeted[address] = here[address]["resources"]
            self._post(self._greet(address, here[address]))
        for address in self.greeted.keys() - here.keys():
            del self.greeted[address]
            self._post(self._see_off(address))
        for address, before in self.greeted.items():
            if (now := here[address]["resources"]) != before:
                self.greeted[address] = now
                self.events.put(Offers(address, now))

    async def _greet(self, address: str, info: Mapping[str, Any]) -> None:
        """Ask a new worker who it is; it gets work only after its answer."""
        name = str(info["name"])
        asked = self.client.run(eval, handshake.question(), workers=[address], on_error="return", asynchronous=True)
        try:
            answer = (await asyncio.wait_for(asked, ANSWER_WITHIN))[address]
        except (OSError, TimeoutError, KeyError) as error:
            answer = error
        if isinstance(answer, OSError | TimeoutError | KeyError):
            self.greeted.pop(address, None)  # it is gone or too busy; if it is still there it is asked again
            return
        handshake.require_same(name, answer if isinstance(answer, BaseException) else answer["versions"])
        about = WorkerJoined(name, answer["host"], answer["versions"], answer["gpus"])
        offered = self.greeted.get(address, info["resources"])  # it may have changed meanwhile
        self.events.put(Joined(address, name, info["nthreads"], offered, answer["remaining"], about))

    async def _see_off(self, address: str) -> None:
        await asyncio.sleep(SETTLE)
        self.events.put(Left(address, last_words(self.scratch, address), address in self.outgrown))

    def _post(self, work: Coroutine[Any, Any, None]) -> None:
        """Let the client's event loop do something, so that the driver never waits for a worker."""
        asyncio.run_coroutine_threadsafe(self._guarded(work), self.client.loop.asyncio_loop)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            self.events.put(error)


def _lost() -> ClusterLostError:
    return ClusterLostError("The scheduler went away. Nothing recorded is lost: run the same command again to resume.")
