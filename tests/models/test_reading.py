"""What happens around a forward pass: batches, padding, tokens once, too little memory, too little
range, and the same bits as ever.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AlbertConfig, AlbertModel, AutoModel, AutoTokenizer

import daskmetrics as dm
from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.domain.results import NetworkSize
from daskmetrics.models import LoadedModel, pad_batch, plan_batches, pool
from daskmetrics.models import _model as model
from daskmetrics.models import _tokens as tokens

from .architectures import SMALL, at, build, encode

TEXTS = [f"{'word ' * (i % 7)}number {i}" for i in range(40)] + [""]
PADDED = ("gpt2", "roberta", "gpt_neox", "bloom", "t5", "bart")
WORDS = st.lists(
    st.sampled_from(["a", "layer", "reads", "tokens", "3", "times", ",", "not", "twice"]),
    max_size=12,
)


def straightforward(folder, protocol, layers, pooling="mean"):
    """All hidden states of each batch from transformers, then norm and pooling: no hooks, no cut,
    nothing kept.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder).eval()
    ids = [tokenizer(text, truncation=True, max_length=64)["input_ids"] for text in TEXTS]
    raw: list[torch.Tensor] = []
    network.final_layer_norm.register_forward_pre_hook(lambda _, args: raw.append(args[0]))
    vectors = np.empty((len(layers), len(TEXTS), 32), np.float32)
    with torch.inference_mode():
        for rows in plan_batches([len(row) for row in ids], protocol.batch_tokens):
            padded, mask = pad_batch(
                [ids[row] for row in rows], tokenizer.pad_token_id, protocol.padding
            )
            inputs = {"attention_mask": mask.long(), "output_hidden_states": True}
            if protocol.padding == "left":
                inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
            hidden = list(network(padded, **inputs).hidden_states)
            last, hidden[-1] = hidden[-1], raw.pop()
            if protocol.state_norm == "final_ln":
                hidden = [*map(network.final_layer_norm, hidden[:-1]), last]
            for i, layer in enumerate(layers):
                vectors[i, rows] = pool(hidden[layer], mask, pooling).numpy()
    return vectors


@pytest.mark.parametrize(
    ("state_norm", "padding", "layers"),
    [
        ("raw", "left", [0, 1, 2, 3]),
        ("raw", "right", [2, 0]),
        ("final_ln", "left", [2, 0]),
        ("final_ln", "right", [0, 1, 2, 3]),
    ],
)
def test_the_same_bits_as_a_straightforward_pass(neox, state_norm, padding, layers):
    protocol = Protocol(state_norm=state_norm, padding=padding, batch_tokens=64)
    with LoadedModel(at(neox), protocol) as read:
        vectors = encode(read, TEXTS, layers, "mean")
    assert np.array_equal(vectors, straightforward(neox, protocol, layers))
    assert np.isfinite(vectors).all()  # also of an empty text


@pytest.fixture(scope="module")
def models(tmp_path_factory, minilm):
    """Models of each kind that pad on the left and on the right."""
    folder = tmp_path_factory.mktemp("kinds")
    places = {kind: at(build(kind, folder / kind, minilm)) for kind in PADDED}
    sides = [Protocol(padding=side, state_norm="raw") for side in ("left", "right")]
    return {kind: [LoadedModel(place, side) for side in sides] for kind, place in places.items()}


@pytest.mark.slow  # six networks; one is read bit by bit above
@settings(max_examples=5)
@given(
    texts=st.lists(WORDS.map(" ".join), min_size=2, max_size=6, unique=True),
    order=st.randoms(use_true_random=False),
    pooling=st.sampled_from(["mean", "last", "cls"]),
)
@pytest.mark.parametrize("kind", PADDED)
def test_a_vector_depends_on_its_text_alone(models, kind, texts, order, pooling):
    """Not on its neighbours, their order, or the side of the padding."""
    left, right = models[kind]
    alone = np.concatenate([encode(right, [text], range(4), pooling) for text in texts], axis=1)
    shuffled = order.sample(range(len(texts)), len(texts))
    for read in (left, right):
        vectors = np.empty_like(alone)
        vectors[:, shuffled] = encode(read, [texts[i] for i in shuffled], range(4), pooling)
        np.testing.assert_allclose(vectors, alone, atol=1e-5 * abs(alone).max())


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200), st.booleans())
def test_batches_hold_every_row_once_within_the_budget(lengths, budget, equal):
    batches = plan_batches(lengths, budget, equal=equal)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= budget
        assert not equal or len({lengths[row] for row in batch}) == 1


def test_a_closed_model_reads_nothing(neox):
    """Its network may have the weights of another checkpoint by then."""
    with LoadedModel(at(neox), Protocol()) as read:
        assert encode(read, [], [0, 1], "mean").shape == (2, 0, 32)
        assert encode(read, ["a"], [], "mean").shape == (0, 1, 32)
    with pytest.raises(DataError, match="was closed"):
        encode(read, ["x"], [1], "mean")


def test_single_words_have_no_metrics_of_views(neox):
    """Such as proteins."""
    measured = dm.measure(neox, [f"word{i}" for i in range(12)], ["effective_rank", "lidar"])
    assert measured["effective_rank"].notnull().all()
    assert measured["lidar"].isnull().all()
    assert "single words have none" in measured["lidar"].attrs["undefined"]


def test_the_size_counts_the_weights_that_each_layer_needs(neox):
    network = AutoModel.from_pretrained(neox)
    block = sum(weights.numel() for weights in network.layers[0].parameters())
    whole = sum(weights.numel() for weights in network.parameters())
    outside = whole - 3 * block
    with LoadedModel(at(neox), Protocol()) as read:
        size = read.size([0, 2, 3])
    parameters = (outside, outside + 2 * block, whole)
    assert size == NetworkSize(parameters, (0, 2 * block, 3 * block), attention=32, whole=whole)


