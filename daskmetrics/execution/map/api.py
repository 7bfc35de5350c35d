"""`map`, which applies any function to any items durably, and its variant in the current
process.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from copy import copy
from pathlib import Path

from distributed import Client
from distributed.scheduler import KilledWorker

from daskmetrics.core.errors import ClusterLostError, ConfigError, describe, room_for
from daskmetrics.core.files import RunFolder, expanded
from daskmetrics.core.machine import workers
from daskmetrics.core.text import parse_duration
from daskmetrics.domain.events import MAP, UnitAsked
from daskmetrics.execution import Journal, Record, RetryPolicy, Settings
from daskmetrics.execution import run as run_source
from daskmetrics.execution.map.folder import begin, continued
from daskmetrics.execution.map.function import load_function, run_batch
from daskmetrics.execution.map.source import ItemResult, MapOptions, MapSource, MapSpec, make_spec
from daskmetrics.execution.runner import LOST, PLAIN, client_of

# The source itself halves a batch that died or was stopped, and tries failed items again. What
# remains is the rare exception of a whole batch, for instance a module that is missing on one node:
# another worker may succeed.
RETRY = RetryPolicy(exceptions=3, deaths=1, memory=1, timeouts=1)
PUBLISH_EVERY = 1.0  # seconds
PROBES = 3
PROBE_SECONDS = 120.0

log = logging.getLogger(__name__)


def map(
    function: Callable[..., object],
    iterable: Iterable[object],
    *,
    client: object,
    journal: str | Path,
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
        Of any class, also an asynchronous one; it stays open. Its workers are other processes, and
        should have one thread each.
    journal : str or Path
        The folder of the journal, which is created if it does not exist.
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
        If the function cannot be pickled or loaded on the workers, an item has no reproducible
        content, or the workers are threads of this process.
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
    options = MapOptions(
        batch_size, retries, parse_duration(timeout), copy(resources or {}), checkpoint_interval
    )
    spec = make_spec(function, iterable, options, seed=seed, version=version)
    return _stream(spec, client, _absolute(journal))


def _stream(spec: MapSpec, given: object, folder: Path) -> Iterator[ItemResult]:
    """Recorded results, and then those of a thread that runs the loop.

    Results wait for a slow caller, and the loop does not.
    """
    results: queue.SimpleQueue[ItemResult | BaseException | None] = queue.SimpleQueue()

    def end(kind: object, error: BaseException | None, trace: object) -> bool:
        results.put(error)  # raised again in the caller's thread
        return True

    with client_of(given) as client, ExitStack() as stack:
        journal = stack.enter_context(open_journal(folder))
        source = MapSource(continued(spec, journal.entries), journal.entries)
        yield from source.tracker.results()
        begin(source, journal)
        if not source.tracker.unfinished():
            return
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
) -> list[ItemResult]:
    """Run a map to its end and return its results in the order of its items.

    Errors as for `map`.

    Without a client, the items run in this process, one after the other, for debugging. The values
    are the same, but an item that hangs is not stopped, and an item that kills its process ends the
    run. Each new result is recorded and then passed to ``on_result``; messages for the user, such
    as a lost worker, are passed to ``say``. A batch whose worker exceeds its memory waits for a
    larger worker, up to ``most_memory`` bytes.
    """
    source = MapSource(spec, journal.entries)
    source.on_result = on_result
    begin(source, journal, say)
    if not source.tracker.unfinished():
        return source.tracker.results()
    if client is not None:
        _run_on(client, source, journal, say, most_memory)
        return source.tracker.results()
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
    return source.tracker.results()


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
    counts = Counter(result.status for result in tracker.results())
    next_listener, due = source.on_result, 0.0

    def publish() -> None:
        # the scheduler is gone: the loop notices and ends the run with a message
        with suppress(OSError):
            client.log_event(MAP, {"items": len(tracker.states), "counts": dict(counts)})

    def on_result(result: ItemResult) -> None:
        nonlocal due
        next_listener(result)
        counts[result.status] += 1
        if time.monotonic() >= due:
            due = time.monotonic() + PUBLISH_EVERY
            publish()

    source.on_result = on_result
    commit_every = max(1, options.checkpoint_interval // options.batch_size)
    settings = Settings(retry=RETRY, commit_every=commit_every, most_memory=most_memory)
    run_source(source, client, journal, settings, say=say)
    publish()


def open_journal(path: str | Path) -> Journal:
    """The journal of a folder, which is created if it does not exist."""
    folder = RunFolder(_absolute(path)).create()
    return Journal(folder.journal, folder.lock)


def _absolute(path: str | Path) -> Path:
    """The path of a journal's folder, also after a change of the current one."""
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
