"""Workers as Slurm jobs: dask-jobqueue's cluster, whose jobs our own supervisor manages."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import yaml
from distributed import Security

from daskmetrics.cluster._certificates import KeyFolder, cluster_security
from daskmetrics.cluster._links import PrivateDashboard
from daskmetrics.cluster.slurm import _commands
from daskmetrics.cluster.slurm._partitions import require_interface
from daskmetrics.cluster.slurm._script import LaunchInfo, script
from daskmetrics.cluster.slurm._supervisor import Supervisor, rehearse
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ClusterLostError, ConfigError

# importing dask-jobqueue replaces the handler of Ctrl-C by a sys.exit() for the whole process
_before = signal.getsignal(signal.SIGINT)
try:
    import dask_jobqueue
    from dask_jobqueue import SLURMCluster
except ImportError:
    raise ConfigError("A Slurm profile needs dask-jobqueue: pip install 'daskmetrics[slurm]'.") from None
except ValueError:  # Python allows this in the main thread only
    raise ConfigError(
        "Import daskmetrics.cluster.slurm._cluster in the main thread before another one uses it."
    ) from None
signal.signal(signal.SIGINT, _before)

_JOBQUEUE_DEFAULTS = yaml.safe_load(Path(dask_jobqueue.__file__).with_name("jobqueue.yaml").read_text())["jobqueue"][
    "slurm"
]

log = logging.getLogger(__name__)


class SlurmCluster(PrivateDashboard, SLURMCluster):  # type: ignore[misc]  # dask-jobqueue has no types
    """A Dask cluster whose workers are Slurm jobs; lost jobs are replaced. ConfigError if Slurm would refuse the jobs.

    It differs from dask-jobqueue's cluster in how jobs are managed: that one shows a lost job as running for ever, and
    does not report what Slurm refuses. `connect` has set Dask's configuration; ``prefix`` is part of it.
    """

    def __init__(self, profile: Cluster, run: str, prefix: str, on_message: Callable[[str], None]) -> None:
        _commands.require("sbatch")
        require_interface(profile.interface)
        logs, security = Path(profile.logs).absolute(), cluster_security()
        self.profile, self._run = profile.model_copy(update={"logs": str(logs)}), run
        self.prefix, self._on_message = prefix, on_message
        self._owner = secrets.token_hex(8)
        self._keys = KeyFolder(logs, security)
        self.supervisor: Supervisor | None = None
        self._supervision: asyncio.Task[None] | None = None
        pages = {"dashboard_address": f"127.0.0.1:{profile.dashboard_port or 0}", "http_prefix": prefix}
        try:
            # what of the user's jobqueue.yaml is used is part of the profile
            with dask.config.set({"jobqueue.slurm": _JOBQUEUE_DEFAULTS}):
                super().__init__(
                    n_workers=0,
                    cores=1,
                    memory="1GiB",  # of dask-jobqueue's own jobs, of which there are none
                    interface=profile.interface,
                    security=security,
                    scheduler_options={"interface": profile.interface, **pages},
                )
        except ConfigError:
            self.close()
            raise
        except BaseException:
            self._keys.remove()
            raise

    @property
    def problem(self) -> ClusterLostError | None:
        """Why the supervisor has given up, or None while it works."""
        return self.supervisor.problem if self.supervisor else None

    def job_script(self) -> str:
        """The script of a main job."""
        return script(self.profile, launch=self._launch_info())

    def scale(self, n: int | None = None, pool: str | None = None, *, jobs: int | None = None) -> None:
        """Set the number of workers, or of jobs, of a pool (``gpu`` or ``cpu``), by default the main one."""
        if (n is None) == (jobs is None):
            raise ConfigError(f"scale() takes either a number of workers or one of jobs, got n={n} and jobs={jobs}.")
        if self.supervisor:
            workers = n if n is not None else (jobs or 0) * self.supervisor.processes(pool)
            self.supervisor.scale(workers, workers, pool)

    def adapt(self, minimum: int = 0, maximum: int = 1, pool: str | None = None, **_: Any) -> SimpleNamespace:
        """Let the number of workers of a pool follow the work between two limits; the lower is at least 1."""
        limits = SimpleNamespace(minimum=max(1, minimum), maximum=max(1, minimum, maximum))
        if self.supervisor:
            self.supervisor.scale(limits.minimum, limits.maximum, pool)
        return limits

    def end_jobs(self) -> None:
        """Cancel all jobs now, before the scheduler closes."""
        if self.supervisor:
            self.supervisor.end()

    def _launch_info(self) -> LaunchInfo:
        return LaunchInfo(
            self.scheduler.address, run=self._run, owner=self._owner, python=sys.executable, tls=self._keys.files
        )

    def _get_worker_security(self, security: Security) -> None:
        """None, so that dask-jobqueue writes no keys: its files would outlive a killed driver."""

    async def _start(self) -> None:
        await super()._start()
        if self.supervisor is None:
            launch = self._launch_info()
            await asyncio.to_thread(rehearse, self.profile, launch)
            self.supervisor = Supervisor(self.profile, launch, self.scheduler, self._on_message, self._keys.path)
            self._supervision = asyncio.ensure_future(self.supervisor.run())

    async def _close(self) -> None:
        if self._supervision:
            self._supervision.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervision
            self._supervision = None
        if self.supervisor:
            await asyncio.to_thread(self.supervisor.end)
        await super()._close()
        self._keys.remove()
