"""Downloads from a server that speaks the hub's protocol, and a disk that is smaller than the suite:
the limit, who makes room, and what a killed process leaves.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from daskmetrics import config, experiment
from daskmetrics.checkpoints import hub as client
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.costs import DOWNLOAD_RATE, CostModel
from daskmetrics.domain.results import Download, Measured
from daskmetrics.execution import Record
from daskmetrics.experiment import prefetch as prefetch
from daskmetrics.experiment.problem import build_problem
from daskmetrics.models import LoadedModel
from daskmetrics.models._networks import NetworkPool
from daskmetrics.planning.preview import preview
from tests.checkpoints.weights import files
from tests.hub import Fault
from tests.models.architectures import TEXTS, build, encode

STEPS = 6
ONE = sum(len(data) for name, data in files(0).items() if name != "README.md")  # bytes
LIMIT = int(2.5 * ONE)
ABOUT = {"name": "m", "source": "org/suite", "depth": 2, "width": 8, "pooling": "mean"}


@pytest.fixture
def suite(hub, monkeypatch):
    """A suite of six steps, for an impatient client."""
    monkeypatch.setattr(client, "TRIES", replace(client.TRIES, exceptions=2, delay=0.01))
    hub.repositories = {"org/suite": {f"step{step}": files(step) for step in range(STEPS)}}
    return hub


def located(**options):
    """The places of the suite's checkpoints, with room for two of them."""
    limited = Model(**{**ABOUT, "disk": f"{LIMIT}B", **options})
    return [location.rolling for location in checkpoints.locate(limited).locations]


# one checkpoint, in every state that the server can be in

FILES = "GET /org/suite/resolve"
WANTED = {name: data for name, data in files(0).items() if name != "README.md"}


def downloaded():
    checkpoint = located()[0]
    assert rolling.download(checkpoint)
    return {path.name: path.read_bytes() for path in Path(checkpoint.folder).glob("[!.]*")}


@pytest.mark.parametrize(
    "fault",
    [
        Fault("resolve", status=429, headers={"Retry-After": "1"}),
        Fault("resolve", 2, status=503),
        Fault(FILES, cut=40_000),
        Fault(FILES, flip=True),
    ],
    ids=["too many requests", "an error", "a connection that breaks", "a damaged file"],
)
def test_deciding_files_alone_are_fetched_in_spite_of(suite, fault):
    suite.faults.append(fault)
    assert downloaded() == WANTED
    assert fault.times == 0


def test_what_a_killed_download_has_left_is_used_if_it_is_whole(suite):
    folder = Path(located()[0].folder)
    folder.mkdir(parents=True)
    for name, data in WANTED.items():
        (folder / name).write_bytes(data)
    (folder / "config.json").write_bytes(b"{")
    assert downloaded() == WANTED
    fetched = {path.rpartition("/")[2] for path in suite.requests if "resolve" in path}
    assert fetched == {"config.json"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("resolve", 9, status=404), "hub answers 404"),
        (Fault("resolve", 9, status=403), "Accept its terms on the hub's page"),
        (Fault("resolve", 9, status=401), "set HF_TOKEN"),
        (Fault(FILES, 99, flip=True), "its hash is not the one that the hub"),
    ],
    ids=["not there", "gated", "no login", "always damaged"],
)
def test_a_download_ends_with_an_error_that_says_what_to_do(suite, fault, message):
    suite.faults.append(fault)
    with pytest.raises(DataError, match=message):
        downloaded()
    assert not located()[0].entry.complete.exists()


DENIED = r"'/cache/x': Permission denied\. Please make the place readable and writable"


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("number", "file", "kind", "message"),
    [(errno.EACCES, ["/cache/x"], DataError, DENIED), (errno.ENOSPC, [], OSError, "No space")],
    ids=["not allowed", "full"],
)
def test_an_error_of_this_machine_ends_a_download(number, file, kind, message, wrapped):
    attempts = []

    def request():
        attempts.append(1)
        try:
            raise OSError(number, os.strerror(number), *file)
        except OSError as error:
            if wrapped:
                raise RuntimeError("the client failed") from error
            raise

    with pytest.raises(kind, match=message):
        client.persist(request, "the file")
    assert len(attempts) == 1


def test_the_token_goes_to_the_hub_alone(suite, tmp_path):
    suite.redirects, suite.token = True, "hf_verysecret"
    (tmp_path / "token").write_text("hf_verysecret")
    assert downloaded() == WANTED
    sent = {h.get("Authorization") for _, path, h in suite.seen if path.startswith("/lfs")}
    assert sent == {None}


