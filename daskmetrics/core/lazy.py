"""Names that a package imports on first use, so that a command that does not need them is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any


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
