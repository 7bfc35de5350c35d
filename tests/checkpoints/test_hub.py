"""Branches and files of a hub repository: from a local server that speaks the hub's protocol, and
offline.
"""

from __future__ import annotations

import json

import huggingface_hub
import pytest

import daskmetrics as dm
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.hub import require_on_hub
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from tests.checkpoints.weights import CONFIG, files
from tests.hub import Fault

REPOSITORY = "org/suite"
SHAPE = {"depth": 2, "width": 8}


@pytest.fixture
def suite(hub):
    """A suite of four steps, of which two and ``main`` serve the same weights, and a branch of
    other files.
    """
    branches = {f"step{1000 * step}": files(step) for step in range(3)}
    last = files(3)
    branches |= {
        "step3000": last,
        "step1000": last,
        "main": {**last, "README.md": b"about"},
        "onnx": {"a.onnx": b"x"},
    }
    hub.repositories = {REPOSITORY: branches}
    return hub


def locate(source=REPOSITORY, **options):
    return checkpoints.locate(Model(name="m", source=source, **{**SHAPE, **options}))


def missing(located):
    return tuple(location.revision for location in located.locations if location.is_missing)


def identities(located):
    """The key and the aliases of each revision."""
    known = ((location.identity, location.aliases) for location in located.locations)
    return dict(zip(located.suite.revisions, known, strict=True))


def download(*revisions):
    for revision in revisions:
        huggingface_hub.snapshot_download(REPOSITORY, revision=revision)


def test_equal_branches_are_known_before_any_download(suite, monkeypatch):
    located = locate()
    assert located.suite.revisions == ("step0", "step2000", "step3000") == missing(located)
    assert [location.aliases for location in located.locations] == [(), (), ("step1000", "main")]
    assert not any("resolve" in path for path in suite.requests)
    names = locate(revisions="every 2000").suite.revisions
    assert [name for name in names if name != "main"] == ["step0", "step2000"]
    asked = len(suite.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert locate() == located  # from the kept lists
    assert not any("/tree/" in path for path in suite.requests[asked:])


def test_a_range_without_a_list_is_refused_offline(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = r"needs the list of branches of 'org/suite'.*HF_HUB_OFFLINE is set.*runs prefetch"
    with pytest.raises(ConfigError, match=message):
        locate()
    assert hub.requests == []


def test_named_revisions_are_counted_without_a_network(monkeypatch, hub):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    located = locate(revisions="every 10 to 20", layers="blocks")
    assert located.suite.revisions == missing(located) == ("step0", "step10", "step20")
    suite = Model(name="m", source=REPOSITORY)
    with pytest.raises(ConfigError, match=r"not in the hub's cache.*org/suite --revision step0"):
        require_on_hub(suite, ["step0"], "mean")
    require_on_hub(suite, [], "mean")


def test_a_hub_that_does_not_answer_is_refused_with_the_reason(hub, monkeypatch):
    with pytest.raises(ConfigError, match="The hub has no repository 'org/suite', or shows it"):
        locate()
    for status in (500, 403):
        hub.faults = [Fault("refs", status=status)]
        with pytest.raises(ConfigError, match=f"the hub answers {status}"):
            locate()
    # nothing listens there; connections to the server may still be open
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    for revisions in ("all", "main"):
        with pytest.raises(ConfigError, match=r"'gpt2'.* the hub cannot be reached"):
            locate("gpt2", revisions=revisions, depth=None)


def test_a_model_of_the_hub_is_downloaded_by_its_id(minilm, hub):
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    hub.repositories = {"gpt2": {"main": {name: minilm / name for name in names}}}
    assert dm.embed("gpt2", ["a text"], [0], pooling="mean").shape == (1, 1, 384)
    assert any("model.safetensors" in path for path in hub.requests)


def test_a_download_does_not_change_the_identity(suite, tmp_path, monkeypatch):
    before = locate()
    download("main", "step2000")  # main has the weights of step3000
    after = locate()
    assert missing(after) == ("step0",)
    assert [location.revision for location in after.locations] == ["step0", "step2000", "main"]
    assert identities(after) == identities(before)
    # without the hub and what it said, files are compared
    download("step1000")
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    located = locate(revisions=["step1000", "step2000", "main"])
    assert (located.suite.revisions, missing(located)) == (("step1000", "step2000"), ())
    assert [location.aliases for location in located.locations] == [("main",), ()]


def test_pickled_weights_in_the_cache_are_refused_offline(hub, monkeypatch):
    pickled = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"x",
    }
    hub.repositories = {REPOSITORY: {"main": pickled}}
    download("main")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"no weights: no model\.safetensors, .*\(Pickled"):
        locate(revisions="main")
    assert missing(locate(revisions="main", pickled=True)) == ()


def test_weights_of_revisions_are_known_before_any_download(suite):
    with pytest.raises(ConfigError, match=r"onnx of org/suite without weights .*leave them out"):
        locate(revisions=["step0", "onnx"])
    with pytest.raises(ConfigError, match=r"'depth:' and 'width:'.*hf download org/suite"):
        locate(revisions="main", depth=None)
    branches = {f"step{step}": files(step) for step in range(9)}
    for name in list(branches)[:7]:
        branches[name]["pytorch_model.bin"] = branches[name].pop("model.safetensors")
    suite.repositories = {"org/old": branches}
    named = {"source": "org/old", "revisions": list(branches)}
    with pytest.raises(
        ConfigError, match=r"step4 and 2 more of org/old.*'pickled: true'"
    ) as refused:
        locate(**named)
    allowed = locate(**named, pickled=True)
    assert len(allowed.locations) == 9 and not allowed.warnings
    partly = locate("org/old")
    assert partly.suite.revisions == ("step7", "step8")
    assert partly.warnings[0].removeprefix("m: ") in str(refused.value)
    assert not any("resolve" in path for path in suite.requests)


def test_only_the_files_that_are_read_are_downloaded(hub):
    beside = ("adapter_config.json", "consolidated.safetensors", "pytorch_model.bin")
    hub.repositories = {REPOSITORY: {"main": {**files(0), **dict.fromkeys(beside, b"{}")}}}
    (location,) = locate(revisions="main").locations
    folder = checkpoints.fetched(location)
    names = {"config.json", "model.safetensors", "tokenizer.json"}
    assert {path.name for path in folder.iterdir()} == names
    requests = len(hub.requests)
    assert checkpoints.fetched(location) == folder
    assert len(hub.requests) == requests


def test_the_commit_of_the_key_is_read_and_no_later_one(hub):
    hub.repositories = {REPOSITORY: {"main": files(0)}}
    download("main")
    (location,) = locate(revisions="main").locations
    hub.repositories = {REPOSITORY: {"main": files(1)}}
    weights = checkpoints.fetched(location) / "model.safetensors"
    assert weights.read_bytes() == files(0)["model.safetensors"]


def test_a_hub_model_read_as_shipped_must_be_on_this_machine(hub):
    hub.repositories = {
        REPOSITORY: {"step1": {**files(0), "modules.json": b"[]"}, "step2": files(1)}
    }
    suite = Model(name="m", source=REPOSITORY)
    with pytest.raises(ConfigError, match="hf download org/suite --revision step1"):
        require_on_hub(suite, ["step1"], "as_shipped")
    require_on_hub(suite, ["step1"], "mean")
    require_on_hub(suite, ["step2"], "as_shipped")
