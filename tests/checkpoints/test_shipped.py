"""What is read of a sentence-transformers folder, and what is refused; no network is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints import shipped as shipped
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import content_key

LIBRARY = "sentence_transformers.models"
CONFIG = {"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 30}


def write(folder: Path, **files: Any) -> Path:
    """A folder with these JSON files; ``a__b`` is ``a/b.json``."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return folder


def modules(*kinds: str) -> list[dict[str, Any]]:
    return [{"idx": i, "path": f"{i}_x" if i else "", "type": kind} for i, kind in enumerate(kinds)]


def folder_of(path: Path, *rest: str, **files: Any) -> Path:
    """A folder with a Transformer, a mean Pooling and further modules."""
    kinds = [f"{LIBRARY}.{kind}" for kind in ("Transformer", "Pooling", *rest)]
    pooling = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
    (path / "2_x").mkdir(parents=True, exist_ok=True)
    (path / "model.safetensors").write_bytes(b"w")
    named = {
        "modules": modules(*kinds),
        "config": CONFIG,
        "tokenizer_config": {},
        "1_x__config": pooling,
    }
    return write(path, **{**named, **files})


def model(source: Path | str = "org/name", **options: Any) -> Model:
    return Model(name="m", source=str(source), **options)


DENSE = {
    "in_features": 8,
    "out_features": 4,
    "activation_function": "torch.nn.modules.activation.Tanh",
}


NOT_PLAIN = "does not read plain texts"
FOREIGN, WORDS = "custom_st.Transformer", f"{LIBRARY}.WordEmbeddings"
POOLING = f"{LIBRARY}.Pooling"


@pytest.mark.parametrize(
    ("rest", "file", "content", "message"),
    [
        ("CNN", "2_x__config", {}, "module CNN is not known"),
        ("", "modules", modules(FOREIGN, POOLING), "custom_st.Transformer' has code of"),
        ("", "modules", modules(WORDS, POOLING), "begin with WordEmbeddings"),
        ("", "modules", modules(f"{LIBRARY}.Transformer"), "begin with Transformer, where"),
        ("", "1_x__config", {"pooling_mode": "median"}, "pooling 'median' is not known"),
        ("", "sentence_bert_config", {"transformer_task": "fill-mask"}, NOT_PLAIN),
        ("", "sentence_bert_config", {"modality_config": {"message": {}}}, NOT_PLAIN),
        ("", "sentence_bert_config", {"query_length": 8}, "sets query_length"),
        ("", "sentence_bert_config", {"config_args": {"is_causal": False}}, "s: is_causal"),
        ("", "config_sentence_transformers", {"similarity_fn_name": "euclidean"}, "is euclidean"),
        ("Dense", "2_x__config", {**DENSE, "in_features": 9}, "reads 9 numbers, and .* has 8"),
        ("Dense", "2_x__config", {**DENSE, "activation_function": "my.Act"}, "'my.Act' of its De"),
        ("Dense", "2_x__config", {**DENSE, "module_input_name": "token"}, "does not read or write"),
        ("Dense", "2_x__config", DENSE, "model.safetensors' is missing"),
    ],
)
def test_a_folder_that_cannot_be_applied_needs_a_pooling(
    tmp_path: Path, rest: str, file: str, content: Any, message: str
) -> None:
    folder = folder_of(tmp_path / "m", *filter(None, [rest]), **{file: content})
    with pytest.raises(ConfigError, match=rf"(?s){message}.*pooling: mean"):
        protocol_of(Protocol(), model(folder), folder)
    assert protocol_of(Protocol(), model(folder, pooling="cls"), folder).base.pooling == "cls"


def test_pickled_dense_weights_must_be_allowed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", "Dense", **{"2_x__config": DENSE})
    (folder / "2_x" / "pytorch_model.bin").write_bytes(b"w")
    with pytest.raises(ConfigError, match="pickled: true"):
        shipped.read(folder)
    assert shipped.read(folder, pickled=True) is not None


