"""Workers as Slurm jobs: a cluster of Dask whose jobs our supervisor manages."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed import Scheduler, Security, SpecCluster

from daskmetrics.cluster._certificates import KeyFolder, cluster_security
from daskmetrics.cluster.links import PrivateDashboard
from daskmetrics.cluster.slurm._supervisor import Supervisor, patiently
from daskmetrics.cluster.slurm.commands import rehearse_workers, require
from daskmetrics.cluster.slurm.partitions import require_interface
from daskmetrics.cluster.slurm.script import LaunchInfo
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, ConfigError


class PrivateCluster(PrivateDashboard, SpecCluster):  # type: ignore[misc]  # distributed has no types
    """An encrypted scheduler in this process, with its pages behind a prefix of this machine; its
    workers are started by others.
    """

    def __init__(self, profile: Cluster, prefix: str, security: Security) -> None:
        self.prefix = prefix
        options = {
            "protocol": "tls://",
            "security": security,
            "interface": profile.interface,
            "dashboard_address": f"127.0.0.1:{profile.dashboard_port or 0}",
            "http_prefix": prefix,
        }
        super().__init__(
            scheduler={"cls": Scheduler, "options": options},
            security=security,
            silence_logs="error",
        )


class SlurmCluster(PrivateCluster):
    """A Dask cluster whose workers are Slurm jobs; lost jobs are replaced. ConfigError if Slurm
    would refuse the jobs.

    `SpecCluster` starts the scheduler only: `Supervisor` submits the jobs, whose workers connect to
    it. `connect` has set Dask's configuration; ``prefix`` is part of it.
    """

    supervisor: Supervisor  # once the scheduler has started

    def __init__(
        self, profile: Cluster, run: str, prefix: str, on_message: Callable[[str], None]
    ) -> None:
        require("sbatch")
        require_interface(profile.interface)
        logs = Path(profile.logs).absolute()
        security = cluster_security()
        self.profile = profile.model_copy(update={"logs": str(logs)})
        self._run = run
        self._on_message = on_message
        self._supervision: asyncio.Task[None] | None = None
        self._keys = KeyFolder(logs, security)
        with ExitStack() as stack:
            stack.callback(self._keys.remove)
            try:
                super().__init__(profile, prefix, security)
            except ConfigError:
                self.close()
                raise
            stack.pop_all()  # the cluster has started, and removes them when it ends

    @property
    def problem(self) -> ClusterLostError | None:
        """Why the supervisor has given up, or None while it works."""
        return self.supervisor.problem

    def scale(self, n: int, pool: str | None = None) -> None:
        """Set the number of workers of a pool (``gpu`` or ``cpu``), by default the main one."""
        if self._supervision is not None:  # Dask scales a cluster that it closes to zero
            self.supervisor.scale(n, n, pool)

    def adapt(
        self, minimum: int = 0, maximum: int = 1, pool: str | None = None, **_: Any
    ) -> SimpleNamespace:
        """Let the number of workers of a pool follow the work between two limits; the lower is at
        least 1.
        """
        limits = SimpleNamespace(minimum=max(1, minimum), maximum=max(1, minimum, maximum))
        self.supervisor.scale(limits.minimum, limits.maximum, pool)
        return limits

    async def _start(self) -> None:
        await super()._start()
        if self._supervision is not None:
            return
        launch = LaunchInfo(
            self.scheduler.address,
            run=self._run,
            owner=secrets.token_hex(8),
            python=sys.executable,
            tls=self._keys.files,
        )
        await patiently(
            partial(rehearse_workers, self.profile, launch),
            lambda reason: self._on_message(f"Slurm does not answer ({reason}): waiting for it."),
        )
        self.supervisor = Supervisor(
            self.profile, launch, self.scheduler, self._on_message, self._keys.path
        )
        self._supervision = asyncio.ensure_future(self.supervisor.run())

    async def _close(self) -> None:
        if self._supervision is not None:
            self._supervision.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervision
            self._supervision = None
            await asyncio.to_thread(self.supervisor.end)
        await super()._close()
        self._keys.remove()
