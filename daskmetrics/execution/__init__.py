"""Durable execution on Dask: work units, their records, the journal, and the loop that runs a source.

The loop handles futures, faults and retries, and does not know what is computed; a source decides which units are
next, and does not know Dask. A resumed run answers its source from the journal and continues.

=============== ========================================================================
`_units`        work units, and the protocols of sources and logs
`_loop`         the loop as a state machine: messages in, actions out
`_messages`     its messages and actions
`_placement`    chooses the worker for each unit
`_capacity`     how many workers have work, for ``status``
`_timers`       deadlines of running attempts, and patience without a worker
`_recorder`     commits the entries of a step together
`_retry`        what follows a failed attempt
`_runner`       runs the loop on Dask
`_clients`      a user's client or cluster of any class, as a synchronous client
`_stopping`     signals that stop a run
`_worker`       runs one attempt on a worker
`_deadline`     stops a call at its deadline
`_handshake`    the identity and versions of a new worker
`_display`      progress on the user's screen
`_journal`      the append-only file of records
`_lock`         the lock of a run
`_score_tables` known scores from a CSV file, mteb results or a run
`map`           any function over any items
=============== ========================================================================

Modules with a leading underscore are internal.
"""

from typing import TYPE_CHECKING

from daskmetrics.core._events import Record
from daskmetrics.core._lazy import on_first_use
from daskmetrics.core.errors import ClusterLostError
from daskmetrics.execution._journal import Journal
from daskmetrics.execution._retry import RetryPolicy, Settings
from daskmetrics.execution._units import Source, Sweep, WorkUnit

if TYPE_CHECKING:
    from daskmetrics.execution._runner import run

__all__ = ["ClusterLostError", "Journal", "Record", "RetryPolicy", "Settings", "Source", "Sweep", "WorkUnit", "run"]

__getattr__ = on_first_use(__name__, {"run": "daskmetrics.execution._runner:run"})  # a journal needs no Dask
