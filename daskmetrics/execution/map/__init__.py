"""Durable `map`: any function over any items, each recorded exactly once, whatever is killed or hangs meanwhile.

A `Map` is a third source of work beside a sweep and a search: batches of items. Keys come from content (the function's
source, the item, the seed), so that batches may be cut differently when a map is resumed.
"""

from typing import TYPE_CHECKING, Any

from daskmetrics.execution.map._folder import Job, give_chance, is_map, job, recorded, results
from daskmetrics.execution.map._ledger import Ledger, Result
from daskmetrics.execution.map._results import aggregates, causes, check_output, dataset, frame, summary_text, write
from daskmetrics.execution.map._source import Map, Options
from daskmetrics.execution.map._verify import Difference, Verification, compare, folder_of, is_results, verify

if TYPE_CHECKING:
    from daskmetrics.execution.map._api import map, run, stream

__all__ = [
    "Difference",
    "Job",
    "Ledger",
    "Map",
    "Options",
    "Result",
    "Verification",
    "aggregates",
    "causes",
    "check_output",
    "compare",
    "dataset",
    "folder_of",
    "frame",
    "give_chance",
    "is_map",
    "is_results",
    "job",
    "map",
    "recorded",
    "results",
    "run",
    "stream",
    "summary_text",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    # who only reads results need not wait for Dask
    if name in ("map", "run", "stream"):
        from daskmetrics.execution.map import _api as api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
