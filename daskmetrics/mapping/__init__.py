"""Durable `map`: any function over any items, each recorded exactly once, whatever is killed or hangs meanwhile.

A `Map` is a third source of work beside a sweep and a search: batches of items. Keys come from content (the function's
source, the item, the seed), so that batches may be cut differently when a map is resumed.
"""

from typing import TYPE_CHECKING, Any

from daskmetrics.mapping.comparison import compare, folder_of, is_results
from daskmetrics.mapping.jobs import Job, give_chance, is_map, job, recorded, results
from daskmetrics.mapping.ledger import Ledger, Result
from daskmetrics.mapping.source import Map, Options
from daskmetrics.mapping.summary import aggregates, causes, summary_text
from daskmetrics.mapping.table import check_output, dataset, frame, write
from daskmetrics.mapping.verification import Difference, Verification, verify
from daskmetrics.mapping.words import seconds

if TYPE_CHECKING:
    from daskmetrics.mapping.driving import map, run, stream

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
    "seconds",
    "stream",
    "summary_text",
    "verify",
    "write",
]


def __getattr__(name: str) -> Any:
    # who only reads results need not wait for Dask
    if name in ("map", "run", "stream"):
        from daskmetrics.mapping import driving

        return getattr(driving, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
