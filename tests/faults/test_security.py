"""What a stranger on the same machine or network can reach, and what a foreign file can do:
nothing.

The cluster is the one that `daskmetrics.cluster.connection` makes (fixture ``client``).
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
import torch
from distributed import Client, Security
from rich.console import Console
from safetensors.torch import load_file, save_file

from daskmetrics import config, experiment, report
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.machine import workers
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.models import LoadedModel
from tests.models.architectures import encode

PREFIX = re.compile(r"http://127\.0\.0\.1:\d+(/[\w-]{20,})/(?:status|individual-daskmetrics)")


def stranger(address: str, **how) -> None:
    Client(address, timeout=3, set_as_default=False, **how).close()


def test_a_stranger_with_no_certificate_or_his_own_is_refused(client):
    scheduler, worker = client.scheduler.address, next(iter(workers(client)))
    for address in (scheduler, worker):
        plain = address.replace("tls://", "tcp://")
        with pytest.raises((OSError, TypeError)):
            stranger(plain)
        with pytest.raises((OSError, TypeError)):
            stranger(address, security=Security.temporary())
    assert client.submit(sum, [1, 2], resources={"CPU": 1}, pure=False).result(timeout=60) == 3


def processes(client) -> set[int]:
    """This one with the scheduler, nannies, workers, and whatever they started."""
    own = psutil.Process()
    return {own.pid, *(child.pid for child in own.children(recursive=True))}


@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss (iproute2)")
def test_no_process_of_a_run_listens_beyond_loopback(client):
    sockets = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    pids = {f"pid={pid}," for pid in processes(client)}
    ours = [line.split()[3] for line in sockets.splitlines() if any(pid in line for pid in pids)]
    assert len(ours) >= 6  # scheduler, dashboard, two workers with a nanny each
    assert all(address.startswith("127.0.0.1:") for address in ours)


PAGES = ("", "status", "info/main/workers.html", "json/counts.json", "metrics", "graph", "sysmon")


def test_no_page_is_served_without_the_prefix_or_by_a_worker(client):
    link = client.dashboard_link
    ports = client.run(lambda dask_worker: dask_worker.http_server.port).values()
    servers = [link[: link.index("/", 8)], *(f"http://127.0.0.1:{port}" for port in ports)]
    assert len(servers) == 3
    for server, page in itertools.product(servers, PAGES):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server}/{page}", timeout=30)


def test_no_secret_is_an_argument_of_a_process(client):
    prefix = PREFIX.fullmatch(client.dashboard_link)[1]
    key = client.security.get_tls_config_for_role("client")["key"]
    lines = [" ".join(psutil.Process(pid).cmdline()) for pid in processes(client)]
    assert len(lines) >= 4
    secrets = (prefix, "PRIVATE KEY", key[100:160])
    assert not [line for line in lines if any(secret in line for secret in secrets)]


SMALL = {
    "name": "small",
    "models": [{"name": "a", "source": "suite"}],
    "corpus": {"prompts": 12},
    "metrics": ["effective_rank", "curvature"],
    "tasks": ["stdlib:order"],
    "search": {"budget": 1.0},
    "cluster": {"workers": 1},
}


class Place:
    """A folder with a suite of five checkpoints, two of which are hurt before the run and one
    during it.
    """

    def __init__(self, path: Path, suite: Path) -> None:
        self.path, self.folder = path, RunFolder(path / "runs" / "small")
        shutil.copytree(suite, path / "suite")
        hurt = ("step1", "step2", "step4")
        self.whole = {name: self.weights(name).read_bytes() for name in hurt}
        self.said = io.StringIO()

    def weights(self, revision: str) -> Path:
        return self.path / "suite" / revision / "model.safetensors"

    def prepare(self) -> experiment.Experiment:
        models = [{"name": "a", "source": str(self.path / "suite")}]
        return experiment.prepare(config.parse({**SMALL, "models": models}))

    def run(self, prepared: experiment.Experiment) -> None:
        with experiment.Display(Console(file=self.said, width=200)) as display:
            experiment.run(prepared, self.folder, display)

    def records(self) -> dict[str, Record]:
        return {record.name: record for record in report.Run(self.folder.path).records}


@pytest.fixture(scope="module")
def place(suite, tmp_path_factory) -> Place:
    place = Place(tmp_path_factory.mktemp("run"), suite)
    place.weights("step1").write_bytes(place.whole["step1"][:-1000])
    tensors = load_file(place.weights("step2"))
    undefined = {name: torch.full_like(tensor, torch.nan) for name, tensor in tensors.items()}
    save_file(undefined, place.weights("step2"))
    prepared = place.prepare()
    place.weights("step4").unlink()  # somebody cleans up while the run goes on
    place.run(prepared)
    return place


def test_only_a_missing_or_corrupt_revision_fails_and_is_named(place):
    records = place.records()
    for revision in ("step1", "step4"):
        record = records[f"a@{revision}"]
        assert (record.status, record.value) == ("error", None)
        assert "Cannot load the weights" in record.reason and revision in record.reason
    assert records["a@step0"].ok and records["a@step8"].ok
    scored = {name for name, record in records.items() if record.kind == "score" and record.ok}
    assert {name.partition("/")[0] for name in scored} == {"a@step0", "a@step8"}
    assert report.Run(place.folder.path).best().arm.revision in ("step0", "step8")
    assert maintain.verify(place.folder).damages == ()


def test_states_that_are_no_numbers_have_a_reason_and_no_score(place):
    records = place.records()
    measured = records["a@step2"]
    assert measured.ok and {number for row in measured.value.values for number in row} == {None}
    assert {name for _, name, _ in measured.value.reasons} == {"effective_rank", "curvature"}
    scores = [record for name, record in records.items() if name.startswith("a@step2/")]
    assert {(record.status, record.value) for record in scores} == {("nan", None)}
    assert all("not finite" in record.reason for record in scores)


def test_a_run_folder_is_its_owners_alone(place):
    report.write(report.Run(place.folder.path))
    for path in (place.folder.path, *place.folder.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert stat.S_IMODE(place.folder.path.stat().st_mode) == 0o700


def test_the_printed_link_has_a_prefix_that_no_run_file_knows(place):
    (prefix,) = set(PREFIX.findall(place.said.getvalue()))
    files = [path for path in place.folder.path.rglob("*") if path.is_file()]
    assert len(files) > 20
    for path in files:
        content = path.read_bytes()
        assert prefix[1:].encode() not in content and b"PRIVATE KEY" not in content, path


def test_what_was_put_right_is_tried_again_and_nothing_else(place):
    """Runs last: it changes the run."""
    before = {name for name, record in place.records().items() if record.ok}
    for revision, content in place.whole.items():
        place.weights(revision).write_bytes(content)
    failed = [record.key for record in report.Run(place.folder.path).failed]
    assert maintain.retry(place.folder, failed) == len(failed) > 0
    lines = len(list(read(place.folder.journal)))
    place.run(place.prepare())
    assert all(record.ok for record in place.records().values())
    entries = list(read(place.folder.journal))[lines:]
    again = {entry.name for entry in entries if isinstance(entry, Record)}
    assert not before & again - {"a@step2"}  # its numbers were NaN, and it is another file now
    assert maintain.verify(place.folder).damages == ()


class Evil:
    """What a pickle runs when it is loaded."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self):
        return os.mkdir, (str(self.victim),)


