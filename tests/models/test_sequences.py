"""Protein models: sequences of residues are read as transformers reads them, by a tokenizer without
a fast version.
"""

from __future__ import annotations

import json
import random

import pytest
import torch
from transformers import EsmConfig, EsmModel

import daskmetrics as dm
from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models._tokens import Tokenizer

from .architectures import at

RESIDUES = "LAGVSERTIDPKQNFYMHWC"
SPECIAL = ["<cls>", "<pad>", "<eos>", "<unk>"]
TOKENS = [*SPECIAL, *RESIDUES, *"XBUZO.-", "<null_1>", "<mask>"]  # those of ESM-2
DEPTH = 2


def sequences(count):
    rng = random.Random(0)
    return ["".join(rng.choices(RESIDUES, k=rng.randint(5, 40))) for _ in range(count)]


@pytest.fixture(scope="module")
def esm(tmp_path_factory):
    """A tiny random ESM-2, with the files that its repositories have."""
    folder = tmp_path_factory.mktemp("esm")
    torch.manual_seed(0)
    sizes = EsmConfig(
        vocab_size=len(TOKENS),
        hidden_size=16,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        intermediate_size=32,
        position_embedding_type="rotary",
        token_dropout=True,
        emb_layer_norm_before=False,
        pad_token_id=1,
        mask_token_id=32,
        max_position_embeddings=1026,
        initializer_range=0.3,
    )
    EsmModel(sizes).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(TOKENS))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "EsmTokenizer"}))
    return folder


def test_a_residue_is_a_token_between_two_special_ones_and_long_sequences_are_cut(esm):
    tokenizer = Tokenizer(at(esm))
    assert (tokenizer.pad, tokenizer.limit) == (1, None)
    names = tokenizer.of_transformers.convert_ids_to_tokens
    for max_length, kept in ((1024, "MKTAYIAK"), (6, "MKTA")):
        row, _ = tokenizer(["MKTAYIAK", "MKT"], max_length)
        assert names(row.tolist()) == ["<cls>", *kept, "<eos>"]
    with LoadedModel(at(esm), Protocol(max_length=5000), "cpu") as model:
        assert model.max_length == 1026
    with pytest.raises(DataError, match="The tokenizer does not know their characters"):
        tokenizer([text.lower() for text in sequences(9)], 64)


def test_metrics_that_compare_views_have_no_value_for_single_words(esm):
    measured = dm.measure(esm, sequences(12), ["effective_rank", "infonce", "lidar"])
    assert measured["effective_rank"].notnull().all()
    for name in ("infonce", "lidar"):
        assert measured[name].isnull().all()
        assert "single words have none" in measured[name].attrs["undefined"]
