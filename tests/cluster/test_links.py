from __future__ import annotations

import pytest

from daskmetrics.cluster.links import ProcessLocation, link_lines

LINK = "http://127.0.0.1:8787/secret/status"


@pytest.mark.parametrize("kind", ["local", "existing"])
def test_on_the_users_own_machine_only_the_link_is_printed(kind):
    assert link_lines(LINK, kind, ProcessLocation.of({}, "ada", "laptop")) == [f"Dashboard: {LINK}"]


def test_after_ssh_a_tunnel_and_the_path_in_jupyter_are_printed():
    lines = link_lines(
        LINK,
        "local",
        ProcessLocation.of({"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, "ada", "login1"),
    )
    assert [line.split(":  ")[-1].strip() for line in lines[1:]] == [
        "ssh -N -L 8787:127.0.0.1:8787 ada@login1",
        "/proxy/8787/secret/status",
    ]


def test_the_tunnel_to_a_compute_node_jumps_over_the_login_node():
    location = ProcessLocation.of(
        {"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}, "ada", "node3"
    )
    assert (
        "ssh -N -J ada@login1 -L 8787:127.0.0.1:8787 ada@node3"
        in link_lines(LINK, "slurm", location)[1]
    )


def test_below_a_jupyterhub_the_path_begins_with_the_users_prefix():
    location = ProcessLocation.of({"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"}, "ada", "hub")
    assert link_lines(LINK, "local", location)[2].endswith("/user/ada/proxy/8787/secret/status")
