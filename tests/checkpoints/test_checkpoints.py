from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import transformers
from safetensors.numpy import save

from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from tests.checkpoints.weights import write
from tests.models.architectures import DEPTH, KINDS, SMALL


def model(source, **options) -> Model:
    return Model(name="m", source=str(source), **options)


def test_equal_revisions_are_one_named_by_the_latest_step(tmp_path):
    for name, number in (("step0", 1), ("step8", 9), ("step16", 2), ("step64", 9), ("main", 9)):
        write(tmp_path / name, number)
    (tmp_path / "notes").mkdir()
    located = checkpoints.locate(model(tmp_path, layers="blocks"))
    assert located.suite.revisions == ("step0", "step16", "step64")
    assert (located.suite.layers, located.suite.depth, located.width) == ((1, 2), 2, 8)
    assert [location.aliases for location in located.locations] == [(), (), ("step8", "main")]
    assert located.locations[-1].path == str(tmp_path / "step64")
    named = checkpoints.locate(model(tmp_path, revisions=["main", "step0"]))
    assert named.suite.revisions == ("step0", "main")
    # equal weights beside another configuration
    write(tmp_path / "step128", 9, rope_theta=500_000)
    assert checkpoints.locate(model(tmp_path)).suite.revisions[-2:] == ("step64", "step128")


@pytest.mark.parametrize("source", ["./none", "no ne", "~/none/at/all"])
def test_a_missing_folder_is_named(source):
    with pytest.raises(ConfigError, match=f"no folder '.*{source.removeprefix('~')}'"):
        checkpoints.locate(model(source))


@pytest.mark.parametrize("size", [None, 0, -1, 10**24, True, 8.0, "8", [8]])
def test_a_config_without_a_shape_is_an_error(tmp_path, size):
    with pytest.raises(DataError, match="no depth and width of the model"):
        checkpoints.locate(model(write(tmp_path / "one", 0, hidden_size=size)))


def test_weights_that_cannot_be_read_are_named_before_a_run(tmp_path):
    whole = save({"x": np.ones(9)})
    for step, content in enumerate((b"w" * 5000, whole[:-1], b"", whole)):
        write(tmp_path / f"step{step}", content)
    warnings = checkpoints.locate(model(tmp_path)).warnings
    assert [warning[: warning.index(":", 4)] for warning in warnings] == [
        f"m: step{step} cannot be read and will be recorded as an error" for step in range(3)
    ]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("tokenizer.json", r"has no tokenizer.*Copy tokenizer\.json.*save_pretrained"),
        ("model.safetensors", r"no weights: no model\.safetensors, only pytorch_model\.bin"),
        ("config.json", r"no model in .*: no config\.json"),
    ],
)
def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path, file, message):
    folder = write(tmp_path / "one", 0)
    (folder / "pytorch_model.bin").write_bytes(b"pickled weights are not loaded")
    (folder / file).unlink()
    with pytest.raises(ConfigError, match=message):
        checkpoints.locate(model(folder))
    (folder / file).mkdir()
    with pytest.raises(ConfigError, match=message):
        checkpoints.locate(model(folder))


@pytest.mark.parametrize("file", ["tokenizer_config.json", "vocab.txt", "spiece.model"])
def test_only_selected_checkpoints_need_a_tokenizer_file(tmp_path, file):
    for step in (0, 8):
        folder = write(tmp_path / f"step{step}", step)
        (folder / "tokenizer.json").rename(folder / file)
    assert checkpoints.locate(model(tmp_path)).suite.revisions == ("step0", "step8")
    (folder / file).unlink()
    with pytest.raises(ConfigError, match="step8' has no tokenizer"):
        checkpoints.locate(model(tmp_path))
    assert checkpoints.locate(model(tmp_path, revisions=["step0"])).width == 8


@pytest.mark.parametrize("kind", ["vit", "wav2vec2", "patchtst"])
def test_a_model_that_reads_no_text_is_refused(tmp_path, kind):
    folder = write(tmp_path / "one", 0)
    transformers.AutoConfig.for_model(kind).save_pretrained(folder)
    with pytest.raises(ConfigError, match=f"of a {kind}, which is no model that reads text"):
        checkpoints.locate(model(folder))


