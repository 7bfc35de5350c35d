"""The places where workers run: one class for each kind of a profile."""

from __future__ import annotations

import resource
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, ClassVar, Protocol

import dask
import psutil
from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.utils import get_ip_interface

from daskmetrics.cluster._certificates import cluster_security
from daskmetrics.cluster._client import CLOSE_WITHIN, client_of, close
from daskmetrics.cluster._dask_config import (
    TEMPORARY,
    TIMEOUTS,
    factory_settings,
    in_force,
    own_settings,
    starting,
)
from daskmetrics.cluster.links import PrivateDashboard
from daskmetrics.cluster.slurm._cluster import SlurmCluster
from daskmetrics.cluster.slurm.allocation import job_steps
from daskmetrics.cluster.slurm.commands import require
from daskmetrics.cluster.slurm.script import RESOURCES
from daskmetrics.config import Cluster, Factory
from daskmetrics.core.errors import ClusterLostError, ConfigError, foreign_errors, unknown
from daskmetrics.core.files import atomic_write, cache_folder, temporary_variables
from daskmetrics.core.machine import interfaces, is_free, variable
from daskmetrics.core.text import OnMessage, plural, size_text

FILES, FILES_PER_WORKER = 32, 16  # files that a driver of local workers opens
WORKER_MEMORY = 70 * 10**6  # bytes of a process of Dask before it does any work
CLOSE_AGAIN = 10.0  # seconds for a cluster whose worker did not end in time
DASK_REMEDY = "Correct Dask's configuration: its files, or variables DASK_..."


class Place(Protocol):
    """Where workers run."""

    @property
    def starts(self) -> str:
        """What `start` starts, in words for the user; empty if it runs already."""

    def require(self) -> None:
        """Raise ConfigError if this process cannot start it."""

    @contextmanager
    def start(self, run: str, on_message: OnMessage) -> Iterator[Client]:
        """A client of it; what was started ends with the block."""


def place_of(profile: Cluster) -> Place:
    """The place that a profile describes."""
    return PLACES[profile.kind](profile)


def import_early(profile: Cluster) -> None:
    """Import the class that a profile names: dask-jobqueue needs the main thread for it."""
    if profile.factory is not None:
        _class_of(profile.factory)


@dataclass(frozen=True)
class ThisMachine:
    """Processes on this machine, each running one unit at a time under a nanny."""

    starts: ClassVar[str] = "local"

    profile: Cluster

    def require(self) -> None:
        workers = self.profile.workers
        # without the connections to its workers these would never be ready
        needed = FILES + FILES_PER_WORKER * workers
        allowed, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed < needed:
            raise ConfigError(
                f"A process may open {allowed} files; with {plural(workers)} it needs {needed}:"
                f" ulimit -n {needed} (at most {hard_limit}), or fewer --workers."
            )
        memory = psutil.virtual_memory().available
        if workers * WORKER_MEMORY > memory:
            raise ConfigError(
                f"{plural(workers)} take {size_text(workers * WORKER_MEMORY)} of memory"
                f" before they do any work, and this machine has {size_text(memory)} free: at most"
                f" --workers {memory // WORKER_MEMORY}."
            )
        _require_scheduler(self.profile)

    @contextmanager
    def start(self, run: str, on_message: OnMessage) -> Iterator[Client]:
        profile = self.profile
        host = "127.0.0.1"
        if profile.interface:
            host = get_ip_interface(profile.interface)
        with _own_scheduler(profile) as prefix:
            temporary = dask.config.get(TEMPORARY)
            security = cluster_security()
            with _without_interrupts():
                cluster = _LocalCluster(
                    n_workers=0,
                    threads_per_worker=1,
                    processes=True,
                    host=host,
                    security=security,
                    dashboard_address=f"127.0.0.1:{profile.dashboard_port or 0}",
                    worker_dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"http_prefix": prefix},
                    memory_limit=profile.memory or 0,
                    resources=RESOURCES,
                    local_directory=temporary,
                    env=temporary_variables(temporary),
                )
            cluster.prefix = prefix
            cluster.new_spec["options"]["dashboard"] = False  # a worker's pages have no prefix
            cluster.scale(profile.workers)
            with client_of(cluster, on_message) as client:
                yield client


