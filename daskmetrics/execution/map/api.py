"""What applies a function to items durably: on the workers of a client, or in this process."""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

from distributed import Client
from distributed.scheduler import KilledWorker

from daskmetrics.core.errors import ClusterLostError, ConfigError, describe, room_for
from daskmetrics.core.files import RunFolder, expanded
from daskmetrics.core.machine import workers
from daskmetrics.domain.events import MAP, UnitAsked
from daskmetrics.execution import Journal, Record, RetryPolicy, Settings
from daskmetrics.execution import run as run_source
from daskmetrics.execution.journal import JournalReading
from daskmetrics.execution.map.folder import RecordedResults, begin, continued
from daskmetrics.execution.map.function import load_function, run_batch
from daskmetrics.execution.map.source import RESULTS, ItemResult, MapSource, MapSpec
from daskmetrics.execution.runner import LOST, PLAIN, client_of

# The source itself halves a batch that died or was stopped, and tries failed items again. What
# remains is the rare exception of a whole batch, for instance a module that is missing on one node:
# another worker may succeed.
RETRY = RetryPolicy(exceptions=3, deaths=1, memory=1, timeouts=1)
PUBLISH_EVERY = 1.0  # seconds
PROBES = 3
PROBE_SECONDS = 120.0

log = logging.getLogger(__name__)


def stream(
    spec: MapSpec,
    given: object,
    folder: str | Path,
    start: Callable[[], AbstractContextManager[Client]],
) -> Iterator[ItemResult]:
    """Recorded results, and then those of a thread that runs the loop.

    Results wait for a slow caller, and the loop does not. Without a given client, ``start`` gives
    one when it is needed.
    """
    results: queue.SimpleQueue[ItemResult | BaseException | None] = queue.SimpleQueue()

    def end(kind: object, error: BaseException | None, trace: object) -> bool:
        results.put(error)  # raised again in the caller's thread
        return True

    with ExitStack() as clients, ExitStack() as stack:
        client = None
        if given is not None:
            client = clients.enter_context(client_of(given))
        journal = stack.enter_context(open_journal(folder))
        spec = continued(spec, journal.entries)
        source = MapSource(spec, JournalReading(journal.path))
        if source.tracker.finished:
            yield from RecordedResults(journal.path, spec.items, spec.options.retries)
        begin(source, journal)
        if source.tracker.finished == len(spec.items):
            return
        client = client or clients.enter_context(start())
        source.on_result = results.put
        until_the_end = stack.pop_all()

        def work() -> None:
            with ExitStack() as stack:
                stack.push(end)
                # the loop closes the journal: after a second Ctrl-C it may outlive the caller
                stack.enter_context(until_the_end)
                _run_on(client, source, journal)

        loop = threading.Thread(target=work, name="daskmetrics-map", daemon=True)
        loop.start()
        try:
            while isinstance(result := results.get(), ItemResult):
                yield result
        finally:
            source.stop()
            loop.join()
        if result is not None:
            raise result


def run(
    spec: MapSpec,
    client: Client | None,
    journal: Journal,
    on_result: Callable[[ItemResult], None] = lambda result: None,
    say: Callable[[str], None] = log.warning,
    most_memory: float = 0.0,
) -> RecordedResults:
    """Run a map to its end and return its results in the order of its items.

    Errors as for `map`.

    Without a client, the items run in this process, one after the other, for debugging. The values
    are the same, but an item that hangs is not stopped, and an item that kills its process ends the
    run. Each new result is recorded and then passed to ``on_result``; messages for the user, such
    as a lost worker, are passed to ``say``. A batch whose worker exceeds its memory waits for a
    larger worker, up to ``most_memory`` bytes.
    """
    source = MapSource(spec, JournalReading(journal.path))
    source.on_result = on_result
    begin(source, journal, say)
    if source.tracker.finished < len(spec.items):
        if client is None:
            _run_here(source, journal)
        else:
            _run_on(client, source, journal, say, most_memory)
    return RecordedResults(journal.path, spec.items, spec.options.retries)


def _run_here(source: MapSource, journal: Journal) -> None:
    while units := source.ask(1):
        for unit in units:
            started = time.perf_counter()
            function, calls, wait = unit.args
            with room_for(f"what {unit.name} writes"):
                value = run_batch(function, calls, wait, journal.path.parent)
            record = Record(
                unit.key,
                unit.name,
                unit.kind,
                "ok",
                value,
                seconds=time.perf_counter() - started,
                worker="serial",
                at=time.time(),
            )
            journal.append(UnitAsked(unit.key, unit.name, dict(unit.note)), record)
            source.tell(record)


def _run_on(
    client: Client,
    source: MapSource,
    journal: Journal,
    say: Callable[[str], None] = log.warning,
    most_memory: float = 0.0,
) -> None:
    """Run a map on the workers, and report its state to the scheduler.

    At most once a second, how many items have which status: for /metrics and the live page.
    """
    _check_function(source.spec, client)
    options = source.spec.options
    tracker = source.tracker
    next_listener, due = source.on_result, 0.0

    def publish() -> None:
        # the scheduler is gone: the loop notices and ends the run with a message
        with suppress(OSError):
            counts = dict(tracker.counts)
            client.log_event(MAP, {"items": len(source.spec.items), "counts": counts})

    def on_result(result: ItemResult) -> None:
        nonlocal due
        next_listener(result)
        if time.monotonic() >= due:
            due = time.monotonic() + PUBLISH_EVERY
            publish()

    source.on_result = on_result
    commit_every = max(1, options.checkpoint_interval // options.batch_size)
    settings = Settings(
        retry=RETRY, commit_every=commit_every, most_memory=most_memory, asks_once=True
    )
    run_source(source, client, journal, settings, say=say)
    publish()


def open_journal(path: str | Path) -> Journal:
    """The journal of a folder, which is created if it does not exist."""
    folder = RunFolder(journal_folder(path)).create()
    return Journal(folder.journal, folder.lock, RESULTS)


def journal_folder(path: str | Path) -> Path:
    """The absolute path of a journal's folder."""
    if not isinstance(path, str | os.PathLike):
        raise ConfigError(
            f"journal: got a {type(path).__name__}; pass the folder of the journal, such as "
            "'runs/step'."
        )
    return expanded(path).absolute()


def _check_function(spec: MapSpec, client: Client) -> None:
    """Load the function on a worker: a missing module is reported first."""
    name = spec.function.name
    resources = dict(spec.options.resources)
    if any(not worker["resources"].keys() & PLAIN.keys() for worker in workers(client).values()):
        resources = {unit: amount for unit, amount in resources.items() if unit not in PLAIN}
    for _ in range(PROBES):
        future = client.submit(
            load_function, spec.function.payload, pure=False, resources=resources
        )
        try:
            error = future.exception(timeout=PROBE_SECONDS)
        except TimeoutError:
            raise ConfigError(
                f"No worker answered within {PROBE_SECONDS:.0f} s (resources: {resources})."
            ) from None
        except OSError:
            raise ClusterLostError(LOST) from None
        if future.cancelled():
            raise ClusterLostError(LOST)
        # a killed worker is a coincidence, or the module ends its process: try again
        if not isinstance(error, KilledWorker):
            break
    if isinstance(error, ConfigError):  # other code
        raise error
    if error is not None:
        raise ConfigError(
            f"The workers cannot load {name}: {describe(error)}. Install '{name.partition(':')[0]}'"
            " there, or send it: name its file (module.py:function), or in Python use"
            " cloudpickle.register_pickle_by_value(module)."
        )
