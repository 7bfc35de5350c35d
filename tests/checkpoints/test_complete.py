"""Checkpoints of trainers are suites as they lie, and half-written ones are left out."""

from __future__ import annotations

import json
import shutil

import pytest

from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.folders import fault
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from tests.checkpoints.weights import write

STEPS = (500, 1000, 1500)
NAMES = tuple(f"checkpoint-{step}" for step in STEPS)


def located(folder, **options):
    return checkpoints.locate(Model(name="m", source=str(folder), **options))


@pytest.fixture
def out(tmp_path):
    """Three checkpoints with the files of transformers' Trainer."""
    for step in STEPS:
        folder = write(tmp_path / f"checkpoint-{step}", step)
        (folder / "optimizer.pt").write_bytes(b"moments")
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return tmp_path


def test_checkpoints_are_revisions_in_the_order_of_their_steps(out):
    suite = located(out).suite
    assert suite.revisions == NAMES
    assert tuple(checkpoint.step for checkpoint in suite.checkpoints()) == STEPS
    assert located(out, revisions="every 1000").suite.revisions == NAMES[1:2]
    assert located(out, revisions="all to 1000").suite.revisions == NAMES[:2]


def test_the_model_at_the_end_is_named_by_the_last_checkpoint_if_they_are_equal(out):
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(out / "checkpoint-1500" / name, out)
    (out / "trainer_state.json").write_text("{}")  # not of the numbers
    suite = located(out)
    assert suite.suite.revisions == NAMES
    assert suite.aliases == {"checkpoint-1500": ("main",)}


def test_a_tokenizer_that_lies_beside_the_checkpoints_is_theirs_and_part_of_their_keys(out):
    before = located(out)
    for name in NAMES:
        (out / name / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has no tokenizer"):
        located(out)
    (out / "tokenizer.json").write_text("{}")
    assert located(out).locations == before.locations
    (out / "tokenizer.json").write_text('{"version": 2}')
    identities = {location.identity for location in before.locations}
    assert not identities & {location.identity for location in located(out).locations}


WEIGHTS, STATE = "model.safetensors", "trainer_state.json"


@pytest.mark.parametrize(
    ("file", "size", "reason"),
    [
        ("config.json", None, "no config.json"),
        ("config.json", 20, "config.json is not complete"),
        (WEIGHTS, None, "no weights"),
        (WEIGHTS, 123, "model.safetensors has 123 of 124 bytes"),
        (WEIGHTS, 30, "model.safetensors has no complete header"),
        (STATE, None, "no trainer_state.json, which the trainer writes last"),
        (STATE, 3, "trainer_state.json is not complete, which the trainer writes last"),
    ],
)
def test_a_checkpoint_that_is_not_complete_is_left_out_with_the_reason(out, file, size, reason):
    last = out / "checkpoint-1500"
    assert fault(last) == ""
    content = (last / file).read_bytes()
    (last / file).unlink()
    if size is not None:
        (last / file).write_bytes(content[:size])
    assert fault(last) == reason
    suite = located(out)
    assert suite.suite.revisions == NAMES[:2]
    assert suite.warnings == (
        f"m: checkpoint-1500 is left out, since it is not complete: {reason}",
    )
    for revisions in (["checkpoint-500", "checkpoint-1500"], "checkpoint-1500"):
        with pytest.raises(ConfigError, match=f"checkpoint-1500' is not complete: {reason}"):
            located(out, revisions=revisions)


def test_weights_in_several_files_are_complete_once_all_that_the_index_names_are_there(out):
    folder = out / "checkpoint-1500"
    shards = {"a": WEIGHTS, "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert fault(folder) == "not all weights"
    shutil.copy(folder / WEIGHTS, folder / "model-2.safetensors")
    assert fault(folder) == ""


def test_a_suite_without_a_complete_checkpoint_is_an_error(out):
    for name in NAMES:
        (out / name / "trainer_state.json").unlink()
    with pytest.raises(ConfigError, match=r"is not complete: no trainer_state\.json"):
        located(out)
    for name in NAMES:  # as copied without the files of the trainer
        (out / name / "optimizer.pt").unlink()
    assert located(out).suite.revisions == NAMES
