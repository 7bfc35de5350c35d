"""How to open the dashboard of a running cluster: its private link, also through ssh and through
Jupyter.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from daskmetrics.core.files import atomic_write
from daskmetrics.core.machine import user_name

# variables of a process whose user works on another machine
REMOTE = frozenset({"SSH_CONNECTION", "SLURM_JOB_ID", "JUPYTERHUB_SERVICE_PREFIX"})


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


def link_lines(link: str, kind: str) -> list[str]:
    """Lines that explain how to open a dashboard; only the link if the user's browser runs on this
    machine, as it does unless this is a job or the user is connected by ssh.

    On a login node these are, for instance::

        Dashboard: http://127.0.0.1:8787/abc/status
          first, on your own machine:  ssh -N -L 8787:127.0.0.1:8787 ada@login1
          in Jupyter on login1:        /proxy/8787/abc/status

    >>> link_lines("http://elsewhere:8787/status", "existing")
    ['Dashboard: http://elsewhere:8787/status']
    """
    lines = [f"Dashboard: {link}"]
    url = urlsplit(link)
    port = url.port
    # other people's dashboards listen anywhere
    is_ours = port is not None and url.hostname == "127.0.0.1"
    is_remote = kind in ("slurm", "allocation") or not REMOTE.isdisjoint(os.environ)
    if not (is_ours and is_remote):
        return lines
    user = user_name()
    host = socket.gethostname()
    # the machine that the job was submitted from, if this is a compute node: ssh jumps over it
    login = os.environ.get("SLURM_SUBMIT_HOST", host)
    jump = f"-J {user}@{login} " if login != host else ""
    jupyter = os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/")
    rows = {
        "first, on your own machine:": f"ssh -N {jump}-L {port}:127.0.0.1:{port} {user}@{host}",
        f"in Jupyter on {host}:": f"{jupyter}proxy/{port}{url.path}",
    }
    width = max(map(len, rows))
    return lines + [f"  {name:<{width}}  {text}" for name, text in rows.items()]
