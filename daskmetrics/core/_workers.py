"""The workers of a Dask client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from daskmetrics.core.errors import ClusterLostError


class _Client(Protocol):
    """The part of `distributed.Client` that is used; this package does not import Dask."""

    scheduler: Any

    def sync(self, func: Any, **kwargs: Any) -> Any: ...


def workers(client: _Client) -> Mapping[str, Any]:
    """The workers that the scheduler knows now, by address.

    The scheduler is asked directly, because the cached ``scheduler_info`` of the client can miss some.

    Raises
    ------
    ClusterLostError
        If the scheduler does not answer.
    """
    try:
        return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    except OSError as error:
        raise ClusterLostError(f"The scheduler does not answer ({error}).") from None
