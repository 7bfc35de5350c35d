"""Preload of the scheduler: requests without the private prefix get error 404.

The prefix alone does not hide a dashboard: Dask redirects ``/`` to it, and lists it in ``/sitemap.json``.
"""

from __future__ import annotations

from typing import Any

import dask
from tornado.web import ErrorHandler

PREFIX = "daskmetrics.dashboard-prefix"  # key of Dask's configuration under which the scheduler finds its prefix


def dask_setup(scheduler: Any) -> None:
    """Called by Dask with the new scheduler."""
    application, prefix = scheduler.http_application, dask.config.get(PREFIX)
    find = application.find_handler

    def find_below_prefix(request: Any, **options: Any) -> Any:
        if not request.path.startswith(f"{prefix}/"):
            return application.get_handler_delegate(request, ErrorHandler, {"status_code": 404})
        return find(request, **options)

    application.find_handler = find_below_prefix
