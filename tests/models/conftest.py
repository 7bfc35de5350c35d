"""Tiny random networks of every architecture whose blocks are known."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from daskmetrics.config._checkpoints import Location
from daskmetrics.models import _networks as networks
from daskmetrics.models import _tokens as tokens

SMALL = {
    "vocab_size": 31_000,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}
KINDS = {
    "gpt_neox": {},
    "gpt2": {},
    "gpt_neo": {"num_layers": 3, "num_heads": 4, "attention_types": [[["global"], 3]]},
    "llama": {"num_key_value_heads": 2},
    "mistral": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "olmo2": {},
    "phi3": {},
    "bert": {},
    "roberta": {"pad_token_id": 1, "max_position_embeddings": 66},
    "xlm-roberta": {"pad_token_id": 1, "max_position_embeddings": 66},
    "electra": {"embedding_size": 32},
    "mamba": {"state_size": 4},
    "mamba2": {"state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 1, "chunk_size": 8},
    "falcon_mamba": {"state_size": 4},
}


def at(folder) -> Location:
    return Location(str(folder), None, "identity")


def build(kind: str, folder: Path, tokenizer: Path, seed: int = 0, head: bool = False) -> Path:
    """Random weights of one architecture in a folder, with a tokenizer beside them."""
    own = {**SMALL, **KINDS[kind]}
    if kind == "gpt_neo":
        own.pop("num_hidden_layers"), own.pop("num_attention_heads")
    torch.manual_seed(seed)
    config = AutoConfig.for_model(kind, **own)
    auto = AutoModel if not head else AutoModelForMaskedLM if kind in ("bert", "roberta") else AutoModelForCausalLM
    network = auto.from_config(config)
    for name, parameter in network.named_parameters():
        if "norm" in name.lower() or "ln_" in name:  # a final norm must not be the identity
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    network.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        if (tokenizer / name).is_file():
            shutil.copy(tokenizer / name, folder / name)
    return folder


@pytest.fixture
def fresh_pool(monkeypatch):
    """A pool that no other test has filled."""
    pool = networks.NetworkPool()
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", pool)
    return pool


@pytest.fixture
def fresh_tokens(monkeypatch):
    monkeypatch.setattr(tokens, "_TOKENS", tokens.LRUCache(8))
    monkeypatch.setattr(tokens, "_TOKENIZERS", tokens.LRUCache(4))
