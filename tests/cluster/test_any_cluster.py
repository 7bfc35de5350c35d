"""One small experiment through each kind of cluster that runs here: its scores are equal, bit for
bit.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster, Security
from rich.console import Console

import daskmetrics as dm
from daskmetrics import config, experiment
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution.runner import client_of
from daskmetrics.experiment import Display
from tests.slurm.site import comes_true

TINY = {
    "name": "tiny",
    "models": [{"name": "a", "train": {"width": 8, "depth": 1, "steps": 1}}],
    "corpus": {"prompts": 8},
    "metrics": ["prompt_entropy"],
    "tasks": ["stdlib:order"],
    "search": {"budget": 1.0},
}
LOCAL = {
    "n_workers": 1,
    "threads_per_worker": 1,
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
}


@pytest.fixture(scope="module", autouse=True)
def one_suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this module's, so that the suite is trained once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def run(folder: Path, given: Any = None, **cluster: Any) -> tuple[dm.Run, str]:
    """The experiment on a given client or cluster, or by a profile; its results, and what the
    screen showed.
    """
    prepared, screen = experiment.prepare(config.parse({**TINY, "cluster": cluster})), io.StringIO()
    with Display(Console(file=screen, width=200)) as display:
        if given is None:
            experiment.run(prepared, RunFolder(folder), display)
        else:
            with client_of(given) as client:
                experiment.run(prepared, RunFolder(folder), display, client)
    return dm.open(folder), screen.getvalue()


@pytest.fixture(scope="module")
def expected(client: Client, one_suite: None, tmp_path_factory: pytest.TempPathFactory) -> dm.Run:
    found, _ = run(tmp_path_factory.mktemp("expected") / "run", client)
    assert found.scores.notnull().to_array().all()
    return found


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Files of certificates, as a site hands them out."""
    folder, made = tmp_path_factory.mktemp("tls"), Security.temporary()
    texts = {"ca": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}
    for name, text in texts.items():
        (folder / f"{name}.pem").write_text(text)
    return {name: str(folder / f"{name}.pem") for name in texts}


@pytest.fixture(scope="module")
def secure(tls: dict[str, str]) -> Iterator[LocalCluster]:
    """A cluster that demands TLS; its worker offers no resources."""
    names = {
        f"tls_{role}_{file}": tls[file]
        for role in ("client", "scheduler", "worker")
        for file in ("cert", "key")
    }
    security = Security(tls_ca_file=tls["ca"], require_encryption=True, **names)
    with LocalCluster(**LOCAL, protocol="tls://", security=security) as cluster:
        yield cluster


def twice(item: int) -> int:
    return 2 * item


def test_a_cluster_object_runs_an_experiment_and_a_map(secure, expected, tmp_path):
    found, _ = run(tmp_path / "cluster", secure)
    assert found.scores.equals(expected.scores) and found.metrics.equals(expected.metrics)
    # that its worker offers no GPU is said
    results = dm.map(twice, range(3), client=secure, journal=tmp_path / "m", resources={"GPU": 1})
    assert sorted(result.value for result in results) == [0, 2, 4]


def test_an_existing_scheduler_with_tls(secure, tls, expected, tmp_path):
    address = secure.scheduler_address
    settings = {"ca-file": tls["ca"], "client.cert": tls["cert"], "client.key": tls["key"]}
    with dask.config.set({f"distributed.comm.tls.{key}": path for key, path in settings.items()}):
        result, _ = run(tmp_path / "run", kind="existing", address=address)
    assert result.scores.equals(expected.scores)


def test_a_scheduler_that_demands_tls_needs_certificates(secure, tmp_path):
    with pytest.raises(ConfigError, match=r"distributed\.comm\.tls"):
        run(tmp_path / "run", kind="existing", address=secure.scheduler_address)


def test_a_factory_whose_workers_offer_only_gpu(expected, tmp_path):
    kwargs = {**LOCAL, "n_workers": 0, "resources": {"GPU": 1}}
    factory = {"module": "distributed", "class": "LocalCluster", "kwargs": kwargs}
    found, shown = run(tmp_path / "run", kind="factory", factory=factory, workers=1)
    assert found.scores.equals(expected.scores)
    assert "the workers that offer GPU also score the tasks" in shown


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"module": "dask_cudda"}, "cannot be imported .* pip install dask-cudda"),
        (
            {"class": "LocalClutser"},
            "Unknown class of distributed 'LocalClutser'. Did you mean 'LocalCluster'",
        ),
        (
            {"class": "SSHCluster", "kwargs": {"hosts": []}},
            "did not make a cluster: ValueError.*its kwargs are: hosts",
        ),
    ],
)
def test_a_factory_that_cannot_work_is_an_error(changed, message, tmp_path):
    factory = {"module": "distributed", "class": "LocalCluster", **changed}
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", kind="factory", factory=factory)


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A server of SSH on loopback, as options that connect to it."""
    pytest.importorskip("asyncssh", reason="needs asyncssh (extra 'dev')")
    server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if server is None:
        pytest.skip("needs sshd (Debian's openssh-server), which .ci/run installs")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # the server demands it of root
    for name in ("host", "own"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True
        )
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = os.environ.keys() & {"PYTHONPATH", "DASKMETRICS_CACHE"}
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "own.pub",
        "PermitRootLogin": "yes",
        "StrictModes": "no",
        "PidFile": "none",
        "SetEnv": " ".join(f"{name}={os.environ[name]}" for name in names),
    }
    (tmp_path / "sshd_config").write_text(
        "".join(f"{name} {value}\n" for name, value in settings.items())
    )
    process = subprocess.Popen(
        [server, "-D", "-f", str(tmp_path / "sshd_config"), "-E", str(tmp_path / "sshd.log")]
    )
    try:
        assert comes_true(lambda: _listens(port), within=60), (tmp_path / "sshd.log").read_text()
        yield {
            "port": port,
            "known_hosts": None,
            "client_keys": [str(tmp_path / "own")],
            "config": None,
        }
    finally:
        process.terminate()
        process.wait()


def test_a_factory_for_ssh(ssh, expected, tmp_path):
    kwargs = {
        "connect_options": ssh,
        "remote_python": sys.executable,
        "worker_options": {"nthreads": 1},
        "scheduler_options": {"dashboard_address": "127.0.0.1:0"},
    }
    factory = {
        "module": "distributed",
        "class": "SSHCluster",
        "kwargs": {"hosts": ["127.0.0.1", "127.0.0.1"], **kwargs},
    }
    # its hosts fix the number of workers
    found, _ = run(tmp_path / "run", kind="factory", factory=factory, workers=4)
    assert found.scores.equals(expected.scores)


def test_an_asynchronous_client_of_a_notebook(expected, tmp_path):
    async def cell() -> dm.Run:
        async with (
            LocalCluster(asynchronous=True, **LOCAL) as cluster,
            Client(cluster, asynchronous=True, set_as_default=False) as given,
        ):
            with pytest.raises(ConfigError, match="background=True"):
                dm.run(TINY, client=given, folder=tmp_path / "run")
            running = dm.run(TINY, client=given, folder=tmp_path / "run", background=True)
            async with running:
                with pytest.raises(ConfigError, match="Use 'async with'"), running:
                    pass
                with pytest.raises(ConfigError, match="await run"):
                    running.wait()
            return await running

    assert asyncio.run(cell()).scores.equals(expected.scores)