def test_a_missing_file_of_a_module_names_the_download(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m")
    (folder / "1_x" / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"is missing.*hf download"):
        shipped.read(folder)


def test_lengths_and_padding_are_those_of_the_folder(tmp_path: Path) -> None:
    tokenizer = {"model_max_length": 10**30, "padding_side": "left"}
    folder = folder_of(tmp_path / "m", tokenizer_config=tokenizer)

    def base(**options: Any) -> Protocol:
        return protocol_of(Protocol(), model(folder, **options), folder).base

    assert base().max_length == 256
    write(folder, config={**CONFIG, "max_position_embeddings": 64})
    assert (base().max_length, base().padding, base().pooling) == (64, "left", "as_shipped")
    write(folder, sentence_bert_config={"max_seq_length": 32})
    assert (base().max_length, base(max_length=16).max_length) == (32, 16)


def test_a_bare_model_is_read_as_configured_or_by_the_mean(tmp_path: Path) -> None:
    bare = protocol_of(Protocol(), model(tmp_path), tmp_path)
    assert bare.key == content_key(Protocol(pooling="mean").model_dump(mode="json"))
    assert protocol_of(Protocol(pooling="last"), model(tmp_path), None).base.pooling == "last"


@pytest.mark.parametrize("folder", [None, Path("/tmp")])
def test_a_bare_model_cannot_be_read_as_shipped(folder: Path | None) -> None:
    with pytest.raises(ConfigError, match="'m' has 'pooling: as_shipped', but"):
        protocol_of(Protocol(), model(pooling="as_shipped"), folder)


CHANGES = {
    "1_x__config": {"word_embedding_dimension": 8, "pooling_mode_cls_token": True},
    "sentence_bert_config": {"do_lower_case": True},
    "config_sentence_transformers": {"prompts": {"query": "q: "}},
    "tokenizer_config": {"padding_side": "left"},
    "2_x__config": {**DENSE, "use_residual": True},
}


@given(st.sets(st.sampled_from([*CHANGES, "weights"]), min_size=1))
def test_any_change_of_what_is_shipped_changes_the_key(
    tmp_path_factory: pytest.TempPathFactory, changed: set[str]
) -> None:
    keys = []
    for files in ({}, {name: CHANGES[name] for name in changed & CHANGES.keys()}):
        folder = folder_of(tmp_path_factory.mktemp("m"), "Dense", **{"2_x__config": DENSE, **files})
        (folder / "2_x" / "model.safetensors").write_bytes(
            b"new" if keys and "weights" in changed else b"old"
        )
        keys.append(protocol_of(Protocol(), model(folder), folder).key)
    assert len(set(keys)) == 2


def test_a_network_in_a_sub_folder_is_one_revision(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "m")
    listed = modules(f"{LIBRARY}.Transformer", f"{LIBRARY}.Pooling")
    listed[0]["path"] = "0_Transformer"
    write(root, modules=listed)
    (root / "0_Transformer").mkdir()
    for name in ("config.json", "tokenizer_config.json", "model.safetensors"):
        (root / name).rename(root / "0_Transformer" / name)
    located = checkpoints.locate(model(root))
    assert located.suite.revisions == ("main",)
    assert located.locations[0].path.endswith("0_Transformer")
    assert shipped.read(Path(located.locations[0].path)) is not None
    write(root, **{"1_x__config": {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}})
    assert checkpoints.locate(model(root)).locations[0].identity != located.locations[0].identity


@pytest.mark.parametrize(
    ("limits", "is_refused"),
    [
        ({}, True),
        ({"max_length": 128}, False),
        ({"tokenizer": {"model_max_length": 128}}, False),
        ({"max_position_embeddings": 128}, False),
    ],
)
def test_texts_longer_than_a_network_attends_to_are_refused(tmp_path, limits, is_refused):
    read = model(max_length=limits.pop("max_length", None))
    tokenizer = limits.pop("tokenizer", {})
    config = {**CONFIG, "model_type": "deepseek_v32", "index_topk": 128, **limits}
    folder = write(tmp_path, config=config, tokenizer_config=tokenizer)
    if is_refused:
        with pytest.raises(ConfigError, match=r"128 tokens .* up to 256 .*'max_length: 128'"):
            protocol_of(Protocol(), read, folder)
    else:
        assert protocol_of(Protocol(), read, folder).base.max_length >= 128
