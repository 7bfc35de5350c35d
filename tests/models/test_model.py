"""Batches, padding, and the size of a network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    AlbertConfig,
    AlbertModel,
    AutoModel,
    AutoTokenizer,
)

from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.core.results import NetworkSize
from daskmetrics.models import LoadedModel, pad_batch, plan_batches, pool

from .architectures import at, build, encode


@pytest.fixture(scope="module")
def neox(tmp_path_factory, minilm):
    return build("gpt_neox", tmp_path_factory.mktemp("neox"), minilm)


def test_an_empty_text_has_a_finite_vector(neox):
    assert np.isfinite(encode(LoadedModel(at(neox), Protocol()), ["", "x"], range(4), "mean")).all()


def test_a_closed_model_reads_nothing(neox):
    """Its network may have the weights of another checkpoint by then."""
    with LoadedModel(at(neox), Protocol()) as model:
        encode(model, ["x"], [1], "mean")
    with pytest.raises(DataError, match="was closed"):
        encode(model, ["x"], [1], "mean")


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
