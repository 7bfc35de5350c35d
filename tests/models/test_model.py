from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoModel,
    AutoTokenizer,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
)

from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.core.results import NetworkSize
from daskmetrics.models import LoadedModel, pad_batch, plan_batches, pool

TEXTS = [
    "one",
    "a much longer sentence about layers of a network",
    "two words",
    "",
    "three little words",
]


def at(folder) -> Location:
    return Location(str(folder), None, "identity")


@pytest.fixture(scope="module")
def neox(tmp_path_factory, minilm):
    """A random GPT-NeoX whose states are far from unit scale, so that the final norm matters."""
    folder = tmp_path_factory.mktemp("neox")
    torch.manual_seed(0)
    config = GPTNeoXConfig(
        vocab_size=31_000,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    network = GPTNeoXForCausalLM(config)
    torch.nn.init.normal_(network.base_model.final_layer_norm.weight, 1, 0.2)
    torch.nn.init.normal_(network.base_model.final_layer_norm.bias, 0, 0.2)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return folder


def reference(folder, text, layer, state_norm, pooling):
    """One text at a time, without padding, straight from transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    raw = []
    norm = getattr(network, "final_layer_norm", None)
    if norm is not None:
        norm.register_forward_pre_hook(lambda module, args: raw.append(args[0]))
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        hidden = network(ids, output_hidden_states=True).hidden_states
        last = layer == len(hidden) - 1
        states = hidden[layer]
        if norm is not None and state_norm == "raw" and last:
            states = raw[0]
        if norm is not None and state_norm == "final_ln" and not last:
            states = norm(states)
    return {"mean": states.mean(1), "last": states[:, -1], "cls": states[:, 0]}[pooling][0].numpy()


@pytest.mark.parametrize("state_norm", ["raw", "final_ln", "hidden_states"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_a_batch_equals_its_texts_one_by_one(neox, state_norm, padding, pooling):
    model = LoadedModel(at(neox), Protocol(state_norm=state_norm, padding=padding, max_length=64))
    vectors = model.encode(TEXTS, [0, 1, 3], pooling)
    assert vectors.shape == (3, 5, 32)
    for i, layer in enumerate([0, 1, 3]):
        expected = np.array([reference(neox, text, layer, state_norm, pooling) for text in TEXTS])
        np.testing.assert_allclose(vectors[i], expected, atol=2e-5 * abs(expected).max())


def test_the_final_norm_changes_all_layers_but_the_last(neox):
    by_norm = {
        norm: LoadedModel(at(neox), Protocol(state_norm=norm)).encode(TEXTS, range(4), "mean")
        for norm in ("raw", "final_ln", "hidden_states")
    }
    assert np.array_equal(by_norm["hidden_states"][3], by_norm["final_ln"][3])
    assert np.array_equal(by_norm["hidden_states"][:3], by_norm["raw"][:3])
    for layer in range(4):
        assert not np.allclose(by_norm["raw"][layer], by_norm["final_ln"][layer], rtol=0.1)


def test_an_encoder_without_a_final_norm(minilm):
    vectors = LoadedModel(at(minilm), Protocol()).encode(TEXTS[:3], range(7), "mean")
    for layer in range(7):
        expected = np.array(
            [reference(minilm, text, layer, "final_ln", "mean") for text in TEXTS[:3]]
        )
        np.testing.assert_allclose(vectors[layer], expected, atol=2e-5)


def test_long_texts_are_cut_at_the_number_of_positions(neox):
    model = LoadedModel(at(neox), Protocol(max_length=1000))
    assert model.max_length == 64
    assert np.isfinite(model.encode(["word " * 500], [3], "mean")).all()


def test_an_empty_text_has_a_finite_vector(neox):
    assert np.isfinite(LoadedModel(at(neox), Protocol()).encode(["", "x"], range(4), "mean")).all()


def test_broken_weights_are_named(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox", "hidden_size": 8}')
    (tmp_path / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=str(tmp_path)):
        LoadedModel(at(tmp_path), Protocol())


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200))
def test_batches_hold_every_row_once_within_the_budget(lengths, budget):
    batches = plan_batches(lengths, budget)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_and_pooling_see_real_tokens_only(side):
    ids, mask = pad_batch([[5, 6, 7], [8]], pad=0, side=side)
    assert ids[mask].tolist() == [5, 6, 7, 8]
    states = ids.float().unsqueeze(-1)
    assert pool(states, mask, "mean").flatten().tolist() == [6, 8]
    assert pool(states, mask, "last").flatten().tolist() == [7, 8]
    assert pool(states, mask, "cls").flatten().tolist() == [5, 8]


def test_the_size_counts_the_weights_that_each_layer_needs(neox):
    network = AutoModel.from_pretrained(neox)
    block = sum(weights.numel() for weights in network.layers[0].parameters())
    whole = sum(weights.numel() for weights in network.parameters())
    with LoadedModel(at(neox), Protocol(dtype="float32")) as model:
        size = model.size([0, 2, 3])
    outside = whole - 3 * block
    assert size == NetworkSize(
        parameters=(outside, outside + 2 * block, whole),
        computed=(0, 2 * block, 3 * block),
        attention=32,
        whole=whole,
    )
    assert block == pytest.approx(4 * 32**2 + 2 * 32 * 64, rel=0.05) and outside == pytest.approx(
        31_000 * 32, rel=0.01
    )


def test_a_block_that_runs_again_is_kept_once_and_computed_twice(tmp_path, minilm):
    config = AlbertConfig(
        vocab_size=31_000, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    AlbertModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(tmp_path)
    with LoadedModel(at(tmp_path), Protocol(dtype="float32")) as model:
        size = model.size([0, 1, 2])
    once, kept = size.computed[1], size.parameters
    assert size.computed == (0, once, 2 * once)
    assert kept == (kept[0], kept[0] + once, kept[0] + once)
    assert size.whole > kept[2]  # a pooler, which no layer reads
