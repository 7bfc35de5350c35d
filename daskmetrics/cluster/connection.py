"""Starts the cluster of a profile and ends it again: on this machine, on Slurm, or as another
library does.
"""

from __future__ import annotations

import logging
import resource
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from html import escape
from importlib import import_module
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import dask
import psutil
from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.utils import get_ip_interface

from daskmetrics.cluster._certificates import cluster_security
from daskmetrics.cluster._client import client_of, close
from daskmetrics.cluster._dask_config import (
    TEMPORARY,
    dask_settings,
    in_force,
    temporary_settings,
)
from daskmetrics.cluster._preload import keep_time
from daskmetrics.cluster.links import PrivateDashboard, is_free, kept_token, link_lines
from daskmetrics.cluster.slurm._cluster import SlurmCluster
from daskmetrics.cluster.slurm.allocation import allocation_client
from daskmetrics.cluster.slurm.commands import queue_text, require
from daskmetrics.cluster.slurm.script import RESOURCES, job_name
from daskmetrics.config import Cluster, Factory
from daskmetrics.config import cluster as read_profile
from daskmetrics.core.errors import (
    ClusterLostError,
    ConfigError,
    describe,
    foreign_errors,
    unknown,
)
from daskmetrics.core.files import cache_folder, home, temporary_variables
from daskmetrics.core.machine import interfaces, variable, workers
from daskmetrics.core.main_module import main_not_imported
from daskmetrics.core.text import OnMessage, plural, size_text

POLL = 0.1  # seconds between two checks for the first worker
FILES, FILES_PER_WORKER = 32, 16  # files that a driver of local workers opens
WORKER_MEMORY = 70 * 10**6  # bytes of a process of Dask before it does any work
CLOSE_AGAIN = 10.0  # seconds for a cluster whose worker did not end in time

NANNY_PROCESS = "Dask Worker process (from Nanny)"
"""The name that `distributed.nanny` gives to the process of each worker, also to one that it restarts."""

# each has a level of its own
QUIET = ("distributed", "distributed.client", "tornado.application", "asyncio", "bokeh")

_quiet_lock = threading.Lock()
_quiet_blocks = 0
_levels: dict[str, int] = {}  # of loggers that are quiet now

log = logging.getLogger(__name__)


@contextmanager
def connect(
    profile: Cluster,
    run: str = "session",
    on_message: OnMessage = log.warning,
    *,
    on_start: OnMessage = lambda line: None,
    wait: int = 1,
    page: str = "status",
) -> Iterator[Client]:
    """A client whose workers take work; the cluster ends with the context.

    Parameters
    ----------
    profile : Cluster
        Where to run, and how large.
    run : str
        Name of the run; part of the names of Slurm jobs.
    on_message : callable
        Called with lines for the user, possibly from another thread: why jobs wait, which were
        lost.
    on_start : callable
        Called with lines for the user before the first worker arrives: what was started, and how to
        open the dashboard.
    wait : int
        How many workers to wait for.
    page : str
        The page of the dashboard that the link in these lines opens; the scheduler of another
        program or library may lack it, so its link is not changed.

    Raises
    ------
    ConfigError
        If they do not arrive in time, Slurm would refuse the jobs, no scheduler answers, or a class
        cannot make its cluster.
    ClusterLostError
        Also within the context, if jobs fail one after the other.

    Examples
    --------
    >>> with connect(Cluster(workers=1)) as client:
    ...     client.submit(sum, [1, 2], resources={"CPU": 1}).result()
    3
    """
    home()  # without one, Dask's pages do not start
    if profile.dashboard_port and not is_free(profile.dashboard_port):
        raise ConfigError(
            f"cluster.dashboard_port is {profile.dashboard_port}, but another process uses this "
            "port. Choose another one, or leave the key out for any free port."
        )
    if profile.kind == "slurm":
        require("sbatch")
    if profile.interface and profile.kind not in ("existing", "factory"):
        _require_interface(profile.interface)
    # an unguessable path of the dashboard: on a login node the loopback interface is shared
    token = secrets.token_urlsafe(16)
    if profile.dashboard_port:
        token = kept_token(cache_folder())
    prefix = f"/{token}"
    keep_time()
    with ExitStack() as stack:
        settings = dict(dask_settings(profile, prefix))
        if profile.kind != "existing":
            settings |= stack.enter_context(temporary_settings())
        stack.enter_context(in_force(settings))
        stack.enter_context(_quiet_disconnects())
        if profile.kind != "existing":
            kind: str = profile.kind
            if profile.factory:
                kind = profile.factory.class_
            on_start(f"Starting {plural(profile.workers, 'worker')} ({kind}) ...")
            stack.enter_context(main_not_imported(NANNY_PROCESS))
        try:
            client = stack.enter_context(_client(profile, prefix, run, on_message))
        except RuntimeError as error:
            # what the system refused to a scheduler that starts, such as one more open file
            cause = error.__cause__ or error
            refused = cause.__cause__
            if isinstance(refused, OSError):
                raise refused from None
            raise ConfigError(
                f"The cluster cannot start: {describe(cause).rstrip('.')}. Correct Dask's "
                "configuration: its files, or variables DASK_..."
            ) from None
        link = client.dashboard_link
        if profile.kind not in ("existing", "factory"):
            link = f"{link.removesuffix('status')}{page}"
        for line in link_lines(link, profile.kind):
            on_start(line)
        _wait_for_workers(client, profile, wait)
        yield client


