"""`map`, which applies any function to any items durably, and its variant in the current process."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from daskmetrics.core.errors import ClusterLostError, ConfigError
from daskmetrics.core.events import MAP, UnitAsked
from daskmetrics.core.files import RunFolder
from daskmetrics.core.machine import workers
from daskmetrics.execution import Journal, Record, RetryPolicy, Settings
from daskmetrics.execution import run as run_source
from daskmetrics.execution._worker import describe
from daskmetrics.execution.clients import client_of
from daskmetrics.execution.map.folder import begin, restore
from daskmetrics.execution.map.function import load_function, run_batch
from daskmetrics.execution.map.source import ItemResult, MapOptions, MapSource, MapSpec, make_spec
from daskmetrics.execution.runner import LOST, PLAIN

# The source itself halves a batch that died or was stopped, and tries failed items again. What
# remains is the rare exception of a whole batch, for instance a module that is missing on one node:
# another worker may succeed.
RETRY = RetryPolicy(exceptions=3, deaths=1, memory=1, timeouts=1)
PUBLISH_EVERY = 1.0  # seconds
PROBES = 3
PROBE_SECONDS = 120.0

log = logging.getLogger(__name__)


def map(
    function: Callable[..., Any],
    iterable: Iterable[Any],
    *,
    client: Any,
    journal: Journal | str | Path,
    batch_size: int = MapOptions.batch_size,
    retries: int = MapOptions.retries,
    timeout: float | str | None = MapOptions.timeout,
    resources: Mapping[str, float] | None = None,
    seed: int = 0,
    version: str | None = None,
    checkpoint_interval: int = MapOptions.checkpoint_interval,
) -> Iterator[ItemResult]:
    """Apply a function to every item on the workers of a client, and yield one result per item as
    it finishes.

    Results that the journal already holds come first and are not computed again. An item that
    raises an exception is tried again and then recorded as failed, with its traceback. An item that
    kills its worker, hangs or runs out of memory is found by halving its batch; the other items of
    the batch run again.

    Parameters
    ----------
    function : callable
        Called as ``function(item)``. A parameter named ``seed`` receives 32 bits that belong to the
        item; a parameter named ``batch_size`` receives the number of items in the running batch.
        The function returns values that JSON can store: numbers, text, None, lists, dicts with text
        as keys; arrays become lists.
    iterable : iterable
        The items: numbers, text, lists, dicts, arrays, dataclasses. It is consumed at once.
    client : distributed.Client or cluster of Dask
        Of any class, also an asynchronous one; it stays open. Its workers should have one thread
        each.
    journal : Journal, str or Path
        An open journal, or a folder, which is created if it does not exist.
    batch_size : int
        Items per Dask task; each task costs a few milliseconds.
    retries : int
        How often a failed item is tried again.
    timeout : float or str, optional
        Seconds that one item may take, or text such as ``90s``, ``5m``, ``2h``; None for no limit.
    resources : mapping, optional
        Worker resources that a batch occupies, for instance ``{"GPU": 1}``.
    seed : int
        Seed of the run. Items of another seed have other keys, so they are computed again.
    version : str, optional
        Replaces the hash of the function's source in the items' keys.
    checkpoint_interval : int
        Wait for the disk once for so many items, or for every batch if a batch has as many. A
        killed process loses nothing; a power failure can lose fewer items than this, which then run
        again.

    Yields
    ------
    ItemResult
        In the order in which items finish; `ItemResult.index` is the position in the iterable.

    Raises
    ------
    ConfigError
        If the function cannot be pickled or loaded on the workers, or an item has no reproducible
        content.
    LockedError
        If another process uses the folder.
    ClusterLostError
        If the scheduler is lost. Call again to resume.

    Notes
    -----
    If you leave the loop early or press Ctrl-C, the running batches finish and are recorded.

    Examples
    --------
    >>> import daskmetrics as dm
    >>> for result in dm.map(step, range(500), client=client, journal="runs/step", batch_size=10):  # doctest: +SKIP
    ...     print(result.name, result.status, result.value)
    """
    options = MapOptions(batch_size, retries, timeout, dict(resources or {}), checkpoint_interval)
    return _stream(
        make_spec(function, iterable, options, seed=seed, version=version), client, journal
    )


def _stream(spec: MapSpec, given: Any, journal: Journal | str | Path) -> Iterator[ItemResult]:
    with client_of(given) as client, ExitStack() as stack:
        journal = stack.enter_context(open_journal(journal))
        source = MapSource(spec, journal.entries)
        yield from source.tracker.results()
        if source.tracker.unfinished():
            begin(spec, journal)
            # the loop closes the journal: after a second Ctrl-C it may outlive the caller
            yield from _run_in_thread(source, spec, client, journal, stack.pop_all())
        else:
            restore(spec, journal)


def run(
    spec: MapSpec,
    client: Client | None,
    journal: Journal,
    on_result: Callable[[ItemResult], None] = lambda result: None,
    say: Callable[[str], None] = log.warning,
    most_memory: float = 0.0,
) -> list[ItemResult]:
    """Run a map to its end and return its results in the order of its items; errors as for `map`.

    Without a client, the items run in this process, one after the other, for debugging. The values
    are the same, but an item that hangs is not stopped, and an item that kills its process ends the
    run. Each new result is recorded and then passed to ``on_result``; messages for the user, such
    as a lost worker, are passed to ``say``. A batch whose worker exceeds its memory waits for a
    larger worker, up to ``most_memory`` bytes.
    """
    source = MapSource(spec, journal.entries)
    source.on_result = on_result
    if source.tracker.unfinished():
        begin(spec, journal)
        if client is None:
            _run_serial(source, journal)
        else:
            _check_function(spec, client)
            with _published(source, client):
                settings = replace(_settings(spec), most_memory=most_memory)
                run_source(source, client, journal, settings, say=say)
    else:
        restore(spec, journal)
    return source.tracker.results()


@contextmanager
def _published(source: MapSource, client: Client) -> Iterator[None]:
    """Tell the scheduler, at most once a second, how many items have which status; for /metrics and
    the live page.
    """
    counts = Counter(result.status for result in source.tracker.results())
    total = counts.total() + len(source.tracker.unfinished())
    next_listener = source.on_result
    due = 0.0

    def publish() -> None:
        # the scheduler is gone: the loop notices and ends the run with a message
        with suppress(OSError):
            client.log_event(MAP, {"items": total, "counts": dict(counts)})

    def on_result(result: ItemResult) -> None:
        nonlocal due
        next_listener(result)
        counts[result.status] += 1
        if time.monotonic() >= due:
            due = time.monotonic() + PUBLISH_EVERY
            publish()

    source.on_result = on_result
    yield
    publish()


def _settings(spec: MapSpec) -> Settings:
    return Settings(
        retry=RETRY,
        commit_every=max(1, spec.options.checkpoint_interval // spec.options.batch_size),
    )


@contextmanager
def open_journal(journal: Journal | str | Path) -> Iterator[Journal]:
    """An open journal as it is; for a folder, which is created if it does not exist, its journal."""
    if isinstance(journal, Journal):
        yield journal
        return
    folder = RunFolder(Path(journal)).create()
    with Journal(folder.journal, folder.lock) as opened:
        yield opened


def _run_serial(source: MapSource, journal: Journal) -> None:
    while units := source.ask(1):
        for unit in units:
            started = time.perf_counter()
            value = run_batch(*unit.args)
            took = time.perf_counter() - started
            record = Record(
                unit.key,
                unit.name,
                unit.kind,
                "ok",
                value,
                seconds=took,
                worker="serial",
                at=time.time(),
            )
            journal.append(UnitAsked(unit.key, unit.name, dict(unit.note)))
            journal.append(record)
            source.tell(record)


def _check_function(spec: MapSpec, client: Client) -> None:
    """Load the function on a worker, so that a missing module is reported before the first item."""
    name, resources = spec.function.name, dict(spec.options.resources)
    if any(not worker["resources"].keys() & PLAIN.keys() for worker in workers(client).values()):
        resources = {
            resource: amount for resource, amount in resources.items() if resource not in PLAIN
        }
    error: str | None = None
    for _ in range(PROBES):
        future = client.submit(_load_error, spec.function.payload, pure=False, resources=resources)
        try:
            error = future.result(timeout=PROBE_SECONDS)
            break
        except TimeoutError:
            offered = f" that offers {resources}" if resources else ""
            raise ConfigError(
                f"No worker{offered} answered within {PROBE_SECONDS:.0f} s."
            ) from None
        except (FutureCancelledError, OSError):
            raise ClusterLostError(LOST) from None
        except KilledWorker as killed:  # a coincidence, or the module ends its process: try again
            error = describe(killed)
    if error is not None:
        raise ConfigError(
            f"The workers cannot load {name}: {error}. Install '{name.partition(':')[0]}' on the workers, or refer to "
            "the function by its file (module.py:function); in Python, cloudpickle.register_pickle_by_value(module) "
            "sends the module to the workers."
        )


def _load_error(payload: bytes) -> str | None:
    try:
        load_function(payload)
    except Exception as error:  # the worker boundary
        return describe(error)
    return None


def _run_in_thread(
    source: MapSource, spec: MapSpec, client: Client, journal: Journal, stack: ExitStack
) -> Iterator[ItemResult]:
    """Run the loop in a thread: results wait for a slow caller, and the loop does not."""
    results: queue.SimpleQueue[ItemResult | None] = queue.SimpleQueue()
    source.on_result = results.put
    errors: list[BaseException] = []

    def work() -> None:
        try:
            with stack:
                _check_function(spec, client)
                with _published(source, client):
                    run_source(source, client, journal, _settings(spec), say=log.warning)
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)
        finally:
            results.put(None)

    loop = threading.Thread(target=work, name="daskmetrics-map", daemon=True)
    loop.start()
    try:
        while (result := results.get()) is not None:
            yield result
    finally:
        source.stop()
        loop.join()
    for error in errors:
        raise error
