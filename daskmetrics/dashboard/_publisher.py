"""The driver's side: sends journal entries and other messages to the scheduler, at most once a
second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from typing import Any

from distributed import Client, Scheduler

from daskmetrics.domain import events as events
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Scored

INTERVAL = 1.0  # seconds between messages
MAX_ENTRIES = 500  # entries of one call: the scheduler handles them within some milliseconds
COMPUTING = 0.02  # share of the driver's time that computed messages may take
LAST_SEND = 5.0  # seconds to send the end of a run
SHOWN = (
    events.RunStarted
    | events.UnitAsked
    | Record
    | events.UnitsRetried
    | events.SearchEnded
    | events.RunFinished
)

log = logging.getLogger(__name__)


class Publisher:
    """Context manager that publishes a run to the dashboard.

    It reads the journal in the client's event loop, so the run never waits for it. It sends nothing
    to a scheduler without the pages, such as one that another program has started.

    Parameters
    ----------
    client : distributed.Client
    entries : sequence of Event
        The journal's entries; it may grow meanwhile.
    """

    def __init__(
        self,
        client: Client,
        entries: Sequence[events.Event],
    ) -> None:
        self._client = client
        self._entries = entries
        self._messages: list[events.LiveMessage] = []
        self._sent = 0
        self._compute_after = 0.0
        self._ended = asyncio.Event()
        self._task: Future[None] | None = None

    def __enter__(self) -> Publisher:
        loop = self._client.loop.asyncio_loop
        self._task = asyncio.run_coroutine_threadsafe(self._publish(), loop)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._client.loop.add_callback(self._ended.set)
        if self._task is not None:
            if error is None:  # a scheduler that was lost would not answer
                wait([self._task], LAST_SEND)  # a slow page must not make the run fail
            self._task.cancel()

    def send(self, message: events.LiveMessage) -> None:
        """Send a message that is not in the journal."""
        self._messages.append(message)

    def send_computed(self, compute: Callable[[], events.LiveMessage]) -> None:
        """Compute and send a message, if there is time.

        It is left out while this takes too much of the driver's time.
        """
        began = time.monotonic()
        if began < self._compute_after or self._task is None or self._task.done():
            return
        self.send(compute())
        ended = time.monotonic()
        self._compute_after = ended + max(INTERVAL, (ended - began) / COMPUTING)

    async def _publish(self) -> None:
        try:
            if not await self._client.run_on_scheduler(_has_plugin):
                return
            plans = [entry for entry in self._entries if isinstance(entry, Plan)]
            await self._call(plans[-1:])  # before all records
            await self._send()
            self.send(events.HistorySent())
            while not self._ended.is_set():
                await self._send()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), INTERVAL)
            await self._send()
        except Exception as error:
            log.info("The dashboard does not show the run: %s", error)

    async def _send(self) -> None:
        messages = self._messages
        self._messages = []
        end = len(self._entries)
        while self._sent < end:
            entries = self._entries[self._sent : min(end, self._sent + MAX_ENTRIES)]
            await self._call([entry for entry in entries if isinstance(entry, SHOWN)])
            self._sent += len(entries)
        await self._call(messages)

    async def _call(self, messages: Sequence[events.LiveMessage]) -> None:
        if messages:
            await self._client.scheduler.daskmetrics_receive(
                news=[_shown(message) for message in messages]
            )


def _shown(message: events.LiveMessage) -> dict[str, Any]:
    """A message as JSON, without what no page shows."""
    if isinstance(message, Record) and isinstance(message.value, Scored):
        shown = replace(message.value, outcomes=None, detail=None)
        message = replace(message, value=shown)
    return events.to_json(message)


def _has_plugin(dask_scheduler: Scheduler) -> bool:
    """Whether the scheduler can receive messages.

    It would not answer calls of an unknown handler.
    """
    return "daskmetrics_receive" in dask_scheduler.handlers