def import_early(profile: Cluster) -> None:
    """Import the class that a profile names: dask-jobqueue can be imported in the main thread
    only.
    """
    if profile.factory is not None:
        _class_of(profile.factory)


def _client(
    profile: Cluster, prefix: str, run: str, on_message: OnMessage
) -> AbstractContextManager[Client]:
    match profile.kind:
        case "existing":
            return _existing_client(profile)
        case "factory":
            return _factory_client(profile, on_message)
        case "slurm":
            return _slurm_client(profile, prefix, run, on_message)
        case "allocation":
            return allocation_client(profile, prefix, on_message)
        case "local":
            return _local_client(profile, prefix, on_message)


def _require_interface(name: str) -> None:
    """Raise ConfigError if this machine has no network interface of this name, or none with an
    address.
    """
    usable = [interface for interface, addresses in interfaces().items() if addresses]
    if name not in usable:
        raise ConfigError(
            f"The network interface '{name}' does not exist on {socket.gethostname()} or has no"
            f" address; with one are {', '.join(usable)}. Set cluster.interface to one that leads"
            " to the nodes; 'daskmetrics cluster show PROFILE' says where the present one comes"
            " from."
        )


def _wait_for_workers(client: Client, profile: Cluster, count: int) -> None:
    deadline = time.monotonic() + profile.patience
    while (arrived := len(workers(client))) < count:
        if problem := getattr(client.cluster, "problem", None):
            raise problem
        if time.monotonic() >= deadline:
            raise ConfigError(
                f"Only {arrived} of {count} workers arrived within {profile.patience:.0f} s on the"
                f" {profile.kind} cluster. "
                f"On Slurm, see 'squeue --me' and the job logs in '{profile.logs}'. "
                "To wait longer, set cluster.arrive_within."
            )
        time.sleep(POLL)


@contextmanager
def _quiet_disconnects() -> Iterator[None]:
    """Hide the messages of lost connections: of a cluster that closes, of a browser that closes a
    page. Such blocks, of several clusters, may end in any order.
    """
    global _quiet_blocks
    with _quiet_lock:
        _quiet_blocks += 1
        for name in QUIET:
            logger = logging.getLogger(name)
            _levels.setdefault(name, logger.level)
            logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_blocks -= 1
            while _levels and not _quiet_blocks:
                name, level = _levels.popitem()
                logging.getLogger(name).setLevel(level)


