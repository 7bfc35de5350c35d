"""One checkpoint from a server that speaks the hub's protocol, in every state that the server can
be in.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from daskmetrics.checkpoints import download as download
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.download import Remote, fetch, needed, parts_of
from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models._networks import NetworkPool
from tests.checkpoints.weights import files as made_up
from tests.hub import Fault, serve, use
from tests.models.architectures import TEXTS, build

REPOSITORY = "org/suite"
SHAPE = {"depth": 2, "width": 8}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A repository of one made-up checkpoint."""
    with serve({REPOSITORY: {"main": made_up(0)}}) as hub:
        use(hub, tmp_path, monkeypatch)
        yield hub


def located(**options) -> Location:
    about = {
        "name": "m",
        "source": REPOSITORY,
        "revisions": "main",
        "disk": "1GB",
        **SHAPE,
        **options,
    }
    return checkpoints.locate(Model(**about)).locations[0]


class Waits(list[float]):
    """The pauses between attempts, which take no time here."""

    def remote(self, location: Location) -> Remote:
        return Remote(location.path, location.rolling.commit, sleep=self.append)


def everything(location: Location, remote: Remote, folder) -> dict[str, bytes]:
    for part in parts_of(location, remote):
        fetch(part, remote, folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


WANTED = {name: data for name, data in made_up(0).items() if name != "README.md"}


def test_what_decides_the_numbers_is_fetched_and_nothing_else(hub, tmp_path):
    location = located()
    assert everything(location, Waits().remote(location), tmp_path / "here") == WANTED


FAULTS = {
    "too many requests": (
        Fault("resolve", 2, status=429, headers={"Retry-After": "30"}),
        [30.0, 30.0],
    ),
    "an error of the server": (Fault("resolve", 3, status=503), [1.0, 2.0, 4.0]),
    "a connection that breaks": (Fault("model.safetensors", 2, cut=40_000), [1.0]),
    "a file that arrives damaged": (Fault("model.safetensors", 2, flip=True), []),
}


@pytest.mark.parametrize(("fault", "pauses"), FAULTS.values(), ids=FAULTS.keys())
def test_a_download_recovers_from(hub, tmp_path, fault, pauses):
    location, waits = located(tensors="all"), Waits()
    hub.faults.append(fault)
    if fault.cut or fault.flip:
        fault.times = 1
    assert everything(location, waits.remote(location), tmp_path / "here") == WANTED
    assert waits == pauses and fault.times == 0


def test_a_slow_connection_counts_as_broken(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", 0.3)
    location, waits = located(tensors="all"), Waits()
    hub.faults.append(Fault("config.json", pause=1.0))
    assert everything(location, waits.remote(location), tmp_path / "here") == WANTED
    assert waits == [1.0]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_download_goes_on_where_it_was_if_the_server_serves_parts(hub, tmp_path, ranges):
    location, waits = located(tensors="all"), Waits()
    hub.ranges = ranges
    hub.faults.append(Fault("model.safetensors", cut=70_000))
    assert everything(location, waits.remote(location), tmp_path / "here") == WANTED
    asked = [
        headers.get("Range", "")
        for _, path, headers in hub.seen
        if path.endswith("model.safetensors")
    ]
    assert [text.split("-")[0] for text in asked] == ["bytes=0", "bytes=70000"]
    assert hub.sent < sum(map(len, WANTED.values())) + (2**17 if ranges else 10**9)


REFUSED = {
    "a file that is not there": (
        Fault("resolve", 9, status=404),
        "The hub has no config.json of org/suite",
    ),
    "a gated repository": (
        Fault("resolve", 9, status=403),
        "accept its terms on the hub's page, and log in",
    ),
    "no login": (Fault("resolve", 9, status=401), "set HF_TOKEN"),
    "a server that stays broken": (
        Fault("resolve", 99, status=500),
        "7 attempts in a row failed, the last",
    ),
    "files that always differ": (
        Fault("model.safetensors", 9, flip=True),
        "its hash is not the one that the hub",
    ),
}


@pytest.mark.parametrize(("fault", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_download_ends_with_an_error_that_says_what_to_do(hub, tmp_path, fault, message):
    location, waits = located(tensors="all"), Waits()
    hub.faults.append(fault)
    with pytest.raises(DataError, match=message):
        everything(location, waits.remote(location), tmp_path / "here")
    assert len(waits) == (6 if fault.status == 500 else 0)
    assert not (tmp_path / "here" / "model.safetensors").exists()


def test_the_token_goes_to_the_hub_and_not_to_the_host_of_the_weights(hub, tmp_path, monkeypatch):
    hub.redirects, hub.token = True, "hf_verysecret"
    (tmp_path / "token").write_text("hf_verysecret")
    location = located(tensors="all")
    assert everything(location, Waits().remote(location), tmp_path / "here") == WANTED
    sent = [
        headers.get("Authorization") for _, path, headers in hub.seen if path.startswith("/lfs")
    ]
    assert sent == [None]


def test_an_interrupted_download_is_resumed(hub, tmp_path):
    location = located(tensors="all")
    remote = Waits().remote(location)
    (part,) = [part for part in parts_of(location, remote) if part.name == "model.safetensors"]
    (tmp_path / "model.safetensors.part").write_bytes(WANTED[part.name][:50_000])
    before = hub.sent
    fetch(part, remote, tmp_path)
    assert (tmp_path / part.name).read_bytes() == WANTED[part.name]
    assert hub.sent - before == part.size - 50_000


# only the tensors that are needed


@pytest.fixture(scope="module")
def causal(tmp_path_factory, minilm):
    """A decoder with output embeddings that are not tied, and with the buffers of earlier versions
    of transformers.
    """
    folder = build("gpt_neox", tmp_path_factory.mktemp("causal"), minilm, head=True)
    weights = load_file(folder / "model.safetensors")
    for block in range(3):
        attention = f"gpt_neox.layers.{block}.attention"
        weights[f"{attention}.bias"] = torch.ones(1, 1, 64, 64, dtype=torch.bool)
        weights[f"{attention}.masked_bias"] = torch.tensor(-1e9)
        weights[f"{attention}.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def states(location: Location) -> np.ndarray:
    with LoadedModel(location, Protocol(pooling="mean")) as model:
        return model.encode(TEXTS, range(4), "mean")


def fetched(repository, tmp_path, monkeypatch, change=lambda hub: None):
    """The location of a fetched checkpoint, and the bytes that the hub sent for it."""
    with serve({REPOSITORY: {"main": repository}}) as hub:
        use(hub, tmp_path, monkeypatch)
        change(hub)
        location = located(depth=3, width=32)
        folder = tmp_path / "fetched"
        everything(location, Waits().remote(location), folder)
        return (
            Location(str(folder), None, "fetched"),
            hub.sent,
            parts_of(location, Waits().remote(location)),
        )


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_states_are_bitwise_equal_without_the_tensors_that_are_not_needed(
    causal, tmp_path, monkeypatch
):
    location, sent, parts = fetched(files_of(causal), tmp_path, monkeypatch)
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", NetworkPool())
    assert np.array_equal(states(location), states(Location(str(causal), None, "whole")))
    (weights,) = [part for part in parts if part.name == "model.safetensors"]
    assert sent < sum(part.at_hub for part in parts) and weights.size < 0.6 * weights.at_hub
    here, there = load_file(tmp_path / "fetched" / weights.name), load_file(causal / weights.name)
    assert all(torch.equal(here[name], there[name]) for name in here)
    assert not any(
        "embed_out" in name or "attention.bias" in name or "inv_freq" in name for name in here
    )
    assert not NetworkPool().prefetch.take(location)


def test_a_loaded_network_keeps_no_file_that_is_removed_later(causal, tmp_path, monkeypatch):
    networks = NetworkPool()
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", networks)
    with serve({REPOSITORY: {"main": files_of(causal)}}) as hub:
        use(hub, tmp_path, monkeypatch)
        location = located(depth=3, width=32)
        location = replace(location, rolling=replace(location.rolling, by="workers"))
        with rolling.held(location):
            read = states(location)
    rolling.drop([location])
    assert location.rolling.folder not in Path("/proc/self/maps").read_text() and networks._idle
    assert np.array_equal(read, states(Location(str(causal), None, "whole")))


def test_a_server_without_ranges_sends_whole_files(causal, tmp_path, monkeypatch):
    _, _, parts = fetched(
        files_of(causal), tmp_path, monkeypatch, lambda hub: setattr(hub, "ranges", False)
    )
    assert (
        files_of(tmp_path / "fetched")["model.safetensors"] == files_of(causal)["model.safetensors"]
    )
    assert all(part.is_whole for part in parts)


def test_of_several_files_each_becomes_smaller(causal, tmp_path, monkeypatch):
    weights = load_file(causal / "model.safetensors")
    names, folder = sorted(weights), tmp_path / "sharded"
    folder.mkdir()
    shards = {f"model-0000{i + 1}-of-00002.safetensors": names[i::2] for i in range(2)}
    for file, own in shards.items():
        save_file({name: weights[name] for name in own}, folder / file, {"format": "pt"})
    index = {
        "metadata": {},
        "weight_map": {name: file for file, own in shards.items() for name in own},
    }
    whole = {name: data for name, data in files_of(causal).items() if name != "model.safetensors"}
    whole |= {**files_of(folder), "model.safetensors.index.json": json.dumps(index).encode()}
    location, _, parts = fetched(whole, tmp_path, monkeypatch)
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", NetworkPool())
    assert np.array_equal(states(location), states(Location(str(causal), None, "whole")))
    assert any(not part.is_whole for part in parts)


def test_a_part_of_a_smaller_file_is_resumed_at_every_byte(causal, tmp_path, monkeypatch):
    with serve({REPOSITORY: {"main": files_of(causal)}}) as hub:
        use(hub, tmp_path, monkeypatch)
        location = located(depth=3, width=32)
        remote = Waits().remote(location)
        (part,) = [part for part in parts_of(location, remote) if part.name == "model.safetensors"]
        whole = b"".join(part.content(remote, 0))
        assert len(whole) == part.size
        for have in (
            1,
            len(part.header),
            len(part.header) + 1,
            part.size // 2,
            part.size - 1,
            part.size,
        ):
            assert b"".join(part.content(remote, have)) == whole[have:]


def test_tied_output_embeddings_are_kept_where_they_are_the_only_ones():
    assert needed({"lm_head.weight": [9, 2]}) == {"lm_head.weight"}
    assert needed({"lm_head.weight": [9, 2], "model.embed_tokens.weight": [9, 2]}) == {
        "model.embed_tokens.weight"
    }


def test_a_parameter_that_only_sounds_like_a_buffer_is_kept():
    shapes = {
        "h.0.attn.c_attn.bias": [12],
        "h.0.attn.bias": [1, 1, 8, 8],
        "layer.attention.bias": [12],
    }
    assert needed(shapes) == {"h.0.attn.c_attn.bias", "layer.attention.bias"}
