"""A model that is cut after a layer gives the vectors of that layer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoTokenizer, GPTNeoXConfig, GPTNeoXModel

from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import Encoder
from tests import embedders

TEXTS = [
    "one",
    "a much longer sentence about the layers of a network, " * 8,
    "two words",
    "three little words",
]


@pytest.fixture(scope="module")
def neox(tmp_path_factory, minilm: Path) -> Path:
    """A random GPT-NeoX whose final norm is far from the identity."""
    folder = tmp_path_factory.mktemp("neox")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    network = GPTNeoXModel(
        GPTNeoXConfig(vocab_size=31_000, max_position_embeddings=64, initializer_range=0.5, **sizes)
    )
    torch.nn.init.normal_(network.final_layer_norm.weight, 1, 0.2)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return folder


def encoder_of(folder: Path, layer: int, **protocol) -> Encoder:
    read = protocol_of(Protocol(**protocol), Model(name="m", source=str(folder)), folder)
    return Encoder.load(str(folder), None, layer, read.as_dict())


def parameters(network: torch.nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize(("layer", "pooling"), [(0, "mean"), (1, "last"), (2, "cls")])
def test_a_cut_decoder_gives_the_vectors_of_its_last_layer(
    neox: Path, tmp_path: Path, layer: int, pooling: str
) -> None:
    encoder = encoder_of(neox, layer, pooling=pooling)
    saved = SentenceTransformer(str(encoder.save(tmp_path / "saved")), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    assert parameters(saved) == encoder.model.size([layer]).parameters[0]


@pytest.mark.parametrize("layer", [0, 6])
def test_a_cut_encoder_keeps_what_it_ships(minilm: Path, tmp_path: Path, layer: int) -> None:
    encoder = encoder_of(minilm, layer)
    saved = SentenceTransformer(
        str(encoder.save(tmp_path / "saved", "\nMeasured.\n")), device="cpu"
    )
    np.testing.assert_allclose(saved.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    whole = SentenceTransformer(str(minilm), device="cpu")
    assert (parameters(saved) < parameters(whole)) == (layer < 6) and saved.max_seq_length == 256
    assert "Measured." in (tmp_path / "saved" / "README.md").read_text()
    assert SentenceTransformer(str(minilm), device="cpu").get_embedding_dimension() == 384


@pytest.mark.parametrize("kind", ["e5", "qwen3"])
def test_prompts_and_dense_modules_are_saved(tmp_path: Path, kind: str) -> None:
    network = embedders.network_of(kind, tmp_path / "network")
    rest = [
        Pooling(embedders.WIDTH, embedders.KINDS[kind]["pooling_mode"], include_prompt=False),
        embedders.dense(torch.nn.Tanh()),
        Normalize(),
    ]
    folder = embedders.save(
        tmp_path / "model", network, rest, prompts=embedders.KINDS[kind]["prompts"]
    )
    encoder = encoder_of(folder, 2)
    saved = SentenceTransformer(str(encoder.save(tmp_path / "saved")), device="cpu")
    for prompt in (None, "query"):
        vectors = encoder.encode(TEXTS, prompt)
        assert vectors.shape == (4, embedders.WIDTH // 2)
        np.testing.assert_allclose(saved.encode(TEXTS, prompt_name=prompt), vectors, atol=1e-5)
    assert np.abs(encoder.encode(TEXTS) - encoder.encode(TEXTS, "query")).max() > 1e-3


def test_a_layer_before_the_final_norm_is_not_saved(neox: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="Layer 1 was read with 'state_norm: raw', before the final norm"
    ):
        encoder_of(neox, 1, state_norm="raw").save(tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_a_folder_that_ships_something_else_than_in_the_run_is_refused(tmp_path: Path) -> None:
    folder = embedders.build("e5", tmp_path / "model")
    read = protocol_of(Protocol(), Model(name="m", source=str(folder)), folder).as_dict()
    config = folder / "1_Pooling" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "pooling_mode": "cls"}))
    with pytest.raises(DataError, match="does not say any more how its states become vectors"):
        Encoder.load(str(folder), None, 1, read)
    assert Location(str(folder), None, "x").pickled is False


CORPUS = [
    f"{word} layers of network {number}"
    for number in range(10)
    for word in ("one", "two", "all", "these")
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """The prompts of a run, as its folder holds them."""
    path = tmp_path_factory.mktemp("run") / "corpus.json"
    path.write_text(json.dumps(CORPUS))
    return path


def read_out_of(folder: Path, layer: int, readout: str, corpus: Path | None) -> Encoder:
    read = protocol_of(Protocol(), Model(name="m", source=str(folder)), folder)
    return Encoder.load(str(folder), None, layer, read.as_dict(), readout=readout, corpus=corpus)


@pytest.mark.parametrize(
    ("readout", "width"),
    [
        ("weighted", 32),
        ("max", 32),
        ("cls,16d", 16),
        ("last,pca8", 8),
        ("mean,pca8", 8),
    ],
)
def test_a_saved_readout_gives_the_vectors_of_the_arm(
    neox: Path, corpus: Path, tmp_path: Path, readout: str, width: int
) -> None:
    encoder = read_out_of(neox, 1, readout, corpus)
    vectors = encoder.encode(TEXTS)
    saved = SentenceTransformer(str(encoder.save(tmp_path / "saved")), device="cpu")
    assert vectors.shape == (4, width)
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, atol=1e-5 * np.abs(vectors).max())
    assert vectors.shape[1] == width and readout in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.parametrize(
    ("readout", "width"), [("100d", 100), ("as_shipped,pca16", 16), ("mean", 384)]
)
def test_what_a_model_ships_comes_before_the_rest_of_a_readout(
    minilm: Path, corpus: Path, tmp_path: Path, readout: str, width: int
) -> None:
    encoder = read_out_of(minilm, 3, readout, corpus)
    saved = SentenceTransformer(str(encoder.save(tmp_path / "saved")), device="cpu")
    vectors = encoder.encode(TEXTS)
    assert vectors.shape == (4, width)
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, atol=1e-5)
    # it ships a normalisation
    assert (np.linalg.norm(vectors, axis=1) < 1.001).all() == (readout != "mean")


def test_layers_that_are_read_together_cannot_be_saved(neox: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"reads several layers together, which a model of sentence"
    ):
        read_out_of(neox, 2, "mean,mean1+2", None).save(tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_a_fitted_readout_needs_the_prompts_of_its_run(neox: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"Readout 'mean,pca8' is fitted on the prompts of the run, but there is no file",
    ):
        read_out_of(neox, 2, "mean,pca8", tmp_path / "corpus.json")
