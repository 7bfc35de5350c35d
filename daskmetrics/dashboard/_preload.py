"""Preload of a scheduler: adds the pages of daskmetrics to its dashboard.

Dask does not document its table of pages. If that table changes, the pages are missing and
everything else works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from distributed import Scheduler

log = logging.getLogger(__name__)


def _attempt(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # another version of Dask or bokeh may raise anything
        kind = type(error).__name__
        log.warning("The dashboard does not show daskmetrics: %s: %s", kind, error)


def _register() -> None:
    from distributed.dashboard import scheduler as dashboard

    from daskmetrics.dashboard import RUN_PAGE
    from daskmetrics.dashboard import _pages as pages

    dashboard.applications[f"/{RUN_PAGE}"] = pages.run_doc


_attempt(_register)


def dask_setup(scheduler: Scheduler) -> None:
    """Called by Dask with the new scheduler."""

    def add_plugin() -> None:
        from daskmetrics.dashboard._plugin import DashboardPlugin
        from daskmetrics.dashboard._prometheus import COLLECTOR

        plugin = DashboardPlugin(scheduler)
        scheduler.handlers["daskmetrics_receive"] = plugin.receive
        scheduler.add_plugin(plugin)
        COLLECTOR.plugins.append(plugin)

    _attempt(add_plugin)
