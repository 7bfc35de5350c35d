from __future__ import annotations

import socket

import pytest

from daskmetrics.cluster.links import REMOTE, link_lines

LINK = "http://127.0.0.1:8787/secret/status"


@pytest.mark.parametrize(
    ("in_slurm", "environment", "host", "tunnel", "path"),
    [
        (False, {}, "laptop", "", ""),
        (True, {}, "login1", "ada@login1", "/proxy"),
        (False, {"SSH_CONNECTION": "1.2.3.4 5"}, "login1", "ada@login1", "/proxy"),
        (
            True,
            {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"},
            "node3",
            "ada@node3",
            "/proxy",
        ),
        (False, {"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"}, "hub", "ada@hub", "/user/ada/proxy"),
    ],
    ids=["laptop", "slurm", "ssh", "compute node", "jupyterhub"],
)
def test_remote_users_are_shown_a_tunnel_and_the_path_in_jupyter(
    in_slurm, environment, host, tunnel, path, monkeypatch
):
    for name in (*REMOTE, "SLURM_SUBMIT_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"LOGNAME": "ada", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    first, *explanation = link_lines(LINK, in_slurm)
    assert first == f"Dashboard: {LINK}" and bool(explanation) == bool(tunnel)
    if explanation:
        ssh, jupyter = explanation
        assert ssh.endswith(f"-L 8787:127.0.0.1:8787 {tunnel}")
        assert ("-J ada@login1" in ssh) == (host == "node3")
        assert jupyter.endswith(f" {path}/8787/secret/status")
