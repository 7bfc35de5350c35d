"""How to open the dashboard of a running cluster: its private link, also through ssh and through
Jupyter.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daskmetrics.core.files import atomic_write


class PrivateDashboard:
    """A Dask cluster whose own dashboard link has its prefix; Dask's setting would be the latest
    cluster's for all.
    """

    prefix = ""
    scheduler_info: Mapping[str, Any]

    @property
    def dashboard_link(self) -> str:
        # nothing before the scheduler has started
        port = self.scheduler_info.get("services", {}).get("dashboard")
        if not port:
            return ""
        return f"http://127.0.0.1:{port}{self.prefix}/status"


@dataclass(frozen=True)
class ProcessLocation:
    """Where this process runs, seen from the user's own machine."""

    user: str
    host: str
    # the machine that the job was submitted from, if this is a compute node: ssh jumps over it
    login: str | None = None
    # whether the user works on another machine: connected by ssh, or this is a job
    remote: bool = False
    jupyter: str = "/"  # the path below which a Jupyter on this machine is served

    @classmethod
    def of(cls, environment: Mapping[str, str], user: str, host: str) -> ProcessLocation:
        """The location that environment variables describe.

        >>> ProcessLocation.of({"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}, "ada", "node3").login
        'login1'
        """
        login = None
        if "SLURM_JOB_ID" in environment and environment.get("SLURM_SUBMIT_HOST") != host:
            login = environment.get("SLURM_SUBMIT_HOST")
        jupyter = environment.get("JUPYTERHUB_SERVICE_PREFIX", "/")
        remote = any(
            name in environment
            for name in ("SSH_CONNECTION", "SLURM_JOB_ID", "JUPYTERHUB_SERVICE_PREFIX")
        )
        return cls(user, host, login, remote, jupyter)


def here() -> ProcessLocation:
    """The location of this process."""
    return ProcessLocation.of(os.environ, getpass.getuser(), socket.gethostname())


def is_free(port: int) -> bool:
    """Whether no process of this machine listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def kept_token(folder: Path) -> str:
    """The private path of dashboards with a configured port: the same for all runs, so that
    Prometheus finds them.
    """
    file = folder / "dashboard-path"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(file, secrets.token_urlsafe(16))
    return file.read_text().strip()


def link_lines(
    link: str, kind: str, location: ProcessLocation, label: str = "Dashboard"
) -> list[str]:
    """Lines that explain how to open a dashboard; only the link if the user's browser runs on this
    machine.

    >>> login1 = ProcessLocation("ada", "login1", remote=True)
    >>> print(*link_lines("http://127.0.0.1:8787/abc/status", "slurm", login1), sep="\\n")
    Dashboard: http://127.0.0.1:8787/abc/status
      first, on your own machine:  ssh -N -L 8787:127.0.0.1:8787 ada@login1
      in Jupyter on login1:        /proxy/8787/abc/status
    """
    lines = [f"{label}: {link}"]
    url = urlsplit(link)
    port = url.port
    # other people's dashboards listen anywhere
    is_ours = port is not None and url.hostname == "127.0.0.1"
    if not (is_ours and (location.remote or kind in ("slurm", "allocation"))):
        return lines
    jump = ""
    if location.login:
        jump = f"-J {location.user}@{location.login} "
    tunnel = f"ssh -N {jump}-L {port}:127.0.0.1:{port} {location.user}@{location.host}"
    rows = {
        "first, on your own machine:": tunnel,
        f"in Jupyter on {location.host}:": f"{location.jupyter}proxy/{port}{url.path}",
    }
    width = max(map(len, rows))
    return lines + [f"  {name:<{width}}  {text}" for name, text in rows.items()]
