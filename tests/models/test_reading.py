"""What happens around a forward pass: tokens once, too little memory, too little range, and the
same bits as ever.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from daskmetrics.config import Protocol
from daskmetrics.models import LoadedModel, pad_batch, plan_batches, pool
from daskmetrics.models import _model as model
from daskmetrics.models import _tokens as tokens

from .architectures import at, build, encode

TEXTS = [f"{'word ' * (i % 7)}number {i}" for i in range(40)] + [""]


@pytest.fixture(scope="module")
def neox(tmp_path_factory, minilm):
    return build("gpt_neox", tmp_path_factory.mktemp("neox"), minilm)


def straightforward(folder, protocol, layers, pooling="mean"):
    """All hidden states of each batch from transformers, then norm and pooling: no hooks, no cut,
    nothing kept.
    """
    tokenizer, network = (
        AutoTokenizer.from_pretrained(folder),
        AutoModel.from_pretrained(folder).eval(),
    )
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
        assert np.array_equal(
            encode(read, TEXTS, layers, "mean"), straightforward(neox, protocol, layers)
        )


def test_checkpoints_with_equal_tokenizers_share_tokens(
    neox, tmp_path, minilm, fresh_tokens, monkeypatch
):
    other = build("gpt_neox", tmp_path / "other", minilm, seed=1)
    calls = []
    original = tokens.Tokenizer._tokenize
    monkeypatch.setattr(
        tokens.Tokenizer,
        "_tokenize",
        lambda self, *given: calls.append(1) or original(self, *given),
    )
    for folder in (neox, other, neox):
        encode(LoadedModel(at(folder), Protocol()), TEXTS, [0], "mean")
    assert calls == [1]
    encode(LoadedModel(at(neox), Protocol(max_length=8)), TEXTS, [0], "mean")
    encode(LoadedModel(at(neox), Protocol()), TEXTS[:5], [0], "mean")
    assert calls == [1, 1, 1]
    (other / "tokenizer_config.json").write_text(
        (other / "tokenizer_config.json").read_text() + "\n"
    )
    encode(LoadedModel(at(other), Protocol()), TEXTS, [0], "mean")
    assert len(calls) == 4


def test_tokens_are_those_of_the_tokenizer_however_many_texts(neox, monkeypatch, fresh_tokens):
    monkeypatch.setattr(tokens, "_CHUNK", 7)
    tokenizer = AutoTokenizer.from_pretrained(neox)
    read = tokens.Tokenizer(at(neox))(TEXTS, 6)
    expected = [tokenizer(text, truncation=True, max_length=6)["input_ids"] for text in TEXTS]
    assert [read[row].tolist() for row in range(len(TEXTS))] == expected
    assert list(map(len, read)) == list(map(len, expected))


class Memory:
    """Memory for so many padded tokens; records each request."""

    def __init__(self, read, tokens):
        read.network.parts.numbering(
            read.protocol.padding, read.tokenizer.pad
        )  # reads a few tokens, too
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
    expected = encode(LoadedModel(at(neox), Protocol(batch_tokens=200)), TEXTS, range(4), "mean")
    read = LoadedModel(at(neox), Protocol(batch_tokens=200))
    memory = Memory(read, 60)
    np.testing.assert_allclose(
        encode(read, TEXTS, range(4), "mean"), expected, atol=1e-5 * abs(expected).max()
    )
    failed = [tokens for tokens in memory.requests if tokens > 60]
    assert len(failed) == 2  # 200, 100 and then 50
    assert sum(memory.requests) - sum(failed) < 1.2 * sum(len(row.split()) + 3 for row in TEXTS)
    assert [40 <= budget <= 50 for budget in budgets.values()] == [True]
    memory.requests.clear()
    encode(read, TEXTS, range(4), "mean")
    assert max(memory.requests) <= 60


def test_only_the_batch_that_ran_out_of_memory_is_repeated(neox, budgets, fresh_pool):
    read = LoadedModel(at(neox), Protocol(batch_tokens=64))
    batches = plan_batches(list(map(len, tokens.Tokenizer(at(neox))(TEXTS, 64))), 64)
    seen, fail = [], [batches[-2]]

    def take(layer, rows, states, mask):
        if layer == 2 and rows.tolist() in fail:
            raise torch.OutOfMemoryError("in the middle of a batch")
        seen.append((layer, rows.tolist()))

    read.read(TEXTS, [1, 2], take)
    again = [row for layer, rows in seen for row in rows if layer == 1]
    assert sorted(again) == sorted([*range(len(TEXTS)), *batches[-2]])
    assert sorted(row for layer, rows in seen for row in rows if layer == 2) == list(
        range(len(TEXTS))
    )


def test_a_library_of_cuda_without_memory_halves_the_budget_and_another_error_ends_the_reading(
    neox, budgets, fresh_pool, monkeypatch
):
    read = LoadedModel(at(neox), Protocol(batch_tokens=200))
    memory = Memory(read, 60)
    texts = iter(
        [
            "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "an illegal access",
        ]
    )
    monkeypatch.setattr(torch, "OutOfMemoryError", lambda _: RuntimeError(next(texts)))
    with pytest.raises(RuntimeError, match="illegal"):
        encode(read, TEXTS, [3], "mean")
    assert len(memory.requests) == 2 and len(budgets) == 1


def test_float32_is_multiplied_as_such_whatever_the_process_allows(neox, fresh_pool):
    matmul, seen = torch.backends.cuda.matmul, []
    before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
    try:
        read = LoadedModel(at(neox), Protocol())
        read.read(TEXTS, [1], lambda *_: seen.append(matmul.fp32_precision))
        assert set(seen) == {"ieee"} and matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def test_one_text_that_does_not_fit_is_an_error(neox, budgets, fresh_pool):
    read = LoadedModel(at(neox), Protocol())
    Memory(read, 4)
    with pytest.raises(torch.OutOfMemoryError):
        encode(read, TEXTS, [3], "mean")


def test_nothing_to_read(neox):
    with LoadedModel(at(neox), Protocol()) as read:
        assert encode(read, [], [0, 1], "mean").shape == (2, 0, 32)
        assert encode(read, ["a"], [], "mean").shape == (0, 1, 32)
