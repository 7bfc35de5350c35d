"""A cluster object for notebooks that stays open until it is closed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from html import escape
from typing import Any

from distributed import Client

from daskmetrics.cluster.connection import connect, import_early
from daskmetrics.cluster.links import here, link_lines
from daskmetrics.cluster.slurm.commands import queue_text
from daskmetrics.cluster.slurm.script import job_name
from daskmetrics.config import Cluster
from daskmetrics.config import cluster as read_profile
from daskmetrics.core.machine import workers
from daskmetrics.core.table import Table


class ProfileCluster:
    """Workers of a profile; they end with `close`, or with a ``with`` block.

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
        profile: str | Mapping[str, Any] | Cluster = "local",
        *,
        run: str = "notebook",
        **changes: Any,
    ) -> None:
        if isinstance(profile, Cluster):
            profile = profile.model_dump()
        self.profile = read_profile(profile, **changes)
        self.run = run
        import_early(self.profile)
        self._stack = ExitStack()
        self._client: Client | None = self._stack.enter_context(
            connect(self.profile, self.run, wait=False)
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
    def status(self) -> str:
        """What Dask's client asks of the cluster that it connects to."""
        return str(self.client.status)

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

    def adapt(self, **limits: Any) -> Any:
        """Let the number of workers follow the work, see `distributed.deploy.Cluster.adapt`.

        Examples
        --------
        >>> cluster.adapt(minimum=1, maximum=8)  # doctest: +SKIP
        """
        return self.client.cluster.adapt(**limits)

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {text}" for name, text in self._facts().items())
        return f"<ProfileCluster {facts}>"

    def _repr_html_(self) -> str:
        title = f"Cluster: daskmetrics {self.profile.kind}"
        rows = tuple(self._facts().items())
        if self._client is None:
            return Table((), rows, title).as_html()
        link, *explanation = link_lines(self.dashboard_link, self.profile.kind, here())
        table = Table((), rows, title, notes=tuple(explanation)).as_html()
        return f'{table}<a href="{escape(self.dashboard_link)}" target="_blank">{escape(link)}</a>'

    def _facts(self) -> dict[str, str]:
        if self._client is None:
            return {"state": "closed"}
        facts = {"workers": f"{len(workers(self.client))} of {self.profile.workers} have arrived"}
        if self.profile.kind == "slurm":
            facts["jobs"] = queue_text(job_name(self.run))
        return {**facts, "scheduler": self.scheduler_address}
