"""Every architecture of the table against transformers, one text at a time and through its own hidden states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models import _forward as forward
from daskmetrics.models._forward import ARCHITECTURES, NetworkParts, parts_of

from .conftest import KINDS, at, build

TEXTS = ["one", "a much longer sentence about layers of a network", "two words", "three little words"]


def test_every_architecture_is_tried():
    assert KINDS.keys() == ARCHITECTURES.keys()


def expected(folder, text, state_norm):
    """All layers of one text, without padding: (depth + 1, D)."""
    network = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    architecture, raw = ARCHITECTURES[network.config.model_type], []
    norm = getattr(network, architecture.final_norm) if architecture.final_norm else None
    if norm is not None:
        norm.register_forward_pre_hook(lambda _, args: raw.append(args[0]))
    ids = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        states = list(network(ids, output_hidden_states=True).hidden_states)
        if "mamba" in network.config.model_type:  # blocks 1 ... n, then the last one after the norm
            states = [network.embeddings(ids), *states[:-1]]
        if norm is not None:
            states[-1] = raw[0]
            apply = {"raw": (), "final_ln": range(len(states)), "hidden_states": (len(states) - 1,)}[state_norm]
            states = [norm(state) if layer in apply else state for layer, state in enumerate(states)]
    return np.stack([state[0].mean(0).numpy() for state in states])


@pytest.mark.parametrize("state_norm", ["raw", "final_ln", "hidden_states"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_equals_its_texts_one_by_one(tmp_path, minilm, kind, state_norm):
    folder = build(kind, tmp_path / kind, minilm)
    vectors = LoadedModel(at(folder), Protocol(state_norm=state_norm)).encode(TEXTS, range(4), "mean")
    for row, text in enumerate(TEXTS):
        wanted = expected(folder, text, state_norm)
        np.testing.assert_allclose(vectors[:, row], wanted, atol=3e-5 * abs(wanted).max())


def states_of(network, parts, layers, inputs):
    seen = {}
    forward.run(network, parts, inputs, layers, lambda layer, states: seen.__setitem__(layer, states.clone()))
    return seen


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "mamba" not in kind])
def test_hooks_see_what_transformers_returns(tmp_path, minilm, kind):
    network = AutoModel.from_pretrained(build(kind, tmp_path / kind, minilm)).eval()
    parts = parts_of(network)
    ids = torch.arange(24).reshape(3, 8) + 100
    inputs = {"input_ids": ids, "attention_mask": (torch.arange(8) < torch.tensor([[8], [5], [2]])).long()}
    by_hooks = states_of(network, parts, [0, 1, 2, 3], inputs)
    by_outputs = states_of(network, NetworkParts((), parts.final_norm), [0, 1, 2, 3], inputs)
    assert all(torch.equal(by_hooks[layer], by_outputs[layer]) for layer in range(4))


@pytest.mark.parametrize("deepest", [0, 1, 3])
def test_no_block_after_the_deepest_requested_layer_runs(tmp_path, minilm, deepest):
    network = AutoModel.from_pretrained(build("gpt_neox", tmp_path / "0", minilm)).eval()
    ran = []
    for i, block in enumerate(network.layers):
        block.register_forward_hook(lambda *_, i=i: ran.append(i))
    ids = torch.arange(8)[None]
    states_of(network, parts_of(network), [deepest], {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert ran == list(range(deepest))
    assert not any(block._forward_pre_hooks for block in network.layers)


def test_the_error_for_missing_hidden_states_names_the_architecture(tmp_path, minilm):
    network = AutoModel.from_pretrained(build("gpt_neox", tmp_path / "0", minilm)).eval()
    network.config.num_hidden_layers = 4
    ids = torch.arange(8)[None]
    with pytest.raises(DataError, match="gpt_neox of 4 blocks returned 4"):
        states_of(network, NetworkParts((), None), [0], {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