def test_a_block_that_runs_again_is_kept_once_and_computed_twice(tmp_path, minilm):
    config = AlbertConfig(**{**SMALL, "num_hidden_layers": 2}, embedding_size=16)
    AlbertModel(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(tmp_path)
    with LoadedModel(at(tmp_path), Protocol()) as read:
        size = read.size([0, 1, 2])
    once, kept = size.computed[1], size.parameters
    assert size.computed == (0, once, 2 * once)
    assert kept == (kept[0], kept[0] + once, kept[0] + once)
    assert size.whole > kept[2]  # a pooler, which no layer reads


def test_checkpoints_with_equal_tokenizers_share_tokens(
    neox_pair, tmp_path, fresh_tokens, monkeypatch
):
    neox, other = neox_pair[0], shutil.copytree(neox_pair[1], tmp_path / "other")
    calls = []
    tokenize = tokens.Tokenizer._tokenize
    monkeypatch.setattr(
        tokens.Tokenizer, "_tokenize", lambda *given: calls.append(1) or tokenize(*given)
    )

    def calls_after_reading(folder, texts=TEXTS, **protocol):
        encode(LoadedModel(at(folder), Protocol(**protocol)), texts, [0], "mean")
        return len(calls)

    assert [calls_after_reading(folder) for folder in (neox, other, neox)] == [1, 1, 1]
    assert calls_after_reading(neox, max_length=8) == 2
    assert calls_after_reading(neox, TEXTS[:5]) == 3
    with (other / "tokenizer_config.json").open("a") as file:
        file.write("\n")
    assert calls_after_reading(other) == 4


def test_tokens_are_those_of_the_tokenizer_however_many_texts(neox, monkeypatch, fresh_tokens):
    monkeypatch.setattr(tokens, "_CHUNK", 7)
    tokenizer = AutoTokenizer.from_pretrained(neox)
    expected = [tokenizer(text, truncation=True, max_length=6)["input_ids"] for text in TEXTS]
    assert [row.tolist() for row in tokens.Tokenizer(at(neox))(TEXTS, 6)] == expected


class Memory:
    """Memory for so many padded tokens; records each request."""

    def __init__(self, read, tokens):
        # reads a few tokens, too
        read.network.parts.numbering(read.protocol.padding, read.tokenizer.pad)
        self.requests, self.tokens = [], tokens
        read.network.module.register_forward_pre_hook(self.allocate, with_kwargs=True)

    def allocate(self, _, args, inputs):
        self.requests.append(inputs["input_ids"].numel())
        if self.requests[-1] > self.tokens:
            raise torch.OutOfMemoryError("injected")


@pytest.fixture
def budgets(monkeypatch):
    monkeypatch.setattr(model, "_BUDGETS", {})
    return model._BUDGETS


def test_out_of_memory_halves_the_budget_permanently(neox, budgets, fresh_pool):
    protocol = Protocol(batch_tokens=200)
    expected = encode(LoadedModel(at(neox), protocol), TEXTS, range(4), "mean")
    read = LoadedModel(at(neox), protocol)
    memory = Memory(read, 60)
    vectors = encode(read, TEXTS, range(4), "mean")
    np.testing.assert_allclose(vectors, expected, atol=1e-5 * abs(expected).max())
    failed = [tokens for tokens in memory.requests if tokens > 60]
    assert len(failed) == 2  # 200, 100 and then 50
    assert sum(memory.requests) - sum(failed) < 1.2 * sum(len(row.split()) + 3 for row in TEXTS)
    assert [40 <= budget <= 50 for budget in budgets.values()] == [True]
    memory.requests.clear()
    encode(read, TEXTS, range(4), "mean")
    assert max(memory.requests) <= 60
    memory.tokens = 4  # not even one text
    with pytest.raises(torch.OutOfMemoryError):
        encode(read, TEXTS, [3], "mean")


def test_only_the_batch_that_ran_out_of_memory_is_repeated(neox, budgets, fresh_pool):
    read = LoadedModel(at(neox), Protocol(batch_tokens=64))
    batches = plan_batches(list(map(len, tokens.Tokenizer(at(neox))(TEXTS, 64))), 64)
    seen = {1: [], 2: []}

    def take(layer, rows, states, mask):
        if layer == 2 and rows.tolist() == batches[-2]:
            raise torch.OutOfMemoryError("in the middle of a batch")
        seen[layer] += rows.tolist()

    read.read(TEXTS, [1, 2], take)
    assert sorted(seen[1]) == sorted([*range(len(TEXTS)), *batches[-2]])
    assert sorted(seen[2]) == list(range(len(TEXTS)))


def test_only_a_lack_of_gpu_memory_halves_the_budget(neox, budgets, fresh_pool, monkeypatch):
    read = LoadedModel(at(neox), Protocol(batch_tokens=200))
    memory = Memory(read, 60)
    errors = iter(["CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling x", "an illegal access"])
    monkeypatch.setattr(torch, "OutOfMemoryError", lambda _: RuntimeError(next(errors)))
    with pytest.raises(RuntimeError, match="illegal"):
        encode(read, TEXTS, [3], "mean")
    assert len(memory.requests) == 2 and len(budgets) == 1


def test_float32_is_never_multiplied_in_tensorfloat32(neox, fresh_pool):
    matmul, seen = torch.backends.cuda.matmul, []
    before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
    try:
        read = LoadedModel(at(neox), Protocol())
        read.read(TEXTS, [1], lambda *_: seen.append(matmul.fp32_precision))
        assert set(seen) == {"ieee"} and matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before
