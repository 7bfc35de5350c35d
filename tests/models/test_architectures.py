"""Every architecture against transformers, one text at a time."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, OPTConfig

from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models._parts import parts_of

from .architectures import (
    DEPTH,
    KINDS,
    SMALL,
    TEXTS,
    at,
    build,
    change_by_order,
    encode,
    expected,
    largest_difference,
    reader,
)


def network_of(kind, **changes):
    """A network of random weights without a tokenizer."""
    return AutoModel.from_config(AutoConfig.for_model(kind, **{**SMALL, **changes})).eval()


def mean_vectors(folder, layers=range(DEPTH + 1), texts=TEXTS, **protocol):
    with LoadedModel(at(folder), Protocol(**protocol)) as model:
        return encode(model, texts, layers, "mean")


def states_of(parts, layers):
    """States of one short text at some layers."""
    seen, ids = {}, torch.arange(8)[None]
    parts.run(parts.inputs(torch.ones_like(ids), False, input_ids=ids), layers, seen.__setitem__)
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_batches_give_the_vectors_of_single_texts(tmp_path, minilm, kind):
    """Also after another checkpoint or a short text; the final norm is found, passes stop early, and
    no hook stays.
    """
    folder, other = (build(kind, tmp_path / str(seed), minilm, seed) for seed in (0, 1))
    assert largest_difference(folder) < 1e-5
    assert change_by_order(folder, other) < 1e-5
    network = reader(folder)
    parts = parts_of(network)
    norm = next((name for name, m in network.named_modules() if m is parts.final_norm), None)
    assert (norm, bool(parts.blocks), parts.problem) == (*KINDS[kind][1:], "")
    calls = []
    handles = [
        block.register_forward_hook(lambda *_: calls.append(1))
        for block in dict.fromkeys(parts.blocks)
    ]
    for deepest in range(DEPTH + 1 if parts.blocks else 0):
        states_of(parts, [deepest])
        assert len(calls) == deepest
        calls.clear()
    for handle in handles:
        handle.remove()
    modules = list(network.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


@pytest.mark.parametrize(
    ("kind", "changes", "blocks"),
    [
        *(("albert", {"embedding_size": 16, "num_hidden_groups": n}, n) for n in (1, 2, 3)),
        # it has a convolution after its first block
        ("deberta-v2", {"conv_kernel_size": 3, "conv_act": "gelu"}, 0),
    ],
)
def test_blocks_count_as_often_as_they_run_in_a_chain(kind, changes, blocks):
    network = network_of(kind, **changes)
    parts, ids = parts_of(network), torch.arange(8)[None]
    hidden = network(ids, output_hidden_states=True).hidden_states
    assert len(parts.blocks) == (DEPTH if blocks else 0) and len(set(parts.blocks)) == blocks
    assert (parts.final_norm, parts.problem) == (None, "")
    for layer, states in states_of(parts, range(DEPTH + 1)).items():
        assert torch.equal(states, hidden[layer])


def test_raw_states_are_read_where_the_norm_is_not_found(tmp_path, minilm):
    """This OPT has a projection after its final norm, so that no module alone gives the last hidden
    state.
    """
    folder = build("opt", tmp_path / "0", minilm)
    config = OPTConfig(**{**SMALL, "pad_token_id": 1}, ffn_dim=64, word_embed_proj_dim=16)
    AutoModel.from_config(config).save_pretrained(folder)
    assert mean_vectors(folder, [0, 3], state_norm="raw").shape == (2, 4, 32)
    assert mean_vectors(folder, [0, 2], state_norm="hidden_states").shape == (2, 4, 32)
    for state_norm, layers in (("final_ln", [0]), ("hidden_states", [3])):
        with pytest.raises(DataError, match=rf"{state_norm}.*opt: no .* Use 'state_norm: raw'"):
            mean_vectors(folder, layers, state_norm=state_norm)


def test_a_norm_that_is_the_identity_at_first_is_found():
    network = network_of("gpt_neox")
    network.final_layer_norm = torch.nn.Linear(32, 32, bias=False)
    torch.nn.init.eye_(network.final_layer_norm.weight)
    assert parts_of(network).final_norm is network.final_layer_norm


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        # after every second block it halves its states; transformers leaves out layer 0
        (
            "rwkv",
            {"attention_hidden_size": 32, "rescale_every": 2},
            "the 4 hidden states of transformers are not the 4 that they are given and return",
        ),
        ("gpt_neox", {}, "gpt_neox of 4 blocks .* the 4 hidden states .* are not the 5"),
        ("vit", {}, "cannot be read as a model of text"),
        ("wav2vec2", {}, "cannot be read as a model of text"),
    ],
)
def test_a_network_without_states_of_texts_is_refused(kind, changes, message):
    network = network_of(kind, **changes)
    if kind == "gpt_neox":
        network.config.num_hidden_layers = 4
    with pytest.raises(DataError, match=message):
        parts_of(network)


def test_a_t5_that_was_saved_as_an_encoder_is_read_as_one(tmp_path, minilm):
    folder = build("t5", tmp_path / "0", minilm)
    wanted = mean_vectors(folder)
    reader(folder).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["T5EncoderModel"]
    np.testing.assert_array_equal(mean_vectors(folder), wanted)


def test_positions_that_training_makes_matter_are_noticed(tmp_path, minilm, fresh_pool):
    """At step 0 the positions are zero, so that padding on the left is harmless; at step 1 it is
    not. The weights are swapped.
    """
    folders = [build("bart", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    weights = load_file(folders[0] / "model.safetensors")
    weights["encoder.embed_positions.weight"].zero_()
    save_file(weights, folders[0] / "model.safetensors", metadata={"format": "pt"})
    numberings, modules = [], set()
    for folder in folders:
        with LoadedModel(at(folder), Protocol(padding="left")) as model:
            vectors = encode(model, TEXTS, range(4), "mean")
            numberings.append(model.network.parts.numbering("left", model.tokenizer.pad))
            modules.add(model.network.module)
        wanted = expected(folder)["final_ln"]
        np.testing.assert_allclose(vectors, wanted, atol=1e-5 * abs(vectors).max())
    assert numberings == [False, None] and len(modules) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_in_half_precision_is_no_dependence_on_padding(tmp_path, minilm, dtype):
    numberings = {
        "gpt2": (True, False),
        "roberta": (True, False),
        "bloom": (False, False),
        "mamba": (False, False),
        "bart": (None, False),
    }
    for kind, wanted in numberings.items():
        with LoadedModel(at(build(kind, tmp_path / kind, minilm)), Protocol(dtype=dtype)) as model:
            parts = model.network.parts
            assert (parts.numbering("left", 0), parts.numbering("right", 0)) == wanted, kind


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("deberta", "float16"), ("fnet", "bfloat16"), ("mra", "float16"), ("xlstm", "bfloat16")],
)
def test_a_float32_part_is_refused_in_half_precision(tmp_path, minilm, kind, dtype):
    """Of xLSTM that is a part which only texts of more than 64 tokens reach."""
    folder = build(kind, tmp_path / kind, minilm)
    with pytest.raises(DataError, match=rf"A {kind} cannot be read in {dtype}: .*'dtype: float32'"):
        mean_vectors(folder, [DEPTH], [*TEXTS, "word " * 70], dtype=dtype)


@pytest.mark.parametrize("kind", ["roberta", "mpnet", "longformer", "gpt2", "opt"])
def test_a_text_longer_than_all_positions_is_cut_there(tmp_path, minilm, kind):
    folder = build(kind, tmp_path / kind, minilm)
    for padding in ("left", "right"):
        with LoadedModel(at(folder), Protocol(max_length=1000, padding=padding)) as model:
            assert model.max_length == 64
            assert np.isfinite(encode(model, ["word " * 500, "x"], [DEPTH], "mean")).all()


LEFT_OUT = {
    "nystromformer": ({"num_landmarks": 8}, "cannot read texts of 8 tokens"),
    "gemma3n_text": (
        {
            "vocab_size_per_layer_input": 64,
            "hidden_size_per_layer_input": 8,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "laurel_rank": 8,
            "num_kv_shared_layers": 0,
            "layer_types": ["full_attention"] * DEPTH,
            "activation_sparsity_pattern": [0.0] * DEPTH,
        },
        "no single state of each token",
    ),
}


@pytest.mark.parametrize("kind", LEFT_OUT)
def test_what_has_no_state_of_each_token_is_refused(kind):
    changes, message = LEFT_OUT[kind]
    config = AutoConfig.for_model(kind, **{**SMALL, "vocab_size": 64, **changes})
    with pytest.raises(DataError, match=message):
        parts_of(AutoModel.from_config(config).eval())
