"""One checkpoint from a server that speaks the hub's protocol, in every state that the server can
be in.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.checkpoints import hub as client
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models._networks import NetworkPool
from tests.checkpoints.weights import files as made_up
from tests.hub import Fault, serve, use
from tests.models.architectures import TEXTS, build, encode

REPOSITORY = "org/suite"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(client, "TRIES", replace(client.TRIES, exceptions=2, delay=0.01))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A repository of one made-up checkpoint."""
    with serve({REPOSITORY: {"main": made_up(0)}}) as hub:
        use(hub, tmp_path, monkeypatch)
        yield hub


def located(depth=2, width=8) -> Location:
    about = {"name": "m", "source": REPOSITORY, "revisions": "main", "disk": "1GB"}
    return checkpoints.locate(Model(**about, depth=depth, width=width)).locations[0]


def downloaded() -> dict[str, bytes]:
    location = located().rolling
    assert rolling.download(location)
    return {path.name: path.read_bytes() for path in Path(location.folder).glob("[!.]*")}


WANTED = {name: data for name, data in made_up(0).items() if name != "README.md"}

FAULTS = {
    "nothing": Fault("no such request"),
    "too many requests": Fault("resolve", status=429, headers={"Retry-After": "1"}),
    "an error of the server": Fault("resolve", 2, status=503),
    "a connection that breaks": Fault("GET /org/suite/resolve", cut=40_000),
    "a file that arrives damaged": Fault("GET /org/suite/resolve", flip=True),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_what_decides_the_numbers_is_fetched_and_nothing_else_in_spite_of(hub, fault):
    hub.faults.append(fault)
    assert downloaded() == WANTED
    assert fault.times == (fault.match == "no such request")


def test_what_a_killed_download_has_left_is_used_if_it_is_whole(hub):
    folder = Path(located().rolling.folder)
    folder.mkdir(parents=True)
    for name, data in WANTED.items():
        (folder / name).write_bytes(data)
    (folder / "config.json").write_bytes(b"{")
    assert downloaded() == WANTED
    assert {path.rpartition("/")[2] for path in hub.requests if "resolve" in path} == {
        "config.json"
    }


REFUSED = {
    "a file that is not there": (Fault("resolve", 9, status=404), "hub answers 404"),
    "a gated repository": (Fault("resolve", 9, status=403), "Accept its terms on the hub's page"),
    "no login": (Fault("resolve", 9, status=401), "set HF_TOKEN"),
    "files that always differ": (
        Fault("GET /org/suite/resolve", 99, flip=True),
        "its hash is not the one that the hub",
    ),
}


@pytest.mark.parametrize(("fault", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_download_ends_with_an_error_that_says_what_to_do(hub, fault, message):
    hub.faults.append(fault)
    with pytest.raises(DataError, match=message):
        downloaded()
    assert not located().rolling.entry.complete.exists()


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.EACCES, r"'/cache/x': Permission denied\. Please make the place writable"), (errno.ENOSPC, "No space")],
)  # fmt: skip
def test_a_download_is_not_tried_again_after_an_error_of_this_machine(number, message, wrapped):
    attempts = []

    def request():
        attempts.append(1)
        try:
            # that of a full disk names no file
            raise OSError(number, os.strerror(number), *["/cache/x"] * (number == errno.EACCES))
        except OSError as error:
            if wrapped:
                raise RuntimeError("the client failed") from error
            raise

    kind = DataError if number == errno.EACCES else OSError
    with pytest.raises(kind, match=message):
        client.persist(request, "the file")
    assert len(attempts) == 1


def test_the_token_goes_to_the_hub_and_not_to_the_host_of_the_weights(hub, tmp_path):
    hub.redirects, hub.token = True, "hf_verysecret"
    (tmp_path / "token").write_text("hf_verysecret")
    assert downloaded() == WANTED
    sent = {
        headers.get("Authorization") for _, path, headers in hub.seen if path.startswith("/lfs")
    }
    assert sent == {None}


def test_a_loaded_network_keeps_no_file_that_is_removed_later(tmp_path, monkeypatch, minilm):
    folder = build("gpt_neox", tmp_path / "causal", minilm, head=True)
    networks = NetworkPool()
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", networks)

    def states(location: Location) -> np.ndarray:
        with LoadedModel(location, Protocol(pooling="mean")) as model:
            return encode(model, TEXTS, range(4), "mean")

    with serve({REPOSITORY: {"main": {path.name: path for path in folder.iterdir()}}}) as hub:
        use(hub, tmp_path, monkeypatch)
        location = located(3, 32)
        rolling.download(location.rolling)
        with rolling.held(location.rolling):
            read = states(location)
    rolling.drop([location.rolling])
    assert location.rolling.folder not in Path("/proc/self/maps").read_text() and networks._idle
    assert np.array_equal(read, states(Location(str(folder), None, "whole")))
