"""Connects to the cluster of a profile: starts it, waits for its workers, ends it again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from html import escape
from typing import Any

from distributed import Client

from daskmetrics.cluster.links import link_lines
from daskmetrics.cluster.places import DASK_REMEDY, import_early, place_of
from daskmetrics.cluster.slurm.commands import queue_text
from daskmetrics.cluster.slurm.script import job_name
from daskmetrics.config import Cluster
from daskmetrics.config import cluster as read_profile
from daskmetrics.core.errors import ConfigError, describe
from daskmetrics.core.files import home
from daskmetrics.core.machine import workers
from daskmetrics.core.text import OnMessage, plural

POLL = 0.1  # seconds between two checks for the first worker

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
    place = place_of(profile)
    place.require()
    if place.starts:
        on_start(f"Starting {plural(profile.workers)} ({place.starts}) ...")
    with ExitStack() as stack:
        try:
            client = stack.enter_context(place.start(run, on_message))
        except RuntimeError as error:
            # what the system refused to a scheduler that starts, such as one more open file
            cause = error.__cause__ or error
            refused = cause.__cause__
            if isinstance(refused, OSError):
                raise refused from None
            reason = describe(cause).rstrip(".")
            raise ConfigError(f"The cluster cannot start: {reason}. {DASK_REMEDY}") from None
        link = client.dashboard_link
        if profile.is_ours:
            link = f"{link.removesuffix('status')}{page}"
        for line in link_lines(link, profile.in_slurm):
            on_start(line)
        _wait_for_workers(client, profile, wait)
        yield client


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


class ProfileCluster:
    """Workers of a profile for a notebook.

    They end with `close`, or with a ``with`` block.

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
        link, *explanation = map(escape, link_lines(self.dashboard_link, self.profile.in_slurm))
        address = escape(self.dashboard_link)
        return f'{page}<a href="{address}">{link}</a><pre>{"<br>".join(explanation)}</pre>'
