"""How to open the dashboard of a running cluster: its private link, also through ssh and through
Jupyter.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from daskmetrics.core.machine import user_name

# variables of a process whose user works on another machine
REMOTE = frozenset({"SSH_CONNECTION", "SLURM_JOB_ID", "JUPYTERHUB_SERVICE_PREFIX"})


class PrivateDashboard:
    """A Dask cluster whose own dashboard link has its prefix.

    Dask's setting would be the latest cluster's for all.
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


def link_lines(link: str, in_slurm: bool) -> list[str]:
    """Lines that explain how to open a dashboard.

    There is only the link if the user's browser runs on this machine, as it does unless this is a
    job or the user is connected by ssh.

    On a login node these are, for instance::

        Dashboard: http://127.0.0.1:8787/abc/status
          first, on your own machine:  ssh -N -L 8787:127.0.0.1:8787 ada@login1
          in Jupyter on login1:        /proxy/8787/abc/status

    >>> link_lines("http://elsewhere:8787/status", in_slurm=False)
    ['Dashboard: http://elsewhere:8787/status']
    """
    lines = [f"Dashboard: {link}"]
    url = urlsplit(link)
    port = url.port
    # other people's dashboards listen anywhere
    is_ours = port is not None and url.hostname == "127.0.0.1"
    is_remote = in_slurm or not REMOTE.isdisjoint(os.environ)
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