class _LocalCluster(PrivateDashboard, LocalCluster):  # type: ignore[misc]  # distributed has no types
    """Processes on this machine; `problem` is why a process could not start."""

    problem: ConfigError | None = None

    def close(self, timeout: float | None = None) -> Any:
        """Close; a worker that does not end in time is no failure of what it did."""
        try:
            return super().close(timeout)
        # a loaded machine, or a process that waits for its disk
        except TimeoutError:
            # the nanny has given the process up; before 2026.8 Dask would wait for it for ever
            self.status = Status.failed
            with suppress(TimeoutError):
                return super().close(CLOSE_AGAIN)

    async def _correct_state_internal(self) -> None:
        remedy = " Correct Dask's configuration: its files, or variables DASK_..."
        try:
            with foreign_errors("A worker cannot start", remedy=remedy):
                await super()._correct_state_internal()
        except ConfigError as error:  # in a task of Dask, for which no one waits
            self.problem = error


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


@contextmanager
def _local_client(profile: Cluster, prefix: str, on_message: OnMessage) -> Iterator[Client]:
    """A client of processes on this machine, each running one unit at a time under a nanny that
    restarts it.
    """
    host = "127.0.0.1"
    if profile.interface:
        host = get_ip_interface(profile.interface)
    # without the connections to its workers these would never be ready
    needed = FILES + FILES_PER_WORKER * profile.workers
    allowed, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed < needed:
        raise ConfigError(
            f"A process may open {allowed} files; with {plural(profile.workers)} it needs {needed}:"
            f" ulimit -n {needed} (at most {hard_limit}), or fewer --workers."
        )
    memory = psutil.virtual_memory().available
    if profile.workers * WORKER_MEMORY > memory:
        raise ConfigError(
            f"{plural(profile.workers)} take {size_text(profile.workers * WORKER_MEMORY)} of memory"
            f" before they do any work, and this machine has {size_text(memory)} free: at most"
            f" --workers {memory // WORKER_MEMORY}."
        )
    temporary = dask.config.get(TEMPORARY)
    with _without_interrupts():
        cluster = _LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=True,
            host=host,
            security=cluster_security(),
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


@contextmanager
def _slurm_client(
    profile: Cluster, prefix: str, run: str, on_message: OnMessage
) -> Iterator[Client]:
    """A client of Slurm jobs; they are cancelled before the scheduler closes."""
    cluster = SlurmCluster(profile, run, prefix, on_message)
    with client_of(cluster, on_message) as client:
        try:
            yield client
        except ClusterLostError as error:
            raise cluster.problem or error from None
        finally:
            close(cluster.supervisor.end, on_message)  # before the scheduler closes


def _existing_client(profile: Cluster) -> AbstractContextManager[Client]:
    """A client of a running scheduler, given by its address or its scheduler file."""
    address = profile.address
    if not address:
        raise ConfigError(
            "cluster.kind is 'existing': give cluster.address (tcp://..., tls://... or a scheduler "
            "file)."
        )
    option = {"address": address}
    if "://" not in address:
        option = {"scheduler_file": address}
        if not Path(address).is_file():
            raise ConfigError(
                f"The scheduler file '{address}' does not exist. Write one with: "
                "dask scheduler --scheduler-file F"
            )
    try:
        client: AbstractContextManager[Client] = Client(
            **option, set_as_default=False, timeout=min(30.0, profile.patience)
        )
    # Dask has a TypeError or a RuntimeError for missing TLS
    except (OSError, TypeError, RuntimeError) as error:
        raise ConfigError(
            f"No scheduler answers at '{address}': {error}. If it demands TLS, write "
            "tls://HOST:PORT and set distributed.comm.tls in Dask's configuration."
        ) from None
    return client


