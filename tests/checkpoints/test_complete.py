"""Checkpoints of trainers are suites as they lie, and half-written ones are left out."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.folders import fault
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError


def trained(folder, number, state=True, tokenizer=True):
    """A checkpoint with the files of transformers' Trainer."""
    folder.mkdir(parents=True)
    shape = {"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps(shape))
    save_file({"weight": np.full((4, 8), number, np.float32)}, folder / "model.safetensors")
    (folder / "optimizer.pt").write_bytes(b"moments")
    if tokenizer:
        (folder / "tokenizer.json").write_text("{}")
    if state:
        (folder / "trainer_state.json").write_text(json.dumps({"global_step": number}))
    return folder


def located(folder, **options):
    return checkpoints.locate(Model(name="m", source=str(folder), **options))


@pytest.fixture
def out(tmp_path):
    for step in (500, 1000, 1500):
        trained(tmp_path / "out" / f"checkpoint-{step}", step)
    return tmp_path / "out"


def test_checkpoints_are_revisions_in_the_order_of_their_steps(out):
    suite = located(out).suite
    assert suite.revisions == ("checkpoint-500", "checkpoint-1000", "checkpoint-1500")
    assert [each.step for each in suite.checkpoints()] == [500, 1000, 1500]
    assert located(out, revisions="every 1000").suite.revisions == ("checkpoint-1000",)
    assert located(out, revisions="all to 1000").suite.revisions == (
        "checkpoint-500",
        "checkpoint-1000",
    )


def test_the_model_at_the_end_is_named_by_the_last_checkpoint_if_they_are_equal(out):
    for file in (out / "checkpoint-1500").glob("*.json"):
        shutil.copy(file, out)
    (out / "trainer_state.json").write_text("{}")  # not of the numbers
    shutil.copy(out / "checkpoint-1500" / "model.safetensors", out)
    suite = located(out)
    assert suite.suite.revisions == ("checkpoint-500", "checkpoint-1000", "checkpoint-1500")
    assert suite.aliases == {"checkpoint-1500": ("main",)}


def test_a_tokenizer_that_lies_beside_the_checkpoints_is_theirs_and_part_of_their_keys(out):
    before = located(out)
    for step in (500, 1000, 1500):
        (out / f"checkpoint-{step}" / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="has no tokenizer"):
        located(out)
    (out / "tokenizer.json").write_text("{}")
    assert located(out).locations == before.locations
    (out / "tokenizer.json").write_text('{"version": 2}')
    assert not {each.identity for each in located(out).locations} & {
        each.identity for each in before.locations
    }


def cut(folder, name, size):
    (folder / name).write_bytes((folder / name).read_bytes()[:size])


FAULTS = {
    "no config.json": lambda folder: (folder / "config.json").unlink(),
    "config.json is not complete": lambda folder: cut(folder, "config.json", 20),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "model.safetensors has 150 of 200 bytes": lambda folder: cut(folder, "model.safetensors", 150),
    "model.safetensors has no complete header": lambda folder: cut(folder, "model.safetensors", 30),
    "no trainer_state.json, which the trainer writes last": lambda folder: (
        folder / "trainer_state.json"
    ).unlink(),
    "trainer_state.json is not complete, which the trainer writes last": lambda f: cut(
        f, "trainer_state.json", 3
    ),
    "not all weights": lambda folder: [
        (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors"),
        (folder / "model.safetensors.index.json").write_text(
            json.dumps(
                {
                    "weight_map": {
                        "a": "model-00001-of-00002.safetensors",
                        "b": "model-00002-of-00002.safetensors",
                    }
                }
            )
        ),
    ],
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_checkpoint_that_is_not_complete_is_left_out_with_the_reason(out, reason):
    last = out / "checkpoint-1500"
    assert fault(last) == ""
    FAULTS[reason](last)
    assert fault(last) == reason
    suite = located(out)
    assert suite.suite.revisions == ("checkpoint-500", "checkpoint-1000")
    assert suite.warnings == (
        f"m: checkpoint-1500 is left out, since it is not complete: {reason}",
    )
    with pytest.raises(ConfigError, match=f"checkpoint-1500' is not complete: {reason}"):
        located(out, revisions=["checkpoint-500", "checkpoint-1500"])


def test_a_suite_without_a_complete_checkpoint_is_an_error(tmp_path):
    trained(tmp_path / "checkpoint-5", 5, state=False)
    with pytest.raises(ConfigError, match=r"checkpoint-5' is not complete: no trainer_state\.json"):
        located(tmp_path)


def test_checkpoints_that_were_copied_without_the_files_of_the_trainer_are_complete(out):
    for folder in out.iterdir():
        (folder / "optimizer.pt").unlink()
        (folder / "trainer_state.json").unlink()
    assert located(out).suite.revisions == ("checkpoint-500", "checkpoint-1000", "checkpoint-1500")