def test_a_list_with_the_kind_of_each_block_states_the_depth(tmp_path):
    sizes = {"hidden_size": 32, "vocab_size": 100, "layers_block_type": ["mlp", "moe"] * 3}
    folder = write(tmp_path / "one", 0)
    transformers.AutoConfig.for_model("nemotron_h", **sizes).save_pretrained(folder)
    assert "num_hidden_layers" not in json.loads((folder / "config.json").read_text())
    located = checkpoints.locate(model(folder))
    assert (located.suite.depth, located.width) == (6, 32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_of_every_architecture_is_known(tmp_path, kind):
    changes = {**SMALL, **KINDS[kind].config}
    named = {name: value for name, value in changes.items() if value is not None}
    folder = write(tmp_path / "one", 0)
    transformers.AutoConfig.for_model(kind, **named).save_pretrained(folder)
    located = checkpoints.locate(model(folder))
    assert (located.suite.depth, located.width) == (DEPTH, SMALL["hidden_size"])


def with_header(folder: Path, tensors, tokens=99, **config) -> Path:
    """A checkpoint of two blocks, with these tensors in place of some of its own."""
    header = {"embeddings.weight": np.ones((100, 8), np.float32)}
    header |= {f"layer.{i}.weight": np.ones((8, 8), np.float32) for i in range(2)}
    content = {name: array for name, array in {**header, **tensors}.items() if array is not None}
    write(folder, save(content), **config)
    vocabulary = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": tokens}]}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return folder


MATRIX = np.ones((8, 8), np.float32)


@pytest.mark.parametrize(
    ("tensors", "options", "message"),
    [
        ({}, {}, None),
        ({"layer.2.weight": MATRIX}, {"num_nextn_predict_layers": 1}, None),
        ({"layer.1.weight": None}, {"num_hidden_groups": 1}, None),
        ({}, {"num_nextn_predict_layers": float("inf")}, None),
        ({"layer.1.weight": MATRIX.astype(np.int8)}, {"quantization_config": {"bits": 8}}, None),
        ({"layer.2.weight": MATRIX}, {}, "it says 2 blocks, and there are weights of 3"),
        ({"layer.1.weight": None}, {}, "it says 2 blocks, and there are weights of 1"),
        ({"layer.1.weight": MATRIX.astype(np.int8)}, {}, "'layer.1.weight' .* the type I8"),
        ({}, {"vocab_size": 101}, "vocab_size is 101"),
        ({}, {"hidden_size": 9}, "the hidden size is 9"),
        ({}, {"transformers_weights": "model.safetensors"}, None),
        ({}, {"transformers_weights": "b.safetensors"}, "names 'b.safetensors' as its weights"),
        ({}, {"tokens": 100}, "token number 100, and the embedding has 100 rows"),
    ],
)
def test_files_that_do_not_fit_their_configuration_are_refused(tmp_path, tensors, options, message):
    folder = with_header(tmp_path / "m", tensors, **options)
    if message is None:
        assert checkpoints.locate(model(folder)).warnings == ()
        return
    with pytest.raises(ConfigError, match=f"does not fit its config.json: .*{message}"):
        checkpoints.locate(model(folder))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_model_with_code_is_refused_unless_it_is_ignored(tmp_path, file):
    folder = with_header(tmp_path / "m", {})
    content = json.loads((folder / "config.json").read_text())
    (folder / file).write_text(json.dumps({**content, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(ConfigError, match=rf"code of its own \({file}: .*evil.*ignore_code: true"):
        checkpoints.locate(model(folder))
    assert checkpoints.locate(model(folder, ignore_code=True)).width == 8


def test_checkpoints_beside_the_last_model_are_revisions(tmp_path):
    for number, name in enumerate(("", "epoch_1", "epoch_10", "epoch_2", "1000", "tmp-epoch_3")):
        write(tmp_path / "out" / name, bytes([number]))
    for name in ("1_Pooling", "onnx-fp16"):  # of the model itself
        write(tmp_path / "out" / name, b"9")
    located = checkpoints.locate(model(tmp_path / "out"))
    assert located.suite.revisions == ("epoch_1", "epoch_2", "epoch_10", "1000", "main")
    *_, warning = located.warnings
    assert "'epoch_10' and '1000' do not name their steps in one way" in warning
