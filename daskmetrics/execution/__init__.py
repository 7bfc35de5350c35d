"""Durable execution on Dask: work units, their records, the journal, and the loop that runs a source.

The loop knows futures, faults and retries, and nothing of what is computed; a source knows what is wanted next, and
nothing of Dask. To resume is to tell a source what the journal holds and go on.
"""

from daskmetrics.execution.journal import Journal
from daskmetrics.execution.retry import RetryPolicy
from daskmetrics.execution.runner import ClusterLostError, Settings, run
from daskmetrics.execution.sweep import Sweep
from daskmetrics.execution.units import Record, Source, WorkUnit

__all__ = ["ClusterLostError", "Journal", "Record", "RetryPolicy", "Settings", "Source", "Sweep", "WorkUnit", "run"]
