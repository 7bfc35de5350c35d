from __future__ import annotations

import pytest

from daskmetrics.cluster._links import Seat, ways

LINK = "http://127.0.0.1:8787/secret/status"


@pytest.mark.parametrize("kind", ["local", "existing"])
def test_at_ones_own_machine_the_link_is_enough(kind):
    assert ways(LINK, kind, Seat.of({}, "ada", "laptop")) == [f"Dashboard: {LINK}"]


def test_through_ssh_there_are_a_tunnel_and_jupyters_path():
    lines = ways(LINK, "local", Seat.of({"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, "ada", "login1"))
    assert [line.split(":  ")[-1].strip() for line in lines[1:]] == [
        "ssh -N -L 8787:127.0.0.1:8787 ada@login1",
        "/proxy/8787/secret/status",
    ]


def test_from_a_compute_node_the_way_leads_over_the_login_node():
    seat = Seat.of({"SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}, "ada", "node3")
    assert "ssh -N -J ada@login1 -L 8787:127.0.0.1:8787 ada@node3" in ways(LINK, "slurm", seat)[1]


def test_below_a_hub_jupyters_path_begins_with_the_users():
    seat = Seat.of({"JUPYTERHUB_SERVICE_PREFIX": "/user/ada/"}, "ada", "hub")
    assert ways(LINK, "local", seat)[2].endswith("/user/ada/proxy/8787/secret/status")


def test_the_dashboard_of_somebody_elses_scheduler_is_only_named():
    link = "http://10.0.0.7:8787/status"
    seat = Seat.of({"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}, "ada", "login1")
    assert ways(link, "existing", seat) == [f"Dashboard: {link}"]
