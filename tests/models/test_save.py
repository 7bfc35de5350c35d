"""A model that is cut after a layer, and an encoder that is loaded, give the vectors of an arm."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

import daskmetrics as dm
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import TextEncoder
from tests import embedders

from .architectures import build

TEXTS = [
    "one",
    "a much longer sentence about the layers of a network, " * 8,
    "two words",
    "three little words",
]


def encoder_of(folder: Path, layer: int, readout: str = "", **protocol: str) -> TextEncoder:
    read = protocol_of(Protocol(**protocol), Model(name="m", source=str(folder)), folder)
    return TextEncoder.load(layer, readout, read.as_dict(), path=str(folder), revision=None)


def saved_by(encoder: TextEncoder, folder: Path, card: str = "") -> SentenceTransformer:
    return SentenceTransformer(str(encoder.save(folder / "saved", card)), device="cpu")


def parameters(network: torch.nn.Module) -> int:
    """Numbers of weights, without a pooler, which no layer reads."""
    named = network.named_parameters()
    return sum(weights.numel() for name, weights in named if "pooler" not in name)


@pytest.mark.parametrize("layer", [0, 6])
def test_a_cut_encoder_keeps_what_it_ships(minilm, tmp_path, layer):
    encoder = encoder_of(minilm, layer)
    saved = saved_by(encoder, tmp_path, "\nMeasured.\n")
    np.testing.assert_allclose(saved.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    whole = SentenceTransformer(str(minilm), device="cpu")
    assert (parameters(saved) < parameters(whole)) == (layer < 6) and saved.max_seq_length == 256
    assert "Measured." in (tmp_path / "saved" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["e5", "qwen3"])
def test_prompts_and_dense_modules_are_saved(tmp_path, kind):
    settings = embedders.KINDS[kind]
    network = embedders.network_of(kind, tmp_path / "network")
    pooling = Pooling(embedders.WIDTH, settings["pooling_mode"], include_prompt=False)
    rest = [pooling, embedders.dense(torch.nn.Tanh()), Normalize()]
    folder = embedders.save(tmp_path / "model", network, rest, prompts=settings["prompts"])
    encoder = encoder_of(folder, 2)
    saved = saved_by(encoder, tmp_path)
    for prompt in (None, "query"):
        vectors = encoder.encode(TEXTS, prompt)
        assert vectors.shape == (4, embedders.WIDTH // 2)
        np.testing.assert_allclose(saved.encode(TEXTS, prompt_name=prompt), vectors, atol=1e-5)
    assert np.abs(encoder.encode(TEXTS) - encoder.encode(TEXTS, "query")).max() > 1e-3


@pytest.mark.parametrize(
    ("model", "layer", "pooling", "readout", "width", "normalised"),
    [
        ("neox", 0, "mean", "", 32, False),
        ("neox", 1, "last", "", 32, False),
        ("neox", 2, "cls", "", 32, False),
        ("neox", 1, "mean", "weighted", 32, False),
        ("neox", 1, "mean", "cls,16d", 16, False),
        # what a model ships comes before the rest of a readout
        ("e5", 1, "as_shipped", "20d", 20, True),
        ("e5", 1, "as_shipped", "as_shipped,16d", 16, True),
        ("e5", 1, "as_shipped", "max", 32, False),
    ],
)
def test_a_saved_layer_gives_the_vectors_of_the_arm(
    request, tmp_path, model, layer, pooling, readout, width, normalised
):
    folder = request.getfixturevalue(model)
    encoder = encoder_of(folder, layer, readout, pooling=pooling)
    vectors, saved = encoder.encode(TEXTS), saved_by(encoder, tmp_path)
    assert vectors.shape == (4, width)
    np.testing.assert_allclose(saved.encode(TEXTS), vectors, atol=1e-5 * np.abs(vectors).max())
    assert (np.linalg.norm(vectors, axis=1) < 1.001).all() == normalised
    assert parameters(saved[0]) == encoder.model.size([layer]).parameters[0]
    assert readout in (tmp_path / "saved" / "README.md").read_text()


def test_a_layer_before_the_final_norm_is_not_saved(neox, tmp_path):
    with pytest.raises(
        DataError, match="Layer 1 was read with 'state_norm: raw', before the final"
    ):
        encoder_of(neox, 1, state_norm="raw").save(tmp_path / "saved")
    assert not any(tmp_path.iterdir())


def test_a_readout_needs_the_pooling_that_it_names(neox):
    with pytest.raises(DataError, match="ships no pooling"):
        encoder_of(neox, 2, "as_shipped").encode(TEXTS)


def test_a_folder_that_ships_something_else_now_is_refused(tmp_path):
    folder = embedders.build("e5", tmp_path / "model")
    read = protocol_of(Protocol(), Model(name="m", source=str(folder)), folder).as_dict()
    config = folder / "1_Pooling" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "pooling_mode": "cls"}))
    with pytest.raises(DataError, match="does not say any more how its states become vectors"):
        TextEncoder.load(1, "", read, path=str(folder), revision=None)


@pytest.mark.parametrize("kind", ["bert", "gpt_neox", "bart", "t5", "xlnet"])
def test_a_saved_layer_0_is_read_again(tmp_path, minilm, kind):
    folder = build(kind, tmp_path / "whole", minilm)
    with encoder_of(folder, 0) as encoder:
        wanted = encoder.encode(TEXTS)
        encoder.save(tmp_path / "0")
    vectors = dm.embed(str(tmp_path / "0"), TEXTS)
    assert vectors.layer.values.tolist() == [0]
    np.testing.assert_array_equal(vectors[:, 0], wanted)


@pytest.mark.parametrize("kind", ["modernbert", "deberta-v2", "led"])
def test_a_layer_that_cannot_be_the_last_is_refused(tmp_path, minilm, kind):
    folder = build(kind, tmp_path / "whole", minilm)
    with (
        encoder_of(folder, 0, state_norm="final_ln") as encoder,
        pytest.raises(DataError, match=f"A {kind} (cannot be )?cut after layer 0"),
    ):
        encoder.save(tmp_path / "0")
