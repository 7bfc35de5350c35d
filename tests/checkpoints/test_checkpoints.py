from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import transformers
from safetensors.numpy import save

from daskmetrics.checkpoints import hub
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.models import LoadedModel
from tests.models.architectures import DEPTH, KINDS, SMALL


def checkpoint(folder: Path, weights: bytes = b"w", **config) -> Path:
    folder.mkdir(parents=True)
    shape = {"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 100}
    (folder / "config.json").write_text(json.dumps({**shape, **config}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(save({"w": np.frombuffer(weights, np.uint8)}))
    return folder


def model(source, **options) -> Model:
    return Model(name="m", source=str(source), **options)


def test_a_folder_of_revisions(tmp_path):
    for step in (0, 16, 8):
        checkpoint(tmp_path / f"step{step}", bytes([step]))
    (tmp_path / "notes").mkdir()
    located = checkpoints.locate(model(tmp_path, layers="blocks"))
    assert located.suite.revisions == ("step0", "step8", "step16")
    assert (located.suite.layers, located.suite.depth, located.width) == ((1, 2), 2, 8)
    assert len({location.identity for location in located.locations}) == 3


def test_revisions_of_equal_content_are_one_checkpoint_named_by_the_latest_step(tmp_path):
    for name, weights in (
        ("step0", b"a"),
        ("step8", b"z"),
        ("step16", b"b"),
        ("step64", b"z"),
        ("main", b"z"),
    ):
        checkpoint(tmp_path / name, weights)
    located = checkpoints.locate(model(tmp_path))
    assert located.suite.revisions == ("step0", "step16", "step64")
    assert located.aliases == {"step64": ("step8", "main")}
    assert located.locations[-1].path == str(tmp_path / "step64")
    assert checkpoints.locate(model(tmp_path, revisions=["main", "step0"])).suite.revisions == (
        "main",
        "step0",
    )


def test_equal_weights_beside_another_configuration_are_two_checkpoints(tmp_path):
    checkpoint(tmp_path / "step1", b"z")
    checkpoint(tmp_path / "step2", b"z", rope_theta=500_000)
    located = checkpoints.locate(model(tmp_path))
    assert located.suite.revisions == ("step1", "step2") and located.aliases == {}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("./none", "no folder './none'"),
        ("no ne", "no folder 'no ne'"),
        ("~/none/at/all", "no folder"),
    ],
)
def test_a_missing_folder_is_named(source, message):
    with pytest.raises(ConfigError, match=message):
        checkpoints.locate(model(source))


def test_a_folder_without_a_model_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"no model in .*: no config\.json"):
        checkpoints.locate(model(tmp_path))


def test_pickled_weights_are_not_loaded(tmp_path):
    folder = checkpoint(tmp_path / "one")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"no \.safetensors file"):
        checkpoints.locate(model(folder))


@pytest.mark.parametrize("size", [None, 0, -1, 10**24, True, 8.0, "8", [8]])
def test_a_config_without_a_shape_is_an_error(tmp_path, size):
    with pytest.raises(DataError, match="no depth and width of the model"):
        checkpoints.locate(model(checkpoint(tmp_path / "one", hidden_size=size)))


def test_weights_that_cannot_be_read_are_named_before_a_run(tmp_path):
    whole = save({"x": np.ones(9)})
    for step, content in enumerate((b"w" * 5000, whole[:-1], b"", whole)):
        folder = checkpoint(tmp_path / f"step{step}")
        (folder / "model.safetensors").write_bytes(content)
    assert [
        warning[: warning.index(":", 4)] for warning in checkpoints.locate(model(tmp_path)).warnings
    ] == [f"m: step{step} cannot be read and will be recorded as an error" for step in range(3)]


def test_a_folder_in_place_of_a_file_is_no_file(tmp_path):
    checkpoint(tmp_path / "one")
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (tmp_path / "one" / name).unlink()
        (tmp_path / "one" / name).mkdir()
        with pytest.raises(ConfigError, match=r"no tokenizer|has no weights|no model in"):
            checkpoints.locate(model(tmp_path / "one"))


@pytest.mark.parametrize(
    "file", ["tokenizer.json", "tokenizer_config.json", "vocab.txt", "spiece.model"]
)
def test_a_folder_without_a_tokenizer_is_refused_with_the_remedy(tmp_path, file):
    for step in (0, 8):
        (checkpoint(tmp_path / f"step{step}") / "tokenizer.json").rename(
            tmp_path / f"step{step}" / file
        )
        (tmp_path / f"step{step}" / "model.safetensors").write_bytes(bytes([step]))
    assert checkpoints.locate(model(tmp_path)).suite.revisions == ("step0", "step8")
    (tmp_path / "step8" / file).unlink()
    with pytest.raises(
        ConfigError, match=r"step8' has no tokenizer.*Copy tokenizer\.json.*save_pretrained"
    ):
        checkpoints.locate(model(tmp_path))
    # the one that is not used
    assert checkpoints.locate(model(tmp_path, revisions=["step0"])).width == 8


