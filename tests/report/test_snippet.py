from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2Model, GPTNeoXConfig, GPTNeoXForCausalLM

from daskmetrics.config import Model, Protocol
from daskmetrics.config._checkpoints import Location
from daskmetrics.config._protocol import protocol_of
from daskmetrics.core.names import Arm
from daskmetrics.models import Encoder, LoadedModel, Pooler
from daskmetrics.report._snippet import snippet
from tests.embedders import build as build_embedder
from tests.models.architectures import build

TEXTS = ["one", "a much longer sentence about the layers of a network, " * 8, "two words", "three little words"]
VOCABULARY = 31_000


@pytest.fixture(scope="module")
def neox(tmp_path_factory, minilm):
    """A random GPT-NeoX whose final norm is far from the identity, and which has positions for 64 tokens only."""
    folder = tmp_path_factory.mktemp("neox")
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    network = GPTNeoXForCausalLM(
        GPTNeoXConfig(vocab_size=VOCABULARY, max_position_embeddings=64, initializer_range=0.5, **sizes)
    )
    torch.nn.init.normal_(network.base_model.final_layer_norm.weight, 1, 0.2)
    network.save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory, minilm):
    """A random GPT-2: its positions are absolute, so the side of the padding matters."""
    folder = tmp_path_factory.mktemp("gpt2")
    torch.manual_seed(0)
    GPT2Model(GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=32, n_layer=2, n_head=4)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    return folder


def embedded(folder, layer, protocol, depth=2):
    """Vectors of the snippet and vectors of the searched model."""
    code = snippet(
        Arm("m", "step0", layer), {"path": str(folder), "revision": None, "depth": depth}, protocol.model_dump()
    )
    space: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, space)
    assert "torch.Size([1, " in printed.getvalue()
    expected = LoadedModel(Location(str(folder), None, "x"), protocol).encode(TEXTS, [layer], protocol.pooling)[0]
    return space["embed"](TEXTS).numpy(), expected


def agree(got, expected):
    np.testing.assert_allclose(got, expected, atol=1e-5 * abs(expected).max())


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
@pytest.mark.parametrize("state_norm", ["final_ln", "hidden_states", "raw"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_snippet_gives_the_vectors_that_were_scored(neox, pooling, state_norm, layer):
    agree(*embedded(neox, layer, Protocol(pooling=pooling, state_norm=state_norm)))


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_the_snippet_with_padding_on_either_side(neox, gpt2, pooling, padding):
    for folder in (neox, gpt2):
        agree(*embedded(folder, 1, Protocol(pooling=pooling, padding=padding)))


def test_the_snippet_of_an_encoder_without_a_final_norm(minilm):
    agree(*embedded(minilm, 3, Protocol(pooling="mean"), depth=6))


def test_a_hook_captures_the_last_layer_before_the_norm(neox):
    location = {"path": str(neox), "revision": None, "depth": 2}
    code = snippet(Arm("m", "step0", 2), location, Protocol(state_norm="raw").model_dump())
    assert "hidden_states[2] is after the norm" in code and "register_forward_pre_hook" in code


def test_a_hub_revision_and_hostile_names_are_quoted(tmp_path):
    location = {"path": "a'); import os #", "revision": "step'1", "depth": 2}
    code = snippet(Arm("m", "step1", 1), location, Protocol().model_dump())
    compile(code, "snippet", "exec")
    assert f"path = {location['path']!r}" in code and f"revision={location['revision']!r}" in code


@pytest.mark.parametrize("kind", ["phi", "opt", "esm", "roberta", "t5", "modernbert", "albert"])
def test_the_snippet_finds_the_final_norm(tmp_path, minilm, kind):
    folder = build(kind, tmp_path / kind, minilm)
    stated = json.loads((folder / "tokenizer_config.json").read_text())  # as a RoBERTa's tokenizer states its positions
    (folder / "tokenizer_config.json").write_text(json.dumps({**stated, "model_max_length": 64}))
    for layer, state_norm in ((1, "final_ln"), (3, "raw")):
        protocol = Protocol(pooling="mean", state_norm=state_norm, padding="left")
        agree(*embedded(folder, layer, protocol, depth=3))


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("kind", ["e5", "qwen3"])
@pytest.mark.parametrize("layer", [1, 3])
def test_the_snippet_of_a_sentence_transformers_folder(tmp_path, kind, layer, include_prompt):
    folder = build_embedder(kind, tmp_path / "model")
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "include_prompt": include_prompt}))
    protocol = protocol_of(Protocol(), Model(name="m", source=str(folder), max_length=100), folder)
    code = snippet(Arm("m", "main", layer), {"path": str(folder), "revision": None, "depth": 3}, protocol.as_dict())
    space: dict = {}
    exec(code, space)
    prompt = space["prompts"]["query"]
    with LoadedModel(Location(str(folder), None, str(folder)), protocol.base) as model:
        pooler = Pooler(model, protocol, TEXTS, prompt)
        vectors = pooler.vectors([layer])[0][0]
    agree(space["embed"](TEXTS, prompt).numpy(), vectors)


@pytest.mark.parametrize("readout", ["weighted", "max,16d", "last,8d,float16", "cls,binary"])
def test_the_snippet_reads_out_as_the_encoder_does(neox, readout):
    protocol = Protocol()
    location = {"path": str(neox), "revision": None, "depth": 2}
    space: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(snippet(Arm("m", "step0", 1, readout), location, protocol.model_dump()), space)
    read = protocol_of(protocol, Model(name="m", source=str(neox)), neox)
    with Encoder.load(str(neox), None, 1, read.as_dict(), readout=readout) as encoder:
        expected = encoder.encode(TEXTS)
    assert space["embed"](TEXTS).shape == expected.shape
    np.testing.assert_allclose(space["embed"](TEXTS).numpy(), expected, atol=2e-3 if "16" in readout[-7:] else 1e-5)


@pytest.mark.parametrize(
    ("readout", "why"), [("pca8", "fitted on the run's prompts"), ("mean1+2", "Layers 1, 2 are read")]
)
def test_a_readout_that_needs_the_run_is_loaded_from_it(tmp_path, readout, why):
    code = snippet(Arm("m", "step0", 2, readout), {}, {}, tmp_path)
    assert why in code and f"dm.open({str(tmp_path)!r}).best().load()" in code
    compile(code, "snippet", "exec")
