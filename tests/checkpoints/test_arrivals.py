"""Checkpoints of a suite that grows are read when they are whole and at rest, and not before."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from daskmetrics.checkpoints.arrivals import AT_REST, FINISHED, Follower
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from tests.checkpoints.weights import write


def follower(folder, revisions="all", settle=1.0):
    return Follower([Model(name="m", source=str(folder), revisions=revisions)], settle)


def checkpoint(folder, step=0):
    return write(folder, np.full(100, step))


def test_a_folder_that_does_not_exist_yet_has_no_checkpoints(tmp_path):
    found = follower(tmp_path / "out").look(0.0)
    assert found.revisions == {"m": ()} and found.waiting == {"m": {}} and not found.finished


def test_a_checkpoint_is_read_once_it_is_at_rest(tmp_path):
    looking = follower(tmp_path)
    checkpoint(tmp_path / "step0")
    first = looking.look(10.0)
    assert (
        first.revisions["m"] == ()
        and first.waiting["m"] == {"step0": AT_REST}
        and first.changed == 10.0
    )
    assert looking.look(10.9).revisions["m"] == ()
    assert looking.look(11.0).revisions["m"] == ("step0",)
    (tmp_path / "step0" / "config.json").write_text('{"num_hidden_layers": 2, "hidden_size": 8}')
    assert looking.look(12.0).waiting["m"] == {"step0": AT_REST}
    assert looking.look(13.0).revisions["m"] == ("step0",)


@pytest.mark.parametrize("size", [0, 4, 30, 200])
def test_a_file_that_is_cut_off_is_never_read(tmp_path, size):
    looking, weights = follower(tmp_path), checkpoint(tmp_path / "step0") / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:size])
    looking.look(0.0)
    assert (
        looking.look(99.0).revisions["m"] == ()
        and "model.safetensors" in looking.look(99.0).waiting["m"]["step0"]
    )
    weights.write_bytes(whole)
    looking.look(100.0)
    assert looking.look(101.0).revisions["m"] == ("step0",)


def test_a_checkpoint_waits_for_all_shards_and_for_its_tokenizer(tmp_path):
    looking, folder = follower(tmp_path), checkpoint(tmp_path / "step0")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    looking.look(0.0)
    assert looking.look(9.0).waiting["m"] == {"step0": "not all weights"}
    shutil.copy(folder / "model.safetensors", folder / "model-2.safetensors")
    (folder / "tokenizer.json").rename(tmp_path / "aside")
    looking.look(10.0)
    assert "processing_class" in looking.look(19.0).waiting["m"]["step0"]
    (tmp_path / "aside").rename(folder / "tokenizer.json")
    looking.look(20.0)
    assert looking.look(29.0).revisions["m"] == ("step0",)


def test_temporary_folders_and_the_final_model_are_not_checkpoints(tmp_path):
    for name in ("checkpoint-500", "tmp-checkpoint-1000", "logs", "checkpoint-1500.part"):
        checkpoint(tmp_path / name)
    write(tmp_path / "final" / "step7", np.zeros(4))
    looking = follower(tmp_path)
    looking.look(0.0)
    assert looking.look(1.0).revisions["m"] == ("checkpoint-500",)


@pytest.mark.parametrize(
    ("revisions", "wanted"),
    [
        ("all", ("step0", "step3", "step8")),
        ("log", ("step0", "step8")),
        ("every 4", ("step0", "step8")),
        ("every 5", ("step0",)),
        (("step8", "step100"), ("step8",)),
        ("every 100 to 1000", ("step0",)),
    ],
)
def test_a_range_selects_those_that_exist_already(tmp_path, revisions, wanted):
    assert follower(tmp_path, revisions).look(0.0).revisions["m"] == ()
    for step in (0, 3, 8):
        checkpoint(tmp_path / f"step{step}", step)
    looking = follower(tmp_path, revisions)
    looking.look(0.0)
    assert looking.look(1.0).revisions["m"] == wanted


def test_a_range_that_is_misspelt_is_an_error_at_once(tmp_path):
    with pytest.raises(ConfigError, match="'evry 5'"):
        follower(tmp_path, "evry 5").look(0.0)


def test_a_training_ends_by_a_file_or_by_the_last_step_of_a_trainer(tmp_path):
    looking, last = follower(tmp_path), checkpoint(tmp_path / "checkpoint-20")
    state = last / "trainer_state.json"
    for step, finished in ((10, False), (20, True)):
        state.write_text(json.dumps({"global_step": step, "max_steps": 20}))
        assert looking.look(0.0).finished == finished
    state.unlink()
    assert not looking.look(0.0).finished
    (tmp_path / FINISHED).touch()
    assert looking.look(0.0).finished


def test_a_hub_id_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"'org/suite' is none here. Write './org/suite'"):
        Follower([Model(name="m", source="org/suite")], 1.0).look(0.0)
