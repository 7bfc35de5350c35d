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
from tests.hub import Fault, serve, use

REPOSITORY = "org/suite"
SHAPE = {"depth": 2, "width": 8}


@pytest.fixture
def hub(tmp_path, monkeypatch):
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
    with serve({REPOSITORY: branches}) as hub:
        use(hub, tmp_path, monkeypatch)
        yield hub


def locate(**options):
    return checkpoints.locate(Model(name="m", source=REPOSITORY, **SHAPE, **options))


def identities(located):
    return dict(
        zip(
            located.suite.revisions,
            (location.identity for location in located.locations),
            strict=True,
        )
    )


def download(*revisions):
    for revision in revisions:
        huggingface_hub.snapshot_download(REPOSITORY, revision=revision)


def test_all_revisions_are_the_branches_and_equal_ones_are_known_before_any_download(
    hub, monkeypatch
):
    located = locate()
    assert located.suite.revisions == ("step0", "step2000", "step3000") == located.missing
    assert located.aliases == {"step3000": ("step1000", "main")}
    assert not any("resolve" in path for path in hub.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert locate() == located  # from the kept lists


def test_ranges_without_an_end_are_of_the_branches(hub):
    names = locate(revisions="every 2000").suite.revisions
    assert [name for name in names if name != "main"] == ["step0", "step2000"]


def test_a_range_without_a_list_is_refused_offline_with_the_remedy(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ConfigError,
        match=r"'revisions: all' needs the list of branches of 'org/suite'.*HF_HUB_OFFLINE is set.*runs prefetch.*'main'",
    ):
        locate()
    assert hub.requests == []


def test_a_hub_that_does_not_answer_is_refused_with_the_reason(tmp_path, monkeypatch):
    with serve({}) as hub:
        use(hub, tmp_path, monkeypatch)
        with pytest.raises(ConfigError, match="The hub has no repository 'org/suite', or shows it"):
            locate()
    # nothing listens there; connections to the server may still be open
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    for revisions in ("all", "main"):
        with pytest.raises(ConfigError, match=r"'gpt2'.* the hub cannot be reached"):
            checkpoints.locate(Model(name="m", source="gpt2", revisions=revisions))


def test_a_model_of_unknown_shape_is_refused_with_the_remedy(hub):
    with pytest.raises(ConfigError, match=r"'depth:' and 'width:'.*hf download org/suite"):
        checkpoints.locate(Model(name="m", source=REPOSITORY, revisions="main"))


@pytest.mark.parametrize("source", ["gpt2", "org/gpt2"])
def test_a_model_of_the_hub_is_downloaded_by_its_id(source, minilm, tmp_path, monkeypatch):
    names = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    with serve({source: {"main": {name: minilm / name for name in names}}}) as hub:
        use(hub, tmp_path, monkeypatch)
        vectors = dm.embed(source, ["a text"], [0], pooling="mean")
    assert vectors.shape == (1, 1, 384) and any(
        "model.safetensors" in path for path in hub.requests
    )


def test_an_identity_does_not_change_when_the_revision_is_downloaded(hub):
    before = locate()
    download("main", "step2000")  # main has the weights of step3000
    after = locate()
    assert after.missing == ("step0",)
    assert [location.revision for location in after.locations] == ["step0", "step2000", "main"]
    assert (identities(after), after.aliases) == (identities(before), before.aliases)


def test_revisions_in_the_cache_are_compared_without_the_hub(hub, tmp_path, monkeypatch):
    download("step1000", "step3000", "main")
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    located = locate(revisions=["step1000", "step3000", "main"])
    assert located.suite.revisions == ("step3000",) and located.missing == ()


def test_pickled_weights_in_the_cache_are_refused_offline_with_the_reason(tmp_path, monkeypatch):
    pickled = {
        "config.json": json.dumps(CONFIG).encode(),
        "tokenizer.json": b"{}",
        "pytorch_model.bin": b"x",
    }
    with serve({REPOSITORY: {"main": pickled}}) as hub:
        use(hub, tmp_path, monkeypatch)
        download("main")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"has no weights: no \.safetensors file\. \(Pickled"):
        locate(revisions="main")
    assert locate(revisions="main", pickled=True).missing == ()


def test_a_named_revision_without_weights_is_refused(hub):
    with pytest.raises(
        ConfigError,
        match=r"onnx of org/suite without weights: leave them out of 'revisions'",
    ):
        locate(revisions=["step0", "onnx"])


def pickled(steps, safe):
    """A suite of which only the latest steps have safetensors."""
    branches = {f"step{step}": files(step) for step in range(steps)}
    for name in list(branches)[: steps - safe]:
        branches[name]["pytorch_model.bin"] = branches[name].pop("model.safetensors")
    return branches


def test_what_the_hub_has_of_each_revision_is_known_before_anything_is_fetched(
    tmp_path, monkeypatch
):
    with serve({REPOSITORY: pickled(9, safe=2)}) as hub:
        use(hub, tmp_path, monkeypatch)
        about = {
            "name": "m",
            "source": REPOSITORY,
            "revisions": [f"step{step}" for step in range(9)],
            **SHAPE,
        }
        with pytest.raises(ConfigError) as refused:
            checkpoints.locate(Model(**about))
        allowed = checkpoints.locate(Model(**about, pickled=True))
        partly = checkpoints.locate(Model(**{**about, "revisions": "all"}))
        assert not any("resolve" in path for path in hub.requests)
    names = "step0, step1, step2, step3, step4 and 2 more"
    problem = (
        f"{names} of org/suite with only pickled weights: set 'pickled: true' for the model (no"
        " code in them is run), or leave them out of 'revisions'"
    )
    assert str(refused.value) == f"Model 'm': {problem}."
    assert len(allowed.locations) == 9 and not allowed.warnings
    assert partly.suite.revisions == ("step7", "step8") and partly.warnings == (f"m: {problem}",)


def test_the_sizes_of_files_are_kept_with_their_digests(tmp_path, monkeypatch):
    with serve({REPOSITORY: {"main": files(0)}}) as hub:
        use(hub, tmp_path, monkeypatch)
        about = Model(name="m", source=REPOSITORY, revisions="main", disk="1GB", **SHAPE)
        (location,) = checkpoints.locate(about).locations
        asked = len(hub.requests)
        assert checkpoints.locate(about).locations == (location,)
        assert sum("/tree/" in path for path in hub.requests[asked:]) == 0
    assert {name: size for name, _, size in location.rolling.files} == {
        name: len(data) for name, data in files(0).items() if name != "README.md"
    }


@pytest.mark.parametrize("status", [500, 403])
def test_a_hub_that_refuses_to_list_branches_is_named_with_its_answer(
    tmp_path, monkeypatch, status
):
    with serve({REPOSITORY: {"main": files(0)}}) as hub:
        use(hub, tmp_path, monkeypatch)
        hub.faults.append(Fault("refs", 9, status=status))
        with pytest.raises(ConfigError, match=f"the hub answers {status}"):
            locate(revisions="all")


def test_a_hub_model_is_refused_if_how_to_read_it_is_on_the_hub_only(tmp_path, monkeypatch):
    branches = {"step1": {**files(0), "modules.json": b"[]"}, "step2": files(1)}
    model = Model(name="m", source=REPOSITORY)
    with serve({REPOSITORY: branches}) as hub:
        use(hub, tmp_path, monkeypatch)
        with pytest.raises(ConfigError, match="hf download org/suite --revision step1"):
            require_on_hub(model, ["step1"], "as_shipped")
        require_on_hub(model, ["step1"], "mean")
        require_on_hub(model, ["step2"], "as_shipped")