@dataclass(frozen=True)
class SlurmJobs:
    """Slurm jobs; they end before the scheduler closes."""

    starts: ClassVar[str] = "slurm"

    profile: Cluster

    def require(self) -> None:
        require("sbatch")
        _require_scheduler(self.profile)

    @contextmanager
    def start(self, run: str, on_message: OnMessage) -> Iterator[Client]:
        with _own_scheduler(self.profile) as prefix:
            cluster = SlurmCluster(self.profile, run, prefix, on_message)
            with client_of(cluster, on_message) as client:
                try:
                    yield client
                except ClusterLostError as error:
                    raise cluster.problem or error from None
                finally:
                    close(cluster.supervisor.end, on_message)


@dataclass(frozen=True)
class PresentJob:
    """Steps of the Slurm job that this process runs in."""

    starts: ClassVar[str] = "allocation"

    profile: Cluster

    def require(self) -> None:
        """What its scheduler needs: `start` asks Slurm for the job, once."""
        _require_scheduler(self.profile)

    @contextmanager
    def start(self, run: str, on_message: OnMessage) -> Iterator[Client]:
        with (
            _own_scheduler(self.profile) as prefix,
            job_steps(self.profile, prefix, on_message) as client,
        ):
            yield client


@dataclass(frozen=True)
class RunningScheduler:
    """A scheduler that runs already, given by its address or its scheduler file."""

    starts: ClassVar[str] = ""

    profile: Cluster

    def require(self) -> None:
        address = self.profile.address
        if not address:
            raise ConfigError(
                "cluster.kind is 'existing': give cluster.address (tcp://..., tls://... or a "
                "scheduler file)."
            )
        if "://" not in address and not Path(address).is_file():
            raise ConfigError(
                f"The scheduler file '{address}' does not exist. Write one with: "
                "dask scheduler --scheduler-file F"
            )

    @contextmanager
    def start(self, run: str, on_message: OnMessage) -> Iterator[Client]:
        address = self.profile.address or ""
        option = "address" if "://" in address else "scheduler_file"
        with in_force(TIMEOUTS):
            try:
                client = Client(
                    **{option: address},
                    set_as_default=False,
                    timeout=min(30.0, self.profile.patience),
                )
            # Dask has a TypeError or a RuntimeError for missing TLS
            except (OSError, TypeError, RuntimeError) as error:
                raise ConfigError(
                    f"No scheduler answers at '{address}': {error}. If it demands TLS, write "
                    "tls://HOST:PORT and set distributed.comm.tls in Dask's configuration."
                ) from None
            with client:
                yield client


@dataclass(frozen=True)
class OtherLibrary:
    """A cluster that a class of another library makes."""

    profile: Cluster

    @property
    def starts(self) -> str:
        return self._factory.class_

    @property
    def _factory(self) -> Factory:
        assert self.profile.factory is not None  # the profile was validated
        return self.profile.factory

    def require(self) -> None:
        _class_of(self._factory)

    @contextmanager
    def start(self, run: str, on_message: OnMessage) -> Iterator[Client]:
        profile = self.profile
        kwargs = self._factory.kwargs
        named = f"{self._factory.class_} of {self._factory.module}"
        remedy = f" See cluster.factory; its kwargs are: {', '.join(kwargs) or 'none'}."
        with starting(factory_settings(profile)):
            make = _class_of(self._factory)
            with foreign_errors(f"{named} did not make a cluster", remedy=remedy):
                cluster = make(**kwargs)
            with client_of(cluster, on_message) as client:
                if profile.fewest is not None:
                    cluster.adapt(minimum=profile.fewest, maximum=profile.workers)
                # without it the class fixes the workers, as the hosts of SSHCluster
                elif getattr(cluster, "new_spec", True):
                    cluster.scale(profile.workers)
                yield client


