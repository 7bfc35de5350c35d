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
from tests.checkpoints.weights import files
from tests.hub import Fault
from tests.models.architectures import TEXTS, build, encode

FILES = "GET /org/suite/resolve"
WANTED = {name: data for name, data in files(0).items() if name != "README.md"}


@pytest.fixture
def suite(hub, monkeypatch):
    """A repository of one made-up checkpoint, for an impatient client."""
    monkeypatch.setattr(client, "TRIES", replace(client.TRIES, exceptions=2, delay=0.01))
    hub.repositories = {"org/suite": {"main": files(0)}}
    return hub


def located(depth=2, width=8) -> Location:
    about = {"name": "m", "source": "org/suite", "revisions": "main", "disk": "1GB"}
    return checkpoints.locate(Model(**about, depth=depth, width=width)).locations[0]


def downloaded() -> dict[str, bytes]:
    location = located().rolling
    assert rolling.download(location)
    return {path.name: path.read_bytes() for path in Path(location.folder).glob("[!.]*")}


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
def test_what_decides_the_numbers_is_fetched_and_nothing_else_in_spite_of(suite, fault):
    suite.faults.append(fault)
    assert downloaded() == WANTED
    assert fault.times == 0


def test_what_a_killed_download_has_left_is_used_if_it_is_whole(suite):
    folder = Path(located().rolling.folder)
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
    assert not located().rolling.entry.complete.exists()


DENIED = r"'/cache/x': Permission denied\. Please make the place writable"


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("number", "file", "kind", "message"),
    [(errno.EACCES, ["/cache/x"], DataError, DENIED), (errno.ENOSPC, [], OSError, "No space")],
    ids=["not allowed", "full"],
)
def test_a_download_is_not_tried_again_after_an_error_of_this_machine(
    number, file, kind, message, wrapped
):
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


def test_the_token_goes_to_the_hub_and_not_to_the_host_of_the_weights(suite, tmp_path):
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
    location = located(3, 32)
    rolling.download(location.rolling)
    with rolling.held(location.rolling):
        read = states(location)
    rolling.drop([location.rolling])
    assert location.rolling.folder not in Path("/proc/self/maps").read_text() and networks._idle
    assert np.array_equal(read, states(Location(str(folder), None, "whole")))
