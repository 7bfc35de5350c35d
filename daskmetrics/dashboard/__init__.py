"""A page in the Dask dashboard for runs and trainings, their numbers on ``/metrics``, and figures.

============= ==================================================================
`drawing`     figures with Bokeh, for this page and the page of a report
`_publisher`  the driver's side: sends journal entries to the scheduler
`_plugin`     the scheduler's side: receives them, measures the workers
`_state`      the state of a run and of trainings, as arrays and curves
`_pages`      the page
`_prometheus` the numbers for Prometheus
`_preload`    what a scheduler loads to have all of this
============= ==================================================================

The page only reads: the state follows from the journal, and the driver computes posteriors. A
scheduler of another program gets the page with ``dask scheduler --preload
daskmetrics.dashboard._preload``.
"""

from typing import TYPE_CHECKING

from daskmetrics.core import on_first_use

if TYPE_CHECKING:
    from daskmetrics.dashboard._publisher import Publisher

__all__ = ["RUN_PAGE", "Publisher"]

#: The page, as the dashboard's address ends; "individual-" puts it into its menu and into
#: JupyterLab's panel.
RUN_PAGE = "individual-daskmetrics"

# figures need no scheduler
__getattr__ = on_first_use(__name__, {"Publisher": "daskmetrics.dashboard._publisher:Publisher"})
