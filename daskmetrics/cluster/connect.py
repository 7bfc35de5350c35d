"""From a profile to a client, and back to nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import dask
from distributed import Client

from daskmetrics.cluster.existing import existing_client
from daskmetrics.cluster.local import local_cluster
from daskmetrics.cluster.settings import dask_settings, private_prefix
from daskmetrics.config import Cluster
from daskmetrics.errors import ConfigError


@contextmanager
def connect(profile: Cluster) -> Iterator[Client]:
    """A client whose workers can take work; the cluster ends with the context.

    Parameters
    ----------
    profile : Cluster
        Where to run, and how large.

    Raises
    ------
    ConfigError
        If no worker arrives in time, or workers lack the resources ``GPU`` and ``CPU``, without which work would
        wait for ever.
    """
    with ExitStack() as stack:
        prefix = private_prefix()
        stack.enter_context(dask.config.set(dask_settings(profile, prefix)))
        stack.enter_context(_quiet_shutdown())
        client = stack.enter_context(_client(profile, prefix))
        _wait_for_workers(client, profile)
        yield client


@contextmanager
def _client(profile: Cluster, prefix: str) -> Iterator[Client]:
    if profile.kind == "existing":
        with existing_client(profile) as client:
            yield client
        return
    if profile.kind == "slurm":
        from daskmetrics.cluster.slurm import slurm_cluster

        cluster = slurm_cluster(profile, prefix)
    elif profile.kind == "allocation":
        from daskmetrics.cluster.allocation import allocation_cluster

        cluster = allocation_cluster(profile, prefix)
    else:
        cluster = local_cluster(profile, prefix)
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client


def _wait_for_workers(client: Client, profile: Cluster) -> None:
    try:
        client.wait_for_workers(1, timeout=profile.patience)
    except TimeoutError:
        raise ConfigError(
            f"No worker arrived within {profile.patience:.0f} s on the {profile.kind} cluster. For Slurm see "
            f"'squeue --me' and the job logs in '{profile.logs}'; cluster.arrive_within sets the wait."
        ) from None
    for address, worker in workers(client).items():
        lacking = [name for name in ("GPU", "CPU") if not worker["resources"].get(name)]
        if lacking:
            raise ConfigError(
                f"Worker {address} offers no resource {' or '.join(lacking)}, so that work would wait for ever. "
                'Start workers with: dask worker ... --resources "GPU=1 CPU=1" (also where there is no GPU).'
            )


def workers(client: Client) -> Mapping[str, Any]:
    """The workers that the scheduler knows now, by address.

    Asked of the scheduler itself: the client's cached ``scheduler_info`` can lack some.
    """
    return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])


@contextmanager
def _quiet_shutdown() -> Iterator[None]:
    """Closing a cluster logs lost connections, which are meant: keep them from the user's screen."""
    loggers = [logging.getLogger(name) for name in ("distributed", "tornado.application", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
