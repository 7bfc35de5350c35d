"""Durable execution on Dask: work units, their records, the journal, and the loop that runs a
source.

The loop handles futures, faults and retries, and does not know what is computed; a source decides
which units are next, and does not know Dask. A resumed run answers its source from the journal and
continues.

=========== =================================================================
`loop`      the loop as a state machine: messages in, actions out
`placement` chooses the worker for each unit, and says why none takes it
`_units`    work units, the sources that ask for them, and settings
`runner`    runs the loop on Dask, with any client or cluster of the user
`_worker`   runs one attempt on a worker, and stops it at its deadline
`journal`   the append-only file of records, and the lock of a run
`handshake` the identity and versions of a new worker
`stopping`  signals that stop a run
`display`   progress on the user's screen
`map`       any function over any items
=========== =================================================================

Modules with a leading underscore are internal.
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use
from daskmetrics.domain.record import Record
from daskmetrics.domain.retry import RetryPolicy
from daskmetrics.execution._units import Settings, Source, Sweep, WorkUnit
from daskmetrics.execution.journal import Journal

if TYPE_CHECKING:
    from daskmetrics.execution.runner import run

__all__ = [
    "Journal",
    "Record",
    "RetryPolicy",
    "Settings",
    "Source",
    "Sweep",
    "WorkUnit",
    "run",
]

# a journal needs no Dask
__getattr__ = on_first_use(__name__, {"run": "daskmetrics.execution.runner:run"})
