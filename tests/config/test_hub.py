"""Branches and files of a hub repository: from a local server that speaks the hub's protocol, and offline."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.config.weights import CONFIG, files
from tests.hub import serve

REPOSITORY = "org/suite"
SHAPE = {"depth": 2, "width": 8}
LOCATE = """
import json, sys
from daskmetrics import config
from daskmetrics.config import _checkpoints as checkpoints
located = checkpoints.locate(config.Model(name="m", source="org/suite", **json.loads(sys.argv[1])))
print(json.dumps({
    "revisions": located.suite.revisions,
    "missing": located.missing,
    "aliases": located.aliases,
    "identities": [location.identity for location in located.locations],
    "loaded": [location.revision for location in located.locations],
    "warnings": located.warnings,
}))
"""


@pytest.fixture
def hub():
    """A suite of four steps, of which two and ``main`` serve the same weights, and a branch of other files."""
    branches = {f"step{1000 * step}": files(step) for step in range(3)}
    last = files(3)
    branches |= {"step3000": last, "step1000": last, "main": {**last, "README.md": b"about"}, "onnx": {"a.onnx": b"x"}}
    with serve({REPOSITORY: branches}) as hub:
        yield hub


def python(code, *words, environment, succeeds=True):
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode == 0) == succeeds, done.stderr
    return json.loads(done.stdout) if succeeds else done.stderr


def locate(environment, succeeds=True, **options):
    return python(LOCATE, json.dumps({**SHAPE, **options}), environment=environment, succeeds=succeeds)


def download(environment, *revisions):
    code = (
        "import sys, huggingface_hub as hub\n"
        "for name in sys.argv[1:]: hub.snapshot_download('org/suite', revision=name)\n"
        "print(1)"
    )
    python(code, *revisions, environment=environment)


def test_all_revisions_are_the_branches_and_equal_ones_are_known_before_any_download(hub, tmp_path):
    here = hub.environment(tmp_path)
    located = locate(here)
    assert located["revisions"] == ["step0", "step2000", "step3000"]
    assert located["missing"] == located["revisions"]
    assert located["aliases"] == {"step3000": ["step1000", "main"]}
    assert not any("resolve" in path for path in hub.requests)
    offline = locate({**here, "HF_HUB_OFFLINE": "1"})  # from the kept lists
    assert offline == located


@pytest.mark.parametrize(
    ("revisions", "selected"), [("every 2000", ["step0", "step2000"]), ("log", ["step0"]), ("all to 0", ["step0"])]
)
def test_ranges_without_an_end_are_of_the_branches(hub, tmp_path, revisions, selected):
    located = locate(hub.environment(tmp_path), revisions=revisions)
    assert [name for name in located["revisions"] if name != "main"] == selected


def test_a_range_without_a_list_is_refused_offline_with_the_remedy(hub, tmp_path):
    offline = {**hub.environment(tmp_path), "HF_HUB_OFFLINE": "1"}
    error = locate(offline, succeeds=False)
    assert "'revisions: all' needs the list of branches of org/suite" in error
    assert "HF_HUB_OFFLINE is set" in error and "daskmetrics prefetch" in error and "'main'" in error
    assert hub.requests == []


def test_a_hub_that_does_not_answer_is_refused_with_the_reason(tmp_path):
    with serve({}) as hub:
        here = hub.environment(tmp_path)
        assert "The hub has no repository 'org/suite'" in locate(here, succeeds=False)
    assert "the hub cannot be reached" in locate(here, succeeds=False)


def test_an_identity_does_not_change_when_the_revision_is_downloaded(hub, tmp_path):
    here = hub.environment(tmp_path)
    before = locate(here)
    download(here, "main", "step2000")  # main has the weights of step3000
    after = locate(here)
    assert after["missing"] == ["step0"] and after["loaded"] == ["step0", "step2000", "main"]
    assert {name: after[name] for name in ("revisions", "identities", "aliases")} == {
        name: before[name] for name in ("revisions", "identities", "aliases")
    }


def test_revisions_in_the_cache_are_compared_without_the_hub(hub, tmp_path):
    here = hub.environment(tmp_path)
    download(here, "step1000", "step3000", "main")
    elsewhere = {**here, "DASKMETRICS_CACHE": str(tmp_path / "other"), "HF_HUB_OFFLINE": "1"}
    located = locate(elsewhere, revisions=["step1000", "step3000", "main"])
    assert located["revisions"] == ["step3000"] and located["missing"] == []


def test_pickled_weights_in_the_cache_are_refused_offline_with_the_reason(tmp_path):
    pickled = {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": b"{}", "pytorch_model.bin": b"x"}
    with serve({REPOSITORY: {"main": pickled}}) as hub:
        here = hub.environment(tmp_path)
        download(here, "main")
    offline = {**here, "HF_HUB_OFFLINE": "1"}
    assert "has no weights: no .safetensors file. (Pickled" in locate(offline, succeeds=False, revisions="main")
    assert locate(offline, revisions="main", pickled=True)["missing"] == []


def test_a_named_revision_without_weights_is_refused(hub, tmp_path):
    assert "org/suite has no .safetensors file in onnx" in locate(
        hub.environment(tmp_path), succeeds=False, revisions=["step0", "onnx"]
    )
