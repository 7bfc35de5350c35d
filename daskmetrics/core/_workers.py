"""The workers that a Dask client has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from daskmetrics.core.errors import ClusterLostError


class _Client(Protocol):
    """What is used of a `distributed.Client`, which this package must not import."""

    scheduler: Any

    def sync(self, func: Any, **kwargs: Any) -> Any: ...


def workers(client: _Client) -> Mapping[str, Any]:
    """The workers that the scheduler knows now, by address.

    Asked of the scheduler itself: the client's cached ``scheduler_info`` can lack some.

    Raises
    ------
    ClusterLostError
        If it does not answer.
    """
    try:
        return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    except OSError as error:
        raise ClusterLostError(f"The scheduler went away ({error}).") from None