PLACES: Mapping[str, Callable[[Cluster], Place]] = {
    "local": ThisMachine,
    "slurm": SlurmJobs,
    "allocation": PresentJob,
    "existing": RunningScheduler,
    "factory": OtherLibrary,
}


class _LocalCluster(PrivateDashboard, LocalCluster):  # type: ignore[misc]  # distributed has no types
    """Processes on this machine; `problem` is why a process could not start."""

    problem: ConfigError | None = None

    def close(self, timeout: float | None = CLOSE_WITHIN) -> Any:
        """Close.

        A worker that does not end in time is no failure of what it did.
        """
        try:
            return super().close(timeout)
        # a loaded machine, or a process that waits for its disk
        except TimeoutError:
            # the nanny has given the process up; before 2026.8 Dask would wait for it for ever
            self.status = Status.failed
            with suppress(TimeoutError):
                return super().close(CLOSE_AGAIN)

    async def _correct_state_internal(self) -> None:
        try:
            with foreign_errors("A worker cannot start", remedy=f" {DASK_REMEDY}"):
                await super()._correct_state_internal()
        except ConfigError as error:  # in a task of Dask, for which no one waits
            self.problem = error


def kept_token(folder: Path) -> str:
    """The private path of dashboards with a configured port.

    It is the same for all runs, so that Prometheus finds them.
    """
    file = folder / "dashboard-path"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(file, secrets.token_urlsafe(16))
    return file.read_text().strip()


def _require_scheduler(profile: Cluster) -> None:
    """Raise ConfigError if a scheduler of ours cannot have its port or its interface."""
    port = profile.dashboard_port
    if port and not is_free(port):
        raise ConfigError(
            f"cluster.dashboard_port is {port}, but another process uses this port. Choose another"
            " one, or leave the key out for any free port."
        )
    if name := profile.interface:
        usable = [interface for interface, addresses in interfaces().items() if addresses]
        if name not in usable:
            raise ConfigError(
                f"The network interface '{name}' does not exist on {socket.gethostname()} or has no"
                f" address; with one are {', '.join(usable)}. Set cluster.interface to one that"
                " leads to the nodes; 'daskmetrics cluster show PROFILE' says where the present one"
                " comes from."
            )
    # a folder that cannot be written is found before anything starts
    _prefix(profile)


def _prefix(profile: Cluster) -> str:
    """An unguessable path: on a login node the loopback interface is shared."""
    token = secrets.token_urlsafe(16)
    if profile.dashboard_port:
        token = kept_token(cache_folder())
    return f"/{token}"


@contextmanager
def _own_scheduler(profile: Cluster) -> Iterator[str]:
    """Dask's configuration for a scheduler of ours, which starts within the block.

    The value is the path of its dashboard.
    """
    prefix = _prefix(profile)
    with starting(own_settings(profile, prefix)):
        yield prefix


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Threads that start within the block, and their child processes, get neither SIGINT nor SIGHUP.

    A terminal sends Ctrl-C, and the end of its session, to workers, too, and the driver handles
    them. A worker that is just starting would end with a traceback, and so would what tidies up
    for multiprocessing.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        # of a driver that was killed it would warn, although the next one continues
        with variable("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning"):
            resource_tracker.ensure_running()  # where it starts, SIGINT is let through again
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _class_of(source: Factory) -> Callable[..., Any]:
    handler = signal.getsignal(signal.SIGINT)
    try:
        module = import_module(source.module)
    except ImportError as error:
        package = source.module.partition(".")[0].replace("_", "-")
        raise ConfigError(
            f"cluster.factory.module: '{source.module}' cannot be imported ({error}). If it is not "
            f"installed here: pip install {package}"
        ) from None
    if threading.current_thread() is threading.main_thread():
        # dask-jobqueue replaces it by a sys.exit() for the whole process
        signal.signal(signal.SIGINT, handler)
    result: Callable[..., Any] | None = getattr(module, source.class_, None)
    if not callable(result):
        members = vars(module).items()
        names = [name for name, member in members if callable(member) and name[0] != "_"]
        raise unknown(f"class of {source.module}", source.class_, names)
    return result
