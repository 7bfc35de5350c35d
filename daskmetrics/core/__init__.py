"""Tools that know nothing of runs: errors, files, keys, text. They need the standard library alone.

=============== =============================================================================
`keys`          keys and seeds that follow from content
`errors`        the exceptions of this package
`files`         the files of a run, and writing a file completely or not at all
`holder`        which process drives a run, and whether it has ended
`corpus`        the prompts that are measured
`rows`          the rows of a user's table, and the lines of a text file
`text`          durations, counts, lists and steps as text, and durations read from text
`serialization` results as one JSON document
`table`         tables for a terminal, a spreadsheet and a page
`machine`       software and GPUs of this machine, and the workers of a Dask client
`main_module`   child processes that do not import the caller's main module
`content`       values in a form that is the same in every process
`user_code`     the version of a user's own code, from its syntax
`progress`      how far a long call is, and the time that is left
`telemetry`     what workers use over time: CPU, memory, network, disk, GPU
=============== =============================================================================

Modules with a leading underscore are internal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

__all__ = ["on_first_use"]


def on_first_use(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package (PEP 562) for names that stand elsewhere, as
    ``module:name``.

    >>> on_first_use("daskmetrics.core", {"duration": "daskmetrics.core.text:duration"})("duration")(90)
    '1.5 min'
    """

    def getattr_of(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return resolve_name(places[name])

    return getattr_of
