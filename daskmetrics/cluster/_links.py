"""How to see a running cluster from elsewhere: the dashboard's link, through ssh, through Jupyter."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Seat:
    """Where this process sits, seen from the user's own machine.

    Attributes
    ----------
    user, host : str
    login : str or None
        The machine that the job was submitted from, if this is a compute node: the way leads over it.
    remote : bool
        Whether the user sits elsewhere: came by ssh, or this is a job.
    jupyter : str
        Below which path a Jupyter on this machine is served.
    """

    user: str
    host: str
    login: str | None = None
    remote: bool = False
    jupyter: str = "/"

    @classmethod
    def of(cls, environment: Mapping[str, str], user: str, host: str) -> Seat:
        """The seat that a process's environment speaks of.

        Examples
        --------
        >>> Seat.of({"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}, "ada", "node3").login
        'login1'
        """
        login = environment.get("SLURM_SUBMIT_HOST") if "SLURM_JOB_ID" in environment else None
        jupyter = environment.get("JUPYTERHUB_SERVICE_PREFIX", "/")
        remote = any(name in environment for name in ("SSH_CONNECTION", "SLURM_JOB_ID", "JUPYTERHUB_SERVICE_PREFIX"))
        return cls(user, host, login if login != host else None, remote, jupyter)


def here() -> Seat:
    """The seat of this process."""
    return Seat.of(os.environ, getpass.getuser(), socket.gethostname())


def ways(link: str, kind: str, seat: Seat) -> list[str]:
    """Lines that say how to open a dashboard: the link alone where the user's browser runs on this machine.

    Parameters
    ----------
    link : str
        As Dask has it, ``http://127.0.0.1:PORT/PREFIX/status``.
    kind : str
        Of the cluster.
    seat : Seat

    Examples
    --------
    >>> print(*ways("http://127.0.0.1:8787/abc/status", "slurm", Seat("ada", "login1", remote=True)), sep="\\n")
    Dashboard: http://127.0.0.1:8787/abc/status
      first, on your own machine:  ssh -N -L 8787:127.0.0.1:8787 ada@login1
      in Jupyter on login1:        /proxy/8787/abc/status
    """
    lines = [f"Dashboard: {link}"]
    place = urlsplit(link)
    ours = place.port is not None and place.hostname == "127.0.0.1"  # others' dashboards listen where they please
    if not (ours and (seat.remote or kind in ("slurm", "allocation"))):
        return lines
    jump = f"-J {seat.user}@{seat.login} " if seat.login else ""
    tunnel = f"ssh -N {jump}-L {place.port}:127.0.0.1:{place.port} {seat.user}@{seat.host}"
    rows = {
        "first, on your own machine:": tunnel,
        f"in Jupyter on {seat.host}:": f"{seat.jupyter}proxy/{place.port}{place.path}",
    }
    width = max(map(len, rows))
    return lines + [f"  {label:<{width}}  {text}" for label, text in rows.items()]
