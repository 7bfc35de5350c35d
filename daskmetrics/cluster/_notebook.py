"""A cluster object that stays open until it is closed: for notebooks and JupyterLab's Dask panel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping
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

BOX = (
    "display: inline-block; padding: .7em 1em; border: 1px solid rgba(128, 128, 128, .45); border-radius: 6px; "
    "border-left: 4px solid #0072b2; color: inherit; background: rgba(128, 128, 128, .06); "
    "font-family: system-ui, sans-serif; font-size: 13px; line-height: 1.45"
)
CELL = "text-align: left; padding: .1em 1em .1em 0; color: inherit; background: none"


class ProfileCluster:
    """Workers of a profile; they end with `close`, or with a ``with`` block.

    Parameters
    ----------
    profile : str, mapping or Cluster
        A profile's name, its YAML file, or its keys.
    run : str
        Part of the names of its jobs.
    asynchronous : bool
        Whether it is used within an event loop, with ``await`` and ``async with``, as JupyterLab's
        extension does.
    **changes
        Keys that replace those of the profile, such as ``workers=4``.

    Raises
    ------
    ConfigError
        As `connect`; when it is awaited, if it is asynchronous.

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
        asynchronous: bool = False,
        **changes: Any,
    ) -> None:
        if isinstance(profile, Cluster):
            profile = profile.model_dump()
        self.profile = read_profile(profile, **changes)
        self.run = run
        self.asynchronous = asynchronous
        self._stack = ExitStack()
        self._client: Client | None = None
        import_early(self.profile)
        if not asynchronous:
            self._open()

    def _open(self) -> None:
        if self._client is None:
            self._client = self._stack.enter_context(connect(self.profile, self.run, wait=False))

    def _close(self) -> None:
        self._stack.close()
        self._client = None

    def close(self) -> Awaitable[None] | None:
        """End the workers; returns an awaitable if the cluster is asynchronous.

        Examples
        --------
        >>> cluster.close()  # doctest: +SKIP
        """
        if self.asynchronous:
            return asyncio.to_thread(self._close)
        self._close()
        return None

    def __await__(self) -> Generator[Any, Any, ProfileCluster]:
        async def open_() -> ProfileCluster:
            # as without an event loop: the cluster has its own loop in its own thread
            await asyncio.to_thread(self._open)
            return self

        return open_().__await__()

    def __enter__(self) -> ProfileCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    async def __aenter__(self) -> ProfileCluster:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._close)

    @property
    def client(self) -> Client:
        """A client that runs work on the cluster.

        Raises
        ------
        RuntimeError
            If the cluster is closed, or was not awaited yet.
        """
        if self._client is None:
            state = "not open: await it" if self.asynchronous else "closed"
            raise RuntimeError(f"This cluster is {state}")
        return self._client

    @property
    def name(self) -> str:
        return f"daskmetrics {self.profile.kind}"

    @property
    def status(self) -> str:
        if self._client is None:
            return "closed"
        return str(self._client.status)

    @property
    def security(self) -> Any:
        """The certificates that another client needs."""
        return self.client.security

    @property
    def scheduler_address(self) -> str:
        return str(self.client.scheduler.address)

    @property
    def scheduler_info(self) -> Mapping[str, Any]:
        """The workers that the scheduler knows, as Dask's panel expects it."""
        if self._client is None:
            return {"workers": {}}
        return {"workers": workers(self._client)}

    @property
    def dashboard_link(self) -> str:
        if self._client is None:
            return ""
        return str(self._client.dashboard_link)

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
        cells = {name: escape(text) for name, text in self._facts().items()}
        if link := self.dashboard_link:
            cells["dashboard"] = f'<a href="{escape(link)}" target="_blank">{escape(link)}</a>'
            for line in link_lines(link, self.profile.kind, here())[1:]:
                name, _, text = line.strip().partition(":")
                cells[escape(name)] = f"<code>{escape(text.strip())}</code>"
        rows = "".join(
            f'<tr style="background: none"><td style="{CELL}; opacity: .7; white-space: nowrap">{name}</td>'
            f'<td style="{CELL}">{text}</td></tr>'
            for name, text in cells.items()
        )
        return (
            f'<div style="{BOX}"><div style="font-weight: 600">Cluster: {escape(self.name)}</div>'
            '<table style="border-collapse: collapse; margin: 0; background: none; color: inherit">'
            f"{rows}</table></div>"
        )

    def _facts(self) -> dict[str, str]:
        if self._client is None:
            return {"state": "closed"}
        facts = {"workers": f"{len(workers(self.client))} of {self.profile.workers} have arrived"}
        if self.profile.kind == "slurm":
            facts["jobs"] = queue_text(job_name(self.run))
        return {**facts, "scheduler": self.scheduler_address}
