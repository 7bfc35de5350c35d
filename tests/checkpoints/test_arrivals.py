"""Checkpoints of a suite that grows are read when they are whole and at rest, and not before."""

from __future__ import annotations

import json

import pytest
import torch

from daskmetrics.checkpoints.arrivals import AT_REST, Follower
from daskmetrics.checkpoints.folders import FINISHED, matching_checkpoints
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from tests.checkpoints.weights import write


def follower(folder, revisions="all"):
    return Follower([Model(name="m", source=str(folder), revisions=revisions)], settle=1.0)


def test_a_checkpoint_is_read_once_it_is_whole_and_at_rest(tmp_path):
    looking = follower(tmp_path / "out")
    nothing = looking.look(0.0)
    assert (nothing.revisions, nothing.waiting, nothing.finished) == ({"m": ()}, {"m": {}}, False)

    folder = write(tmp_path / "out" / "step0", 0)
    first = looking.look(10.0)
    assert (first.revisions["m"], first.waiting["m"]) == ((), {"step0": AT_REST})
    assert first.changed == 10.0
    assert looking.look(10.9).revisions["m"] == ()
    assert looking.look(11.0).revisions["m"] == ("step0",)

    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:30])
    looking.look(12.0)
    assert "model.safetensors" in looking.look(19.0).waiting["m"]["step0"]
    weights.write_bytes(whole)
    assert looking.look(20.0).waiting["m"] == {"step0": AT_REST}
    assert looking.look(21.0).revisions["m"] == ("step0",)

    (folder / "tokenizer.json").unlink()
    looking.look(30.0)
    assert "processing_class" in looking.look(39.0).waiting["m"]["step0"]


def test_temporary_folders_and_final_models_do_not_arrive(tmp_path):
    for name in ("checkpoint-500", "tmp-checkpoint-1000", "checkpoint-1500.part", "final/step7"):
        write(tmp_path / name, 0)
    looking = follower(tmp_path)
    looking.look(0.0)
    assert looking.look(1.0).revisions["m"] == ("checkpoint-500",)


@pytest.mark.parametrize(
    ("revisions", "wanted"),
    [
        ("log", ("step0", "step8")),
        ("every 5", ("step0",)),
        (("step8", "step100"), ("step8",)),
        ("every 100 to 1000", ("step0",)),
    ],
)
def test_a_range_selects_those_that_exist_already(tmp_path, revisions, wanted):
    assert follower(tmp_path, revisions).look(0.0).revisions["m"] == ()
    for step in (0, 3, 8):
        write(tmp_path / f"step{step}", step)
    looking = follower(tmp_path, revisions)
    looking.look(0.0)
    assert looking.look(1.0).revisions["m"] == wanted


def test_a_training_ends_by_a_file_or_its_last_step(tmp_path):
    looking = follower(tmp_path)
    state = write(tmp_path / "checkpoint-20", 0) / "trainer_state.json"
    for step, finished in ((10, False), (20, True)):
        state.write_text(json.dumps({"global_step": step, "max_steps": 20}))
        assert looking.look(0.0).finished == finished
    state.unlink()
    assert not looking.look(0.0).finished
    (tmp_path / FINISHED).touch()
    assert looking.look(0.0).finished


def of_encoder(pattern):
    return Follower([Model(name="m", encoder="own.py:vit", checkpoints=str(pattern))], settle=1.0)


def test_a_file_of_an_encoder_is_read_once_whole_and_at_rest(tmp_path):
    looking = of_encoder(tmp_path / "out" / "*.pth")
    nothing = looking.look(0.0)
    assert (nothing.revisions, nothing.waiting, nothing.finished) == ({"m": ()}, {"m": {}}, False)

    (tmp_path / "out").mkdir()
    file = tmp_path / "out" / "step2.pth"
    file.touch()
    looking.look(1.0)
    assert looking.look(9.0).waiting["m"] == {"step2": "step2.pth is not complete"}
    torch.save({"weight": torch.zeros(1000)}, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for time, length in ((10.0, 1000), (10.9, 2000)):
        file.write_bytes(whole[:length])  # it still grows
        looking.look(time)
    assert looking.look(19.0).waiting["m"] == {"step2": "step2.pth is not complete"}
    file.write_bytes(whole)
    assert looking.look(20.0).waiting["m"] == {"step2": AT_REST}
    assert looking.look(21.0).revisions["m"] == ("step2",)

    for name in ("best.pth", "tmp_step4.pth", "step10.pth", ".step6.pth", "step8.pth.part"):
        (tmp_path / "out" / name).write_bytes(whole)
    looking.look(30.0)
    assert looking.look(31.0).revisions["m"] == ("step2", "step10")
    (tmp_path / "out" / FINISHED).touch()
    assert looking.look(32.0).finished


def test_the_checkpoints_of_an_encoder_may_be_folders(tmp_path):
    looking = of_encoder(tmp_path / "*")
    (tmp_path / FINISHED).touch()
    folder = tmp_path / "checkpoint-20"
    (folder / "deep").mkdir(parents=True)
    assert looking.look(0.0).waiting["m"] == {"checkpoint-20": "it has no files"}
    (folder / "deep" / "a.safetensors").write_bytes(b"no header")
    looking.look(1.0)
    assert looking.look(2.0).waiting["m"] == {
        "checkpoint-20": "a.safetensors has no complete header"
    }
    (folder / "deep" / "a.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (folder / "optimizer.pt").touch()
    looking.look(3.0)
    assert looking.look(4.0).waiting["m"] == {"checkpoint-20": "optimizer.pt is not complete"}
    (folder / "optimizer.pt").write_bytes(b"any format")
    (folder / "_SUCCESS").touch()  # a mark of the training
    looking.look(5.0)
    assert looking.look(6.0).revisions["m"] == ("checkpoint-20",)
    assert list(matching_checkpoints(tmp_path / "*")) == ["checkpoint-20"]
    # beside one of a trainer, which writes its state last
    (tmp_path / "checkpoint-40").mkdir()
    (tmp_path / "checkpoint-40" / "trainer_state.json").write_text("{}")
    assert "trainer_state.json is missing" in looking.look(7.0).waiting["m"]["checkpoint-20"]


@pytest.mark.parametrize(
    ("source", "revisions", "message"),
    [
        ("org/suite", "all", "'org/suite' is none here. Write './org/suite'"),
        ("./out", "evry 5", "'evry 5'"),
    ],
)
def test_a_hub_id_and_a_misspelt_range_are_errors_at_once(source, revisions, message):
    with pytest.raises(ConfigError, match=message):
        follower(source, revisions).look(0.0)
