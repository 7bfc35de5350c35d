from __future__ import annotations

import logging
import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.nanny import WorkerProcess

from daskmetrics.cluster import ProfileCluster, connect
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.runner import client_of


def test_a_configured_port_keeps_its_link_or_is_refused_if_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        profile = Cluster(workers=1, dashboard_port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="another process uses this port"), connect(profile):
            pass
    links = []
    for _ in range(2):
        with connect(profile, wait=0) as client:
            links.append(client.dashboard_link)
            metrics = client.dashboard_link.replace("/status", "/metrics")
            assert b"daskmetrics_workers" in urllib.request.urlopen(metrics, timeout=30).read()
    assert links[0] == links[1] and f":{profile.dashboard_port}/" in links[0]


def test_a_private_path_is_kept_before_anything_starts(tmp_path, monkeypatch):
    file = tmp_path / "cache"
    file.touch()
    monkeypatch.setenv("DASKMETRICS_CACHE", str(file))
    lines: list[str] = []
    profile = Cluster(workers=1, dashboard_port=1024)
    with pytest.raises(OSError, match="cache"), connect(profile, on_start=lines.append):
        pass
    assert not lines


def test_workers_get_no_ctrl_c_or_hangup_however_young():
    with connect(Cluster(workers=1)) as client:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGINT)
        client.cluster.scale(2)
        client.wait_for_workers(2)
        for pid in client.run(os.getpid).values():
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGHUP)
            blocked = re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
            assert int(blocked[1], 16) & 1 << signal.SIGINT - 1
        assert len(client.run(os.getpid)) == 2
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_each_cluster_has_its_own_link_and_leaves_no_setting():
    before = dask.config.get("distributed")
    level = logging.getLogger("distributed").level
    first = ProfileCluster("local", workers=1)
    with ProfileCluster("local", workers=1):
        first.close()  # before the other one, which began later
    assert logging.getLogger("distributed").level == level
    with ProfileCluster("local", workers=1) as cluster, ProfileCluster("local", workers=1) as other:
        links = {cluster.dashboard_link, other.dashboard_link}
        assert len(links) == 2 and cluster.client.dashboard_link in links
        assert all(urllib.request.urlopen(link, timeout=30).status == 200 for link in links)
        cluster.client.wait_for_workers(1, timeout=120)
        page = cluster._repr_html_()
        assert "1 of 1 have arrived" in page and f'href="{cluster.dashboard_link}"' in page
        with Client(cluster, set_as_default=False) as client:  # it needs the certificates
            assert client.submit(sum, [2, 3]).result() == 5
    assert dask.config.get("distributed") == before
    assert repr(cluster) == "<ProfileCluster state: closed>" and "closed" in cluster._repr_html_()
    with pytest.raises(RuntimeError, match="closed"):
        cluster.scheduler_address  # noqa: B018
    with (
        pytest.raises(ConfigError, match="cluster: This cluster is closed"),
        client_of(cluster),
    ):
        pass


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("distributed.admin.low-level-log-length", "x", "TypeError"),
        (
            "distributed.nanny.preload",
            ["no_such_module"],
            "A worker cannot start: ModuleNotFoundError",
        ),
    ],
)
def test_a_value_that_dask_cannot_use_is_one_message_at_once(key, value, error):
    with (
        dask.config.set({key: value}),
        pytest.raises(ConfigError, match=rf"{error}.*Correct Dask's configuration"),
        connect(Cluster(workers=1, arrive_within=3600)),
    ):
        pass


def test_a_scheduler_awaits_its_first_worker_past_an_idle_limit():
    limit = {"distributed.scheduler.idle-timeout": "10ms"}
    with dask.config.set(limit), connect(Cluster(workers=1)) as client:
        assert client.submit(sum, [2, 3]).result() == 5


def test_a_worker_that_does_not_end_in_time_is_no_failure(monkeypatch):
    kill = WorkerProcess.kill

    async def kill_late(self: WorkerProcess, **options: object) -> None:
        await kill(self, **options)
        raise TimeoutError

    monkeypatch.setattr(WorkerProcess, "kill", kill_late)
    with connect(Cluster(workers=1)) as client:
        cluster = client.cluster
    assert cluster.status.name in ("closed", "closing")  # before 2026.8 Dask waits for this nanny


def test_the_dashboard_link_is_printed_before_any_worker_arrives():
    with LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster:
        lines: list[str] = []
        profile = Cluster(kind="existing", address=cluster.scheduler_address, arrive_within=1)
        with (
            pytest.raises(ConfigError, match="Only 0 of 1 workers arrived"),
            connect(profile, on_start=lines.append),
        ):
            pass
    assert lines == [f"Dashboard: {cluster.dashboard_link}"]


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        (Cluster(kind="existing"), "give cluster.address"),
        (Cluster(kind="existing", address="none.json"), "scheduler file 'none.json' does not"),
        (
            Cluster(kind="existing", address="tcp://127.0.0.1:1", arrive_within=1),
            "No scheduler answers",
        ),
        (Cluster(interface="ib9"), r"interface 'ib9' does not exist on .*cluster show"),
    ],
)
def test_a_profile_that_leads_nowhere_is_reported(profile, message):
    with pytest.raises(ConfigError, match=message), connect(profile):
        pass