@pytest.mark.parametrize(
    ("kind", "reason"), [("vit", "it reads images"), ("wav2vec2", "it reads sound")]
)
def test_a_model_that_reads_no_text_is_refused(tmp_path, kind, reason):
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    folder = checkpoint(tmp_path / "one")
    transformers.AutoConfig.for_model(kind, **sizes).save_pretrained(folder)
    with pytest.raises(
        ConfigError, match=f"of a {kind}, which is no model that reads text: {reason}"
    ):
        checkpoints.locate(model(folder))


def test_a_model_without_a_vocabulary_is_refused(tmp_path):
    folder = checkpoint(tmp_path / "one")
    (folder / "config.json").write_text(
        '{"num_hidden_layers": 2, "hidden_size": 8, "model_type": "patchtst"}'
    )
    with pytest.raises(ConfigError, match=r"of a patchtst, .*no vocabulary \(vocab_size\)"):
        checkpoints.locate(model(folder))


@pytest.mark.parametrize("kind", KINDS)
def test_the_shape_of_every_architecture_is_known(tmp_path, kind):
    changes = {**SMALL, **KINDS[kind].config}
    named = {name: value for name, value in changes.items() if value is not None}
    folder = checkpoint(tmp_path / "one")
    transformers.AutoConfig.for_model(kind, **named).save_pretrained(folder)
    located = checkpoints.locate(model(folder))
    assert (located.suite.depth, located.width) == (DEPTH, SMALL["hidden_size"])


def test_a_hub_id_needs_no_network_to_be_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    located = checkpoints.locate(
        model("org/model-7m", revisions="every 10 to 30", layers="blocks", depth=6, width=128)
    )
    assert located.suite.revisions == ("step0", "step10", "step20", "step30")
    assert located.missing == located.suite.revisions


def test_a_revision_that_is_not_cached_is_an_error_offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(
        ConfigError,
        match=r"step0 not in the hub's cache.*hf download org/model-7m --revision step0",
    ):
        hub.require_on_hub(model("org/model-7m"), ["step0"], "mean")
    hub.require_on_hub(model("org/model-7m"), [], "mean")


def test_a_revision_in_the_hubs_cache_is_found_and_loaded_offline(tmp_path, minilm, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--org--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "step1000").write_text(commit)
    shutil.copytree(minilm, repository / "snapshots" / commit)
    located = checkpoints.locate(model("org/tiny", revisions="every 1000 to 1000"))
    assert (located.suite.depth, located.missing) == (6, ("step0",))
    with LoadedModel(located.locations[1], Protocol()) as loaded:
        assert (loaded.depth, loaded.width) == (6, 384)


def with_header(folder: Path, tensors, tokens=99, **config) -> Path:
    """A checkpoint of two blocks, with these tensors in place of some of its own."""
    checkpoint(folder, **config)
    header = {"embeddings.weight": np.ones((100, 8), np.float32)}
    header |= {f"layer.{i}.weight": np.ones((8, 8), np.float32) for i in range(2)}
    content = {name: array for name, array in {**header, **tensors}.items() if array is not None}
    (folder / "model.safetensors").write_bytes(save(content))
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
        ({}, {"tokens": 100}, "token number 100, and the embedding has 100 rows"),
    ],
)
def test_weights_and_a_tokenizer_that_do_not_fit_the_configuration_are_refused(
    tmp_path, tensors, options, message
):
    folder = with_header(tmp_path / "m", tensors, **options)
    if message is None:
        assert checkpoints.locate(model(folder)).warnings == ()
        return
    with pytest.raises(ConfigError, match=f"does not fit its config.json: .*{message}"):
        checkpoints.locate(model(folder))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_a_model_with_code_of_its_own_is_refused_unless_the_code_is_to_be_ignored(tmp_path, file):
    folder = with_header(tmp_path / "m", {})
    content = json.loads((folder / "config.json").read_text())
    (folder / file).write_text(json.dumps({**content, "auto_map": {"AutoModel": "evil.Model"}}))
    with pytest.raises(ConfigError, match=rf"code of its own \({file}: .*evil.*ignore_code: true"):
        checkpoints.locate(model(folder))
    assert checkpoints.locate(model(folder, ignore_code=True)).width == 8
