"""Preload of a scheduler: adds the pages of daskmetrics to its dashboard.

Dask does not document its table of pages. If that table changes, the pages are missing and
everything else works.
"""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)


def _register() -> None:
    try:
        from distributed.dashboard import scheduler as dashboard

        from daskmetrics.dashboard import RUN_PAGE, TRAINING_PAGE
        from daskmetrics.dashboard import _pages as pages

        dashboard.applications[f"/{RUN_PAGE}"] = pages.run_doc
        dashboard.applications[f"/{TRAINING_PAGE}"] = pages.training_doc
    except Exception as error:  # another version of Dask or bokeh may raise anything
        log.warning(
            "The dashboard has no pages of daskmetrics: %s: %s", type(error).__name__, error
        )


_register()


def dask_setup(scheduler: Any) -> None:
    """Called by Dask with the new scheduler."""
    from daskmetrics.dashboard._plugin import NAME, DashboardPlugin
    from daskmetrics.dashboard._prometheus import COLLECTOR

    try:
        plugin = DashboardPlugin(scheduler)
        scheduler.extensions[NAME] = plugin
        plugin.open()
        COLLECTOR.plugins.append(plugin)
    except Exception as error:
        log.warning("The dashboard does not show daskmetrics: %s: %s", type(error).__name__, error)
