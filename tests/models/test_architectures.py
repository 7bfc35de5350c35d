"""Every architecture against transformers, one text at a time; the table of the docs has the same
numbers.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AutoConfig,
    AutoModel,
    DebertaV2Config,
    GPTNeoXConfig,
    OPTConfig,
    ViTConfig,
    Wav2Vec2Config,
)

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


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_in_batches_are_those_of_transformers_one_text_at_a_time(tmp_path, minilm, kind):
    """Also after another checkpoint or a short text; the final norm is found, and passes stop early."""
    folder, other = (build(kind, tmp_path / str(seed), minilm, seed) for seed in (0, 1))
    assert largest_difference(folder) < 1e-5
    assert change_by_order(folder, other) < 1e-5
    network = reader(folder)
    parts = parts_of(network)
    names = {module: name for name, module in network.named_modules()}
    assert (names.get(parts.final_norm), bool(parts.blocks), parts.problem) == (
        *KINDS[kind][1:],
        "",
    )
    calls = []
    for block in dict.fromkeys(parts.blocks):
        block.register_forward_hook(lambda *_: calls.append(1))
    for deepest in range(DEPTH + 1 if parts.blocks else 0):
        states_of(parts, [deepest])
        assert len(calls) == deepest
        calls.clear()


def states_of(parts, layers):
    """States of one short text at some layers."""
    seen, ids = {}, torch.arange(8)[None]
    parts.run(parts.inputs(ids, torch.ones_like(ids), False), layers, seen.__setitem__)
    return seen


def test_no_hook_stays(tmp_path, minilm):
    network = AutoModel.from_pretrained(build("gpt_neox", tmp_path / "0", minilm)).eval()
    parts = parts_of(network)
    parts.numbering("left", 0)
    states_of(parts, [0, 2])
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in network.modules()
    )


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_blocks_that_are_called_again_and_again_are_as_many_layers(groups):
    config = AlbertConfig(**SMALL, embedding_size=16, num_hidden_groups=groups)
    network = AutoModel.from_config(config).eval()
    parts, ids = parts_of(network), torch.arange(8)[None]
    hidden = network(ids, output_hidden_states=True).hidden_states
    assert len(parts.blocks) == DEPTH and len(set(parts.blocks)) == groups
    for layer, states in states_of(parts, range(DEPTH + 1)).items():
        assert torch.equal(states, hidden[layer])


def test_blocks_that_do_not_chain_are_read_from_the_hidden_states():
    """This DeBERTa has a convolution after its first block."""
    network = AutoModel.from_config(
        DebertaV2Config(**SMALL, conv_kernel_size=3, conv_act="gelu")
    ).eval()
    parts, ids = parts_of(network), torch.arange(8)[None]
    assert (parts.blocks, parts.final_norm, parts.problem) == ((), None, "")
    hidden = network(ids, output_hidden_states=True).hidden_states
    for layer, states in states_of(parts, range(DEPTH + 1)).items():
        assert torch.equal(states, hidden[layer])


def test_a_norm_that_is_not_found_is_refused_and_raw_states_are_read(tmp_path, minilm):
    """This OPT has a projection after its final norm, so that no module alone gives the last hidden
    state.
    """
    folder = build("opt", tmp_path / "0", minilm)
    config = OPTConfig(**{**SMALL, "pad_token_id": 1}, ffn_dim=64, word_embed_proj_dim=16)
    AutoModel.from_config(config).save_pretrained(folder)
    assert encode(
        LoadedModel(at(folder), Protocol(state_norm="raw")), TEXTS, [0, 3], "mean"
    ).shape == (2, 4, 32)
    assert (
        encode(
            LoadedModel(at(folder), Protocol(state_norm="hidden_states")), TEXTS, [0, 2], "mean"
        ).shape[0]
        == 2
    )
    for state_norm, layers in (("final_ln", [0]), ("hidden_states", [3])):
        with pytest.raises(
            DataError, match=rf"{state_norm}.*this opt: no single module .* Use 'state_norm: raw'"
        ):
            encode(LoadedModel(at(folder), Protocol(state_norm=state_norm)), TEXTS, layers, "mean")


def test_a_norm_that_is_the_identity_at_first_is_found():
    network = AutoModel.from_config(GPTNeoXConfig(**SMALL)).eval()
    network.final_layer_norm = torch.nn.Linear(32, 32, bias=False)
    torch.nn.init.eye_(network.final_layer_norm.weight)
    parts = parts_of(network)
    assert (len(parts.blocks), parts.final_norm, parts.problem) == (
        DEPTH,
        network.final_layer_norm,
        "",
    )


def test_hidden_states_that_are_shifted_by_a_layer_are_refused():
    """After every second block, this RWKV halves its states; transformers leaves out layer 0."""
    config = AutoConfig.for_model("rwkv", **SMALL, attention_hidden_size=32, rescale_every=2)
    with pytest.raises(DataError, match="are not what the blocks are given and return"):
        parts_of(AutoModel.from_config(config).eval())


def test_missing_hidden_states_are_counted():
    network = AutoModel.from_config(GPTNeoXConfig(**SMALL)).eval()
    network.config.num_hidden_layers = 4
    with pytest.raises(DataError, match=r"gpt_neox of 4 blocks .* returns 4 hidden states, not 5"):
        parts_of(network)


@pytest.mark.parametrize("config", [ViTConfig, Wav2Vec2Config])
def test_a_model_that_reads_no_text_is_an_error(config):
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    with pytest.raises(DataError, match="cannot be read as a model of text"):
        parts_of(AutoModel.from_config(config(**sizes)).eval())


def test_a_t5_that_was_saved_as_an_encoder_is_read_as_one(tmp_path, minilm):
    folder = build("t5", tmp_path / "0", minilm)
    wanted = encode(LoadedModel(at(folder), Protocol()), TEXTS, range(4), "mean")
    reader(folder).save_pretrained(folder)
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["T5EncoderModel"]
    np.testing.assert_array_equal(
        encode(LoadedModel(at(folder), Protocol()), TEXTS, range(4), "mean"), wanted
    )


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_weights_of_encoder_decoder_models_are_swapped(tmp_path, minilm, fresh_pool, kind):
    folders = [build(kind, tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    with LoadedModel(at(folders[0]), Protocol()) as first:
        module = first.network.module
    with LoadedModel(at(folders[1]), Protocol()) as second:
        assert second.network.module is module
        vectors = encode(second, TEXTS, range(4), "mean")
    np.testing.assert_allclose(
        vectors, expected(folders[1], "final_ln"), atol=1e-5 * abs(vectors).max()
    )


def test_positions_that_training_makes_matter_are_noticed(tmp_path, minilm, fresh_pool):
    """At step 0 the positions are zero, so that padding on the left is harmless; at step 1 it is
    not.
    """
    folders = [build("bart", tmp_path / str(seed), minilm, seed) for seed in (0, 1)]
    weights = load_file(folders[0] / "model.safetensors")
    weights["encoder.embed_positions.weight"].zero_()
    save_file(weights, folders[0] / "model.safetensors", metadata={"format": "pt"})
    numberings = []
    for folder in folders:
        with LoadedModel(at(folder), Protocol(padding="left")) as model:
            vectors = encode(model, TEXTS, range(4), "mean")
            numberings.append(model.network.parts.numbering("left", model.tokenizer.pad))
        np.testing.assert_allclose(
            vectors, expected(folder, "final_ln"), atol=1e-5 * abs(vectors).max()
        )
    assert numberings == [False, None]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_in_half_precision_is_no_dependence_on_padding(tmp_path, minilm, dtype):
    found = {}
    for kind in ("gpt2", "roberta", "gpt_neox", "bloom", "mamba", "bart"):
        with LoadedModel(at(build(kind, tmp_path / kind, minilm)), Protocol(dtype=dtype)) as model:
            found[kind] = tuple(
                model.network.parts.numbering(side, 0) for side in ("left", "right")
            )
    assert found == {
        **dict.fromkeys(("gpt2", "roberta", "gpt_neox"), (True, False)),
        **dict.fromkeys(("bloom", "mamba"), (False, False)),
        "bart": (None, False),
    }


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["deberta", "fnet", "mra", "xlstm"])
def test_a_part_that_computes_in_float32_only_is_refused_in_half_precision(
    tmp_path, minilm, kind, dtype
):
    """Of xLSTM that is a part which only texts of more than 64 tokens reach."""
    folder, texts = build(kind, tmp_path / kind, minilm), [*TEXTS, "word " * 70]
    with pytest.raises(DataError, match=rf"A {kind} cannot be read in {dtype}: .*'dtype: float32'"):
        encode(LoadedModel(at(folder), Protocol(dtype=dtype)), texts, [DEPTH], "mean")


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "mpnet", "longformer", "gpt2", "opt"])
def test_a_text_longer_than_all_positions_is_cut_there(tmp_path, minilm, kind):
    folder = build(kind, tmp_path / kind, minilm)
    for padding in ("left", "right"):
        model = LoadedModel(at(folder), Protocol(max_length=1000, padding=padding))
        assert model.max_length == 64
        assert np.isfinite(encode(model, ["word " * 500, "short"], [DEPTH], "mean")).all()