@contextmanager
def _factory_client(profile: Cluster, on_message: OnMessage) -> Iterator[Client]:
    """A client of a cluster that a class of another library makes, with the workers of the
    profile.
    """
    source = profile.factory
    assert source is not None  # the profile was validated
    make = _class_of(source)
    named = f"{source.class_} of {source.module}"
    remedy = f" See cluster.factory; its kwargs are: {', '.join(source.kwargs) or 'none'}."
    with foreign_errors(f"{named} did not make a cluster", remedy=remedy):
        cluster = make(**source.kwargs)
    with client_of(cluster, on_message) as client:
        if profile.fewest is not None:
            cluster.adapt(minimum=profile.fewest, maximum=profile.workers)
        # without it the class fixes the workers, as the hosts of SSHCluster
        elif getattr(cluster, "new_spec", True):
            cluster.scale(profile.workers)
        yield client


def _class_of(source: Factory) -> Callable[..., Any]:
    """The class or function that a profile names; ConfigError if there is none."""
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


class ProfileCluster:
    """Workers of a profile for a notebook; they end with `close`, or with a ``with`` block.

    Parameters
    ----------
    profile : str, mapping or Cluster
        A profile's name, its YAML file, or its keys.
    run : str
        Part of the names of its jobs.
    **changes
        Keys that replace those of the profile, such as ``workers=4``.

    Raises
    ------
    ConfigError
        As `connect`.

    Examples
    --------
    >>> with ProfileCluster("local", workers=1) as cluster:  # doctest: +SKIP
    ...     cluster.client.submit(sum, [1, 2]).result()
    3
    """

    def __init__(
        self,
        profile: str | Mapping[str, object] | Cluster = "local",
        *,
        run: str = "notebook",
        **changes: object,
    ) -> None:
        if isinstance(profile, Cluster):
            profile = profile.model_dump()
        self.profile = read_profile(profile, **changes)
        self.run = run
        import_early(self.profile)
        self._stack = ExitStack()
        self._client: Client | None = self._stack.enter_context(
            connect(self.profile, self.run, wait=0)
        )

    def close(self) -> None:
        """End the workers.

        Examples
        --------
        >>> cluster.close()  # doctest: +SKIP
        """
        self._stack.close()
        self._client = None

    def __enter__(self) -> ProfileCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def client(self) -> Client:
        """A client that runs work on the cluster.

        Raises
        ------
        RuntimeError
            If the cluster is closed.
        """
        if self._client is None:
            raise RuntimeError("This cluster is closed")
        return self._client

    @property
    def status(self) -> Any:
        """What Dask's client asks of the cluster that it connects to."""
        return self.client.status

    @property
    def security(self) -> Any:
        """The certificates that another client needs."""
        return self.client.security

    @property
    def scheduler_address(self) -> str:
        return str(self.client.scheduler.address)

    @property
    def dashboard_link(self) -> str:
        return str(self.client.dashboard_link)

    def scale(self, n: int) -> None:
        """Set the number of workers.

        Examples
        --------
        >>> cluster.scale(4)  # doctest: +SKIP
        """
        self.client.cluster.scale(n)

    def __repr__(self) -> str:
        facts = {"state": "closed"}
        if self._client is not None:
            arrived = f"{len(workers(self.client))} of {self.profile.workers} have arrived"
            facts = {"workers": arrived, "scheduler": self.scheduler_address}
            if self.profile.kind == "slurm":
                facts["jobs"] = queue_text(job_name(self.run))
        return f"<ProfileCluster {', '.join(f'{name}: {text}' for name, text in facts.items())}>"

    def _repr_html_(self) -> str:
        page = f"<p>{escape(repr(self))}</p>"
        if self._client is None:
            return page
        link, *explanation = map(escape, link_lines(self.dashboard_link, self.profile.kind))
        address = escape(self.dashboard_link)
        return f'{page}<a href="{address}">{link}</a><pre>{"<br>".join(explanation)}</pre>'