def test_a_loaded_network_keeps_no_file_that_is_removed_later(hub, tmp_path, monkeypatch, minilm):
    folder = build("gpt_neox", tmp_path / "causal", minilm, head=True)
    networks = NetworkPool()
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", networks)

    def states(location: Location) -> np.ndarray:
        with LoadedModel(location, Protocol(pooling="mean")) as model:
            return encode(model, TEXTS, range(4), "mean")

    hub.repositories = {"org/suite": {"main": {path.name: path for path in folder.iterdir()}}}
    about = Model(**{**ABOUT, "depth": 3, "width": 32}, disk="1GB", revisions="main")
    (location,) = checkpoints.locate(about).locations
    rolling.download(location.rolling)
    with rolling.held(location.rolling):
        read = states(location)
    rolling.drop([location.rolling])
    assert location.rolling.folder not in Path("/proc/self/maps").read_text() and networks._idle
    assert np.array_equal(read, states(Location(str(folder), None, "whole")))


# a disk that is smaller than the suite


def sizes(checkpoint):
    """Bytes of every file beside a checkpoint; files and folders come and go."""
    found = {}
    with suppress(FileNotFoundError):
        for path in Path(checkpoint.folder).parent.glob("[!.]*/[!.]*"):
            found[path] = path.stat().st_size
    return found


def work(checkpoints):
    """What a worker does: use one checkpoint after the other; returns what each download took."""
    taken = []
    for checkpoint in checkpoints:
        with rolling.held(checkpoint) as download:
            assert Path(checkpoint.folder, "model.safetensors").stat().st_size > 80_000
            for _ in range(10):
                before, after = sizes(checkpoint), sizes(checkpoint)
                # else files came and went while they were counted
                assert before != after or sum(after.values()) <= LIMIT
                time.sleep(0.002)
        taken.append(download)
    return taken


def until_it_begins(checkpoint):
    while not list(Path(checkpoint.folder).rglob("*.incomplete")):
        time.sleep(0.01)


def test_all_checkpoints_are_used_once_each_and_the_limit_holds(suite, tmp_path):
    mine = tmp_path / "hub" / "models--org--suite" / "blobs" / "mine"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"x" * LIMIT)
    locations = located()
    with rolling.Downloads(locations, print) as downloads, ThreadPoolExecutor(2) as pool:
        downloads.expect(locations)
        done = [*chain.from_iterable(pool.map(work, (locations[::2], locations[1::2])))]
    assert [download.bytes for download in done] == [ONE] * STEPS
    assert len({path for path in suite.requests if path.endswith("safetensors")}) == STEPS
    rolling.drop(locations)
    assert sizes(locations[0]) == {} and mine.stat().st_size == LIMIT


def test_used_checkpoints_make_room_and_those_in_use_never(suite):
    first, second, third, fourth = located()[:4]
    for checkpoint in (first, second):
        assert rolling.download(checkpoint)
    assert not rolling.download(third, wait=False)  # both are still to be used
    with rolling.held(second), rolling.held(first):  # the first is given back first
        assert not rolling.download(third, wait=False)
    assert rolling.download(third, wait=False)
    assert not first.entry.complete.exists() and second.entry.complete.exists()
    # a worker waits for the fourth: the third is removed, although nobody has used it
    with rolling.held(second):
        assert rolling.download(fourth)
    assert not third.entry.complete.exists()


KILLED = f"""
from daskmetrics.checkpoints import locations, rolling
from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Model, Protocol
limited = Model(**{ABOUT}, disk="{LIMIT}B", revisions="step0")
rolling.download(locations.locate(limited).locations[0].rolling)
"""


