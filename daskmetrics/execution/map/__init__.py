"""Durable `map`: applies any function to any items, and records each item exactly once despite crashes and hangs.

A map is a third source of work, besides a sweep and a search: batches of items. Keys follow from content (the
function's source, the item, the seed), so a map may be resumed with another batch size.

============= ==========================================================================
`_api`        `map`, on a cluster or in this process
`_function`   the function: loaded, identified, pickled
`_items`      the items: keys, seeds, items of a file
`_source`     what is run (function, items, options) as a source of batches
`_tracker`    the state of each item: failures, batch limit, result
`_batch`      what runs on a worker
`_folder`     the run folder of a map: written, read
`_results`    results as tables, arrays and files
`_verify`     recorded results compared with a new run, and with a results file
============= ==========================================================================
"""

from typing import TYPE_CHECKING

from daskmetrics.core._lazy import on_first_use
from daskmetrics.execution.map._folder import results
from daskmetrics.execution.map._results import aggregates, causes, dataset, frame, write
from daskmetrics.execution.map._tracker import ItemResult
from daskmetrics.execution.map._verify import ResultDifference, Verification, compare, verify

if TYPE_CHECKING:
    from daskmetrics.execution.map._api import map

__all__ = [
    "ItemResult",
    "ResultDifference",
    "Verification",
    "aggregates",
    "causes",
    "compare",
    "dataset",
    "frame",
    "map",
    "results",
    "verify",
    "write",
]

__getattr__ = on_first_use(__name__, {"map": "daskmetrics.execution.map._api:map"})  # results need no Dask