@pytest.fixture
def model(suite, tmp_path) -> Path:
    return Path(shutil.copytree(suite / "step0", tmp_path / "model"))


def states(model: Path, **settings: object) -> torch.Tensor:
    """The states that it gives for a text."""
    named = config.Model(name="a", source=str(model), **settings)
    [location] = checkpoints.locate(named).locations
    with LoadedModel(location, config.Protocol(max_length=16)) as loaded:
        return encode(loaded, ["some text"], [1], "mean")


def test_pickled_weights_are_refused_or_if_allowed_run_no_code(model, tmp_path):
    victim = tmp_path / "victim"
    torch.save({"x": Evil(victim)}, model / "pytorch_model.bin")
    expected = states(model, pickled=True)  # safetensors first
    tensors = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="pickled: true"):
        states(model)
    with pytest.raises(DataError, match="Cannot load the weights"):
        states(model, pickled=True)
    assert not victim.exists()
    torch.save(tensors, model / "pytorch_model.bin")
    assert (states(model, pickled=True) == expected).all()


def test_code_that_comes_with_a_model_is_not_run(model, tmp_path):
    victim = tmp_path / "victim"
    (model / "evil.py").write_text(f"import os; os.mkdir({str(victim)!r})")
    plain = json.loads((model / "config.json").read_text())
    classes = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    plain |= {"model_type": "evil", "auto_map": classes}
    (model / "config.json").write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match="has code of its own"):
        states(model)
    with pytest.raises(DataError, match="Cannot load"):
        states(model, ignore_code=True)
    assert not victim.exists()


def test_weights_that_lack_a_parameter_are_refused_not_made_up(model):
    file = model / "model.safetensors"
    tensors = load_file(file)
    kept = {name: tensor for name, tensor in tensors.items() if "layers.0.mlp" not in name}
    save_file(kept, file, {"format": "pt"})
    with pytest.raises(DataError, match=r"lack \d+ parameters, such as .*mlp"):
        states(model)
