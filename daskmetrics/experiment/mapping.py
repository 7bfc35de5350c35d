"""`map`, which applies any function to any items durably."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from pathlib import Path

from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.config.schema import name_of
from daskmetrics.core.files import RUNS
from daskmetrics.core.text import parse_duration
from daskmetrics.execution.map.api import journal_folder, stream
from daskmetrics.execution.map.source import ItemResult, MapOptions, make_spec


def map(
    function: Callable[..., object],
    iterable: Iterable[object],
    *,
    client: object = None,
    journal: str | Path | None = None,
    batch_size: int = MapOptions.batch_size,
    retries: int = MapOptions.retries,
    timeout: float | str | None = MapOptions.timeout,
    resources: Mapping[str, float] | None = None,
    seed: int = 0,
    version: str | None = None,
    checkpoint_interval: int = MapOptions.checkpoint_interval,
) -> Iterator[ItemResult]:
    """Apply a function to every item on workers, and yield one result per item as it finishes.

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
    client : distributed.Client or cluster of Dask, optional
        Of any class, also an asynchronous one; it stays open. Its workers are other processes, and
        should have one thread each. By default two workers are started on this machine.
    journal : str or Path, optional
        The folder of the journal, by default ``runs/NAME`` of the function. It is created if it
        does not exist.
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
    >>> for result in dm.map(step, range(500), batch_size=10):  # doctest: +SKIP
    ...     print(result.name, result.status, result.value)
    """
    options = MapOptions(
        batch_size, retries, parse_duration(timeout), copy(resources or {}), checkpoint_interval
    )
    spec = make_spec(function, iterable, options, seed=seed, version=version)
    if journal is None:
        journal = RUNS / name_of(spec.function.name.rpartition(":")[2])
    folder = journal_folder(journal)  # also after a change of the current one
    start = partial(connect, config.cluster(None), folder.name)
    return stream(spec, client, folder, start)
