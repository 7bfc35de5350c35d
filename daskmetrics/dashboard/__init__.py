"""Pages in the Dask dashboard for runs and trainings, and their numbers on ``/metrics``.

============= ==================================================================
`_publisher`  the driver's side: sends journal entries to the scheduler
`_plugin`     the scheduler's side: receives them, measures the workers
`_state`      the state of a run, as arrays
`_curves`     loss and speed of a training, by rank
`_pages`      the pages of a run and of trainings, with `_heatmap` and `_charts`
`_prometheus` the numbers for Prometheus
`_preload`    what a scheduler loads to have all of this
============= ==================================================================

Pages only read: the state follows from the journal, and the driver computes posteriors. A scheduler
of another program gets the pages with ``dask scheduler --preload daskmetrics.dashboard._preload``.
"""

from daskmetrics.dashboard._publisher import Publisher

__all__ = ["RUN_PAGE", "TRAINING_PAGE", "Publisher"]

#: The pages, as the dashboard's addresses end; "individual-" puts them into its menu and into
#: JupyterLab's panel.
RUN_PAGE, TRAINING_PAGE = "individual-daskmetrics", "individual-daskmetrics-training"
