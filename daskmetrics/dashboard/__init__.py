"""Pages of ours in the Dask dashboard: the run, and training; and our numbers on its ``/metrics``.

============ ===================================================================
`feed`       the driver's side: the journal's entries on their way
`desk`       the scheduler's side: hears them, and looks at the workers
`board`      what a page shows of a run, as arrays
`curves`     what a page shows of training
`page`       the page of the run
`training`   the page of training
`gauges`     the numbers for Prometheus
`preload`    what a scheduler loads to have all of it
============ ===================================================================

The pages read and never compute: the board is a replay of the journal, beliefs come ready from the driver. A scheduler
that somebody else starts has them with ``dask scheduler --preload daskmetrics.dashboard._preload``.
"""

from daskmetrics.dashboard._publisher import Feed

__all__ = ["Feed"]
