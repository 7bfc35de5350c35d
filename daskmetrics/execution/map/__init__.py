"""Durable `map`: applies any function to any items, and records each item exactly once despite
crashes and hangs.

A map is a third source of work, besides a sweep and a search: batches of items. Keys follow from
content (the function's source, the item, the seed), so a map may be resumed with another batch
size.

============== ==============================================================================
`api`          a map, on a cluster or in this process
`function`     what is mapped: the function, identified and called; the items, with their keys
`source`       what is run, the state of each item, and batches for the workers
`folder`       the run folder of a map: written, read, and compared with a new run or a file
`status`       how far a map is
`result_table` results as tables and files
============== ==============================================================================
"""

from daskmetrics.execution.map.folder import (
    ResultDifference,
    Verification,
    compare,
    results,
    verify,
)
from daskmetrics.execution.map.result_table import aggregates, causes, frame, write
from daskmetrics.execution.map.source import ItemResult

__all__ = [
    "ItemResult",
    "ResultDifference",
    "Verification",
    "aggregates",
    "causes",
    "compare",
    "frame",
    "results",
    "verify",
    "write",
]
