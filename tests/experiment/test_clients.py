from __future__ import annotations

import os

import pytest
from distributed import Client, LocalCluster

from daskmetrics.cluster import shared_folder
from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.runner import client_of
from daskmetrics.experiment.given_workers import _first_unseen, require_workers

LOCAL = {"dashboard_address": "127.0.0.1:0", "processes": False, "protocol": "inproc"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_workers": 1, "resources": {"CPU": 1}}, "No worker offers the resource GPU"),
        ({"n_workers": 0}, "No worker arrived within 1 s"),
    ],
)
def test_workers_that_cannot_run_units_are_refused(options, message, tmp_path):
    with LocalCluster(**options, **LOCAL) as cluster, Client(cluster) as given:
        with pytest.raises(ConfigError, match=message):
            require_workers(given, tmp_path, [], patience=1)
        assert given.status == "running"


def test_workers_must_see_the_files_of_the_run(client, tmp_path, monkeypatch):
    assert require_workers(client, tmp_path, [str(tmp_path)], 10) == "CPU"
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="does not see '/no/such/folder'"):
        require_workers(client, tmp_path, [str(tmp_path), "/no/such/folder"], 10)
    # a folder of the same name on another disk is not shared
    monkeypatch.setattr(shared_folder, "VISIBLE_WITHIN", 0.5)
    file = tmp_path / "marker"  # what the driver wrote into its own folder of this name
    assert _first_unseen(file, "text", []) == str(tmp_path)
    file.write_text("text")
    assert _first_unseen(file, "text", []) is None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12
def test_a_client_is_refused_in_a_child_that_was_forked(client):
    child = os.fork()
    if not child:
        code = 1
        try:
            with client_of(client):
                pass
        except ConfigError as error:
            code = int("before this process was forked" not in str(error))
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_clients_of_users_stay_open(client):
    with client_of(client) as own:
        assert own is client
    assert client.status == "running"
    with pytest.raises(ConfigError, match="cluster: got a str"), client_of("tcp://a:1"):
        pass
    with LocalCluster(n_workers=0, **LOCAL) as cluster:
        with Client(cluster) as given:
            pass
        with pytest.raises(ConfigError, match="cluster: it is not connected"), client_of(given):
            pass
