"""Workers as Slurm jobs: a cluster of Dask whose jobs a supervisor manages."""

from __future__ import annotations

import asyncio
import secrets
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from distributed import Scheduler, Security, SpecCluster

from daskmetrics.cluster._certificates import KeyFolder, cluster_security
from daskmetrics.cluster.links import PrivateDashboard
from daskmetrics.cluster.slurm import commands
from daskmetrics.cluster.slurm._supervisor import Supervisor, patiently
from daskmetrics.cluster.slurm.refusals import rehearse_workers
from daskmetrics.cluster.slurm.script import LaunchInfo
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, ConfigError
from daskmetrics.core.text import OnMessage


class PrivateCluster(PrivateDashboard, SpecCluster):  # type: ignore[misc]  # distributed has no types
    """An encrypted scheduler in this process, with its pages behind a prefix of this machine.

    Its workers are started by others.
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
    """A Dask cluster whose workers are Slurm jobs.

    Lost jobs are replaced. ConfigError if Slurm would refuse the jobs.

    `SpecCluster` starts the scheduler only: `Supervisor` submits the jobs, whose workers connect to
    it. `connect` has set Dask's configuration; ``prefix`` is part of it.
    """

    supervisor: Supervisor  # once the scheduler has started

    def __init__(self, profile: Cluster, run: str, prefix: str, on_message: OnMessage) -> None:
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

    def scale(self, n: int) -> None:
        """Set the number of workers of the main pool."""
        if self._supervision is not None:  # Dask scales a cluster that it closes to zero
            self.supervisor.scale(n, n)

    def adapt(self, minimum: int = 0, maximum: int = 1, **_: object) -> None:
        """Let the number of workers of the main pool follow the work between two limits.

        The lower is at least 1.
        """
        least = max(1, minimum)
        self.supervisor.scale(least, max(least, maximum))

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
        if line := commands.ignored_options():
            self._on_message(line)
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
            await asyncio.gather(self._supervision, return_exceptions=True)
            self._supervision = None
            await patiently(self.supervisor.end, lambda reason: None)
        await super()._close()
        self._keys.remove()
