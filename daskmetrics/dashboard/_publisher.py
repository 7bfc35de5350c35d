"""The driver's side: what the journal and the driver know, sent to the scheduler once a second at most."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any

from distributed import Client

from daskmetrics.core._events import (
    Event,
    HistorySent,
    LiveMessage,
    Record,
    RunFinished,
    RunStarted,
    SearchEnded,
    StorePlanned,
    UnitAsked,
    UnitsRetried,
    to_json,
)

EVERY = 1.0  # seconds between messages
AT_ONCE = 500  # entries of one message: the scheduler takes them in within some milliseconds
THINKING = 0.02  # of the driver's time that working out what is shown may take
LAST_WORDS = 5.0  # seconds for the end of a run to be told
SHOWN = RunStarted | UnitAsked | Record | UnitsRetried | SearchEnded | RunFinished
UNSEEN = ("worker", "attempts", "seconds")  # fields of records that no page shows

log = logging.getLogger(__name__)


class Feed:
    """Tells the pages of a cluster's dashboard what a run does, while it is entered.

    It looks at the journal from the client's own event loop, so that nothing of the run waits for it. A scheduler
    without the pages (one that somebody else started) is left alone.

    Parameters
    ----------
    client : distributed.Client
    entries : sequence of Event
        The journal's entries; it may grow meanwhile.
    """

    def __init__(self, client: Client, entries: Sequence[Event]) -> None:
        self._client, self._entries = client, entries
        self._notes: list[LiveMessage] = []
        self._sent = 0
        self._think_again = 0.0
        self._task: Future[None] | None = None

    def __enter__(self) -> Feed:
        self._task = asyncio.run_coroutine_threadsafe(self._go_on(), self._client.loop.asyncio_loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None and self._task.cancel() and error is None:
            last = asyncio.run_coroutine_threadsafe(self._send(), self._client.loop.asyncio_loop)
            try:
                last.result(LAST_WORDS)
            except (Exception, CancelledError) as problem:  # a page that lags behind must not spoil a run
                log.info("The end of the run was not shown: %s", problem)

    def note(self, message: LiveMessage) -> None:
        """Send something that the journal does not hold."""
        self._notes.append(message)

    def think(self, work_out: Callable[[], LiveMessage]) -> None:
        """Tell what has to be worked out first, unless that would take too much of the driver's time."""
        began = time.monotonic()
        if began < self._think_again or self._is_over:
            return
        self.note(work_out())
        ended = time.monotonic()
        self._think_again = ended + max(EVERY, (ended - began) / THINKING)

    @property
    def _is_over(self) -> bool:
        return self._task is None or self._task.done()

    async def _go_on(self) -> None:
        try:
            if not await self._client.run_on_scheduler(_listens):
                return
            self._plan()
            await self._send()
            self.note(HistorySent())
            while True:
                await self._send()
                await asyncio.sleep(EVERY)
        except Exception as error:
            log.info("The run is not shown on the dashboard: %s", error)

    def _plan(self) -> None:
        """What is compared comes first, whatever was recorded before."""
        plans = [entry for entry in self._entries if isinstance(entry, StorePlanned)]
        self._notes[:0] = plans[-1:]

    async def _send(self) -> None:
        """Everything that has not been told yet, notes after the entries that they follow."""
        notes, self._notes = self._notes, []
        end = len(self._entries)
        await self._tell([message for message in notes if isinstance(message, StorePlanned)])
        while self._sent < end:
            part = self._entries[self._sent : min(end, self._sent + AT_ONCE)]
            await self._tell([entry for entry in part if isinstance(entry, SHOWN)])
            self._sent += len(part)
        await self._tell([message for message in notes if not isinstance(message, StorePlanned)])

    async def _tell(self, messages: Sequence[LiveMessage]) -> None:
        if messages:
            await self._client.scheduler.daskmetrics_hear(news=[_plain(message) for message in messages])


def _listens(dask_scheduler: Any) -> bool:
    """Asked first: a scheduler leaves calls of what it does not know without an answer."""
    return "daskmetrics_hear" in dask_scheduler.handlers


def _plain(message: LiveMessage) -> dict[str, Any]:
    return {name: value for name, value in to_json(message).items() if name not in UNSEEN}
