"""`map`: any function over any items, durable; and the same in this process alone."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.scheduler import KilledWorker

from daskmetrics.core._files import RunFolder
from daskmetrics.core._times import parse_duration
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution import Journal, Record, RetryPolicy, Settings
from daskmetrics.execution import run as run_source
from daskmetrics.execution._worker import describe
from daskmetrics.execution.map._batch import loaded, run_batch
from daskmetrics.execution.map._folder import Job, begin, job
from daskmetrics.execution.map._ledger import Result
from daskmetrics.execution.map._source import Map, Options

# The map itself halves a batch that died or was stopped, and tries an item again. What remains is the rare exception
# of a batch as a whole, such as a module that one node lacks: another worker may do it.
POLICY = RetryPolicy(exceptions=3, deaths=1, memory=1, timeouts=1)
PROBES = 3
PROBE_SECONDS = 120.0

log = logging.getLogger(__name__)


def map(
    function: Callable[..., Any],
    iterable: Iterable[Any],
    *,
    client: Client,
    journal: Journal | str | Path,
    batch_size: int = 1,
    retries: int = 3,
    timeout: float | str | None = "5m",
    resources: Mapping[str, float] | None = None,
    seed: int = 0,
    version: str | None = None,
) -> Iterator[Result]:
    """Apply a function to every item on the workers of a client, and yield one result per item as they come.

    What the journal holds already comes first and is not computed again. An item that raises is tried again and then
    recorded as failed, with its traceback; one that kills its worker, hangs or takes too much memory is found by
    halving its batch, and its neighbours are run again.

    Parameters
    ----------
    function : callable
        Called as ``function(item)``. If it has a parameter ``seed``, it gets 32 bits that belong to the item; if it
        has one named ``batch_size``, the number of items in the batch that is running. It returns what JSON holds:
        numbers, text, None, lists, dicts with text as keys; arrays become lists.
    iterable : iterable
        The items: numbers, text, lists, dicts, arrays, dataclasses. It is read to its end at once.
    client : distributed.Client
        Its workers should have one thread each.
    journal : Journal, str or Path
        An open journal, or a folder: it is made if it does not exist.
    batch_size : int
        Items per call of a worker; each batch costs some milliseconds.
    retries : int
        How often an item that failed is tried again.
    timeout : float or str, optional
        Seconds that one item may take, or text such as ``90s``, ``5m``, ``2h``.
    resources : mapping, optional
        What a batch occupies of a worker, for instance ``{"GPU": 1}``.
    seed : int
        Of the run; another seed makes other items.
    version : str, optional
        Takes the place of the hash of the function's source in the items' keys.

    Yields
    ------
    Result
        In the order in which they are finished; `Result.index` tells the place in the iterable.

    Raises
    ------
    ConfigError
        If the function cannot travel to the workers or be loaded there, or an item has no content to be known by.
    LockedError
        If another process has the folder.
    ClusterLostError
        If the scheduler goes away. Call again to resume.

    Notes
    -----
    Leaving the loop early, or Ctrl-C, lets the running batches finish and records them.

    Examples
    --------
    >>> import daskmetrics as dm
    >>> for result in dm.map(step, range(500), client=client, journal="runs/step", batch_size=10):  # doctest: +SKIP
    ...     print(result.name, result.status, result.value)
    """
    options = Options(batch_size, retries, parse_duration(timeout), dict(resources or {}))
    return stream(job(function, iterable, options, seed=seed, version=version), client, journal)


def stream(job: Job, client: Client, journal: Journal | str | Path) -> Iterator[Result]:
    """The results of a job as they come, as `map` gives them."""
    with ExitStack() as stack:
        journal = stack.enter_context(opened(journal))
        source = Map(job.function, job.items, job.options, journal.entries)
        yield from source.ledger.results()
        if source.ledger.open():
            begin(job, journal)
            # the loop closes the journal: it may outlive a caller who is stopped twice
            yield from _beside(source, job, client, journal, stack.pop_all())


def run(
    job: Job,
    client: Client | None,
    journal: Journal,
    on_result: Callable[[Result], None] = lambda result: None,
    say: Callable[[str], None] = log.warning,
) -> list[Result]:
    """Run a job to its end and return its results in the order of its items.

    Parameters
    ----------
    job : Job
    client : distributed.Client or None
        None runs the items in this process, one after the other: for debugging. The values are the same, but nothing
        stops an item that hangs, and one that kills its process ends all.
    journal : Journal
    on_result : callable
        Called with each new result, after it was journaled.
    say : callable
        Called with lines for the user: a pause, a worker that is missed.

    Raises
    ------
    ConfigError
        If the function cannot be loaded on the workers.
    ClusterLostError
        If the scheduler goes away. Run again to resume.
    """
    source = Map(job.function, job.items, job.options, journal.entries)
    source.on_result = on_result
    if source.ledger.open():
        begin(job, journal)
        if client is None:
            _serial(source, journal)
        else:
            _parallel(source, job, client, journal, say)
    return source.ledger.results()


@contextmanager
def opened(journal: Journal | str | Path) -> Iterator[Journal]:
    """A journal, or that of a folder, which is made if it does not exist."""
    if isinstance(journal, Journal):
        yield journal
        return
    place = RunFolder(Path(journal)).create()
    with Journal(place.journal, place.lock) as own:
        yield own


def probe(job: Job, client: Client) -> None:
    """Load the function on a worker, so that what is missing there is said at once.

    Raises
    ------
    ConfigError
        If it cannot be loaded.
    """
    error = _probed(job, client)
    if error is None:
        return
    module = job.function.name.partition(":")[0]
    raise ConfigError(
        f"The workers cannot load {job.function.name}: {error}. Install '{module}' where they run, or name the "
        "function by its file (module.py:function); in Python, cloudpickle.register_pickle_by_value(module) sends "
        "the module along."
    )


def _probed(job: Job, client: Client) -> str | None:
    resources = dict(job.options.resources)
    for left in reversed(range(PROBES)):
        future = client.submit(_probe, job.function.payload, pure=False, resources=resources)
        try:
            return future.result(timeout=PROBE_SECONDS)  # type: ignore[no-any-return]
        except TimeoutError:
            offered = f" that offers {resources}" if resources else ""
            raise ConfigError(f"No worker{offered} answered within {PROBE_SECONDS:.0f} s.") from None
        except KilledWorker as error:  # by chance, or by the function's module
            if not left:
                return describe(error)
    raise AssertionError("unreachable")


def _probe(payload: bytes) -> str | None:
    try:
        loaded(payload)
    except Exception as error:  # the worker boundary
        return describe(error)
    return None


def _serial(source: Map, journal: Journal) -> None:
    while units := source.ask(1):
        for unit in units:
            started = time.perf_counter()
            value = run_batch(*unit.args)
            took = time.perf_counter() - started
            record = Record(unit.key, unit.name, unit.kind, "ok", value, seconds=took, worker="serial")
            journal.append({"type": "ask", "key": unit.key, "name": unit.name, "note": dict(unit.note)})
            journal.append(record.entry())
            source.tell(record)


def _parallel(source: Map, job: Job, client: Client, journal: Journal, say: Callable[[str], None]) -> None:
    probe(job, client)
    run_source(source, client, journal, Settings(retry=POLICY), say=say)


def _beside(source: Map, job: Job, client: Client, journal: Journal, stack: ExitStack) -> Iterator[Result]:
    """Runs the loop beside the caller, who may be slow: results wait for the caller, and never the loop."""
    came: queue.SimpleQueue[Result | None] = queue.SimpleQueue()
    source.on_result = came.put
    problems: list[BaseException] = []

    def work() -> None:
        try:
            with stack:
                _parallel(source, job, client, journal, log.warning)
        except BaseException as error:  # raised again where the caller is
            problems.append(error)
        finally:
            came.put(None)

    loop = threading.Thread(target=work, name="daskmetrics-map", daemon=True)
    loop.start()
    try:
        while (result := came.get()) is not None:
            yield result
    finally:
        source.stop()
        loop.join()
    for problem in problems:
        raise problem
