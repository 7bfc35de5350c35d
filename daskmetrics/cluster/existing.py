"""A scheduler that somebody else started."""

from __future__ import annotations

from pathlib import Path

from distributed import Client

from daskmetrics.config import Cluster
from daskmetrics.errors import ConfigError


def existing_client(profile: Cluster) -> Client:
    """A client of a running scheduler, found by its address or its scheduler file."""
    if not profile.address:
        raise ConfigError(
            "cluster.kind is 'existing': give cluster.address (tcp://..., tls://... or a scheduler file)."
        )
    is_file = "://" not in profile.address
    if is_file and not Path(profile.address).is_file():
        raise ConfigError(
            f"There is no scheduler file '{profile.address}'. Write one with: dask scheduler --scheduler-file F"
        )
    where = {"scheduler_file": profile.address} if is_file else {"address": profile.address}
    try:
        return Client(**where, set_as_default=False, timeout=min(30.0, profile.patience))
    except OSError as error:
        raise ConfigError(f"No scheduler answers at '{profile.address}': {error}") from None
