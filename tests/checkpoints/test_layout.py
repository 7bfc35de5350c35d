"""Which files of a folder are read as its weights: one set, which the key of the content covers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file, save, save_file

from daskmetrics.checkpoints import checks, layout
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from tests.checkpoints.weights import in_shards, write

SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(tmp_path):
    """A model folder with a tensor in each of three files."""
    return in_shards(write(tmp_path / "m", 0), *({name: np.ones(4)} for name in "abc"))


def locate(folder, **options):
    (location,) = checkpoints.locate(Model(name="m", source=str(folder), **options)).locations
    return location


def refused(folder, message):
    with pytest.raises(ConfigError, match=message):
        locate(folder)


def test_two_sets_of_weights_are_refused_and_both_are_named(sharded):
    (sharded / "model.safetensors").write_bytes(save({"a": np.zeros(4)}))
    refused(
        sharded, f"two sets of weights, model.safetensors and 3 files of those that {INDEX} names"
    )
    for shard in SHARDS:
        (sharded / shard).unlink()
    # of an earlier save there is nothing but the index
    assert layout.weight_files(sharded) == ("model.safetensors",)
    assert locate(sharded).problem == ""


@pytest.mark.parametrize("tensor", ["a", "of no file in the index"])
def test_a_tensor_in_another_file_than_indexed_is_refused(sharded, tensor):
    shard = sharded / SHARDS[1]
    save_file({**load_file(shard), tensor: np.ones(4)}, shard)
    other = SHARDS[0] if tensor == "a" else "none"
    refused(sharded, f"two sets of weights: '{tensor}' is in {SHARDS[1]}, and .* in {other}")


def test_missing_shards_are_named(sharded):
    (sharded / SHARDS[2]).unlink()
    refused(sharded, f"1 of the 3 files that {INDEX} names are missing: {SHARDS[2]}")


def test_an_index_names_files_of_its_folder_alone(sharded, tmp_path):
    shutil.copy(sharded / SHARDS[0], tmp_path / "other.safetensors")
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"a": "../other.safetensors"}}))
    refused(sharded, r"1 of the 1 files that .* are missing: \.\./other\.safetensors")
    (sharded / INDEX).write_text("[]")
    refused(sharded, f"{INDEX} cannot be read as an index")


@pytest.mark.parametrize("shards", [False, True])
def test_what_no_loader_reads_is_neither_hashed_nor_in_the_way(sharded, tmp_path, shards):
    folder = sharded if shards else write(tmp_path / "one", 0)
    before = locate(folder)
    others = ("consolidated.safetensors", "model.fp16.safetensors", "adapter_model.safetensors")
    for name in (*others, "adapter_config.json", "pytorch_model.bin", "tf_model.h5"):
        (folder / name).write_bytes(b"{}")
    assert locate(folder) == before
    assert locate(folder, pickled=True).identity == before.identity
    (folder / "tokenizer.json").write_text('{"version": 2}')
    assert locate(folder).identity != before.identity


def test_weights_of_another_name_are_named(tmp_path):
    folder = write(tmp_path / "m", 0)
    (folder / "model.safetensors").rename(folder / "model.fp16.safetensors")
    refused(folder, "no weights: no model.safetensors, only model.fp16.safetensors")
    (folder / "model.fp16.safetensors").rename(folder / "adapter_model.safetensors")
    refused(
        folder, r"only adapter_model\.safetensors \(without config\.json, the folder is that of"
    )


@pytest.mark.parametrize(
    ("prefix", "remedy"),
    [
        ("_orig_mod.", "torch.compile"),
        ("module.", "within its wrapper"),
        ("base_model.model.", "merge_and_unload()"),
        ("module._orig_mod.", "torch.compile"),
    ],
)
def test_names_of_a_wrapper_are_refused_with_the_remedy(tmp_path, prefix, remedy):
    folder = write(tmp_path / "m", save({f"{prefix}layers.0.weight": np.ones((8, 8))}))
    refused(folder, f"names of tensors begin with '{re.escape(prefix)}': .*{re.escape(remedy)}")


def test_every_file_that_a_tokenizer_may_read_is_part_of_the_key(tmp_path):
    names = set()
    for file in Path(transformers.__file__).parent.glob("models/*/tokenization_*.py"):
        for files in re.findall(r"VOCAB_FILES_NAMES = \{(.*?)\}", file.read_text(), re.DOTALL):
            names.update(re.findall(r': "([^"]+)"', files))
    assert len(names) > 10
    folder = write(tmp_path / "out" / "checkpoint-1", 0)
    (folder / "tokenizer.json").unlink()
    for name in names:
        (folder.parent / name).write_text("{}")
    # beside the weights, and in the folder of a suite
    assert names == layout.beside_weights(names)
    assert names <= set(layout.required_files(folder, pickled=False))


def test_half_a_checkpoint_is_left_out_with_the_missing_file(sharded, tmp_path):
    step = tmp_path / "out" / "checkpoint-5"
    shutil.copytree(sharded, step)
    (step / SHARDS[1]).unlink()
    with pytest.raises(layout.Incomplete, match=SHARDS[1]):
        checks.require_complete(step)