def test_a_killed_download_leaves_no_lock_and_no_half_of_a_file(suite, tmp_path):
    suite.rate = 10_000  # it pauses for six seconds after the first block
    environment = {**suite.environment(tmp_path), "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen([sys.executable, "-c", KILLED], env=environment)
    checkpoint = located()[0]
    until_it_begins(checkpoint)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    suite.rate = None
    assert rolling.download(checkpoint)
    with rolling.held(checkpoint) as taken:
        assert taken.bytes == ONE
    assert not list(Path(checkpoint.folder).rglob("*.incomplete"))


def test_a_worker_gets_the_reason_and_can_ask_again(suite, monkeypatch):
    checkpoint = located()[0]
    monkeypatch.setattr(client, "TRIES", replace(client.TRIES, exceptions=1))
    suite.faults.append(Fault("GET /org/suite/resolve", 1, status=503))
    with rolling.Downloads([checkpoint], print):
        with pytest.raises(DataError, match="could not be downloaded: the hub answers 503"):
            work([checkpoint])
        assert len(work([checkpoint])) == 1


def test_a_worker_gets_the_reason_of_an_earlier_download(suite, monkeypatch):
    location, download, begun = located()[0], rolling.download, threading.Event()

    def slow(*given):  # the driver has no lock yet
        begun.set()
        while not location.entry.wanted.is_file():
            time.sleep(0.01)
        return download(*given)

    monkeypatch.setattr(rolling, "download", slow)
    suite.faults.append(Fault("resolve", 99, status=404))
    with rolling.Downloads([location], print) as downloads:
        downloads.expect([location])
        assert begun.wait(60)
        with pytest.raises(DataError, match="the hub answers 404"):
            work([location])


def test_a_download_stops_with_the_run(suite):
    checkpoint, suite.rate = located()[0], 10_000
    with rolling.Downloads([checkpoint], print) as downloads:
        downloads.expect([checkpoint])
        until_it_begins(checkpoint)
    assert not any(thread.is_alive() for thread in downloads._threads)
    assert not checkpoint.entry.complete.exists()


@pytest.mark.parametrize(
    ("options", "fault", "message"),
    [
        (
            {"disk": "50kB"},
            None,
            r"'disk: 50kB' is less than one checkpoint: .* Give at least twice that",
        ),
        ({"source": "."}, None, "'disk' is for a hub id: leave it out"),
        ({}, Fault("/tree/", 99, status=404), "the hub did not list the files of org/suite at"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_first(suite, options, fault, message):
    suite.faults = [fault] if fault else []
    with pytest.raises(ConfigError, match=message):
        located(**options)
    assert not any("resolve" in path for path in suite.requests)


def record(**download):
    result = Measured((), (), (), (), (), download=Download(**download) if download else None)
    return Record("k", "m@step0", "measure", "ok", result)


def test_the_rate_of_downloads_is_a_power_of_two():
    assert prefetch.rate([record()]) == DOWNLOAD_RATE
    slow, fast = ({"bytes": 30_000_000, "seconds": s, "waited": 0} for s in (2.0, 1.6))
    assert prefetch.rate([record(**slow)]) == prefetch.rate([record(**fast)]) == 2.0**24
    assert CostModel("cpu", 2.0**23).download_seconds(2.0**24) == 2.0


# an experiment whose disk is limited


def prepared(*models):
    plain = {"name": "x", "models": models, "corpus": {"prompts": 4}, "tasks": ["stdlib:word"]}
    return experiment.prepare(config.parse(plain))


def test_a_limit_changes_no_key_but_the_cost(suite, tmp_path):
    limited, unlimited = prepared({**ABOUT, "disk": f"{LIMIT}B"}), prepared(ABOUT)
    assert limited.plan.key == unlimited.plan.key
    costs = [build_problem(each).encode_cost for each in (limited, unlimited)]
    assert costs[0] - costs[1] == pytest.approx(ONE / DOWNLOAD_RATE, rel=1e-6)
    assert prefetch.downloads(limited) == [] and len(prefetch.downloads(unlimited)) == STEPS
    rows = dict(preview(limited, RunFolder(tmp_path / "run")).rows)
    assert rows["download"].endswith(f"m through {LIMIT}B of disk")


def test_all_models_that_need_the_setting_are_named_at_once(hub):
    pickled = files(0)
    pickled["pytorch_model.bin"] = pickled.pop("model.safetensors")
    hub.repositories = {name: {"main": pickled} for name in ("org/suite", "org/other")}
    models = [{**ABOUT, "name": name, "source": f"org/{name}"} for name in ("suite", "other")]
    with pytest.raises(
        ConfigError, match=r"(?s)'suite': .*set 'pickled: true'.*\n.*'other': .*set 'pickled: true'"
    ):
        prepared(*models)


def test_a_download_is_tried_again_after_a_server_error(suite, monkeypatch):
    monkeypatch.setattr(client, "TRIES", replace(client.TRIES, exceptions=4))
    suite.faults.append(Fault("GET /org/suite/resolve", 2, status=503))
    wanted = prefetch.checkpoint("org/suite", "step0")
    assert list(prefetch.fetch([wanted])) == [(wanted, None)]
    suite.faults.append(Fault("GET /org/suite/resolve", 9, status=404))
    wanted = prefetch.checkpoint("org/suite", "step1")
    [(failed, reason)] = prefetch.fetch([wanted])
    assert failed.name == "org/suite@step1" and reason
