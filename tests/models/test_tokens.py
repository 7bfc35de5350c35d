"""Tokenizers that tell texts apart, and those that do not."""

from __future__ import annotations

import json
import string
from contextlib import nullcontext

import numpy as np
import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.config import Protocol
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models import _tokens as tokens
from daskmetrics.models._tokens import Tokenizer
from daskmetrics.training import data as training_data

from .architectures import at, build

TEXTS = ["one text", "another text", "a third one, with a comma", "Four!"]
UNKNOWN = ["ничто не понятно", "совсем другой текст"]  # to a tokenizer of Latin letters


@pytest.fixture(scope="module")
def healthy(tmp_path_factory, minilm):
    """Tokenizers of word pieces, of byte pairs and of bytes."""
    folder = tmp_path_factory.mktemp("tokenizers")
    config = json.dumps({"model_type": "gpt_neox", "vocab_size": 400})
    for name in ("pairs", "bytes"):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(config)
    training_data.save_tokenizer(
        training_data.fit_tokenizer(TEXTS, vocabulary=300), folder / "pairs", max_length=64
    )
    transformers.ByT5Tokenizer().save_pretrained(folder / "bytes")
    return [Tokenizer(at(place)) for place in (minilm, folder / "pairs", folder / "bytes")]


LATIN = st.text(
    string.ascii_letters + string.digits + string.punctuation + " \n\t" + "éàüñçß", max_size=40
)


@given(texts=st.lists(LATIN, min_size=2, max_size=20), max_length=st.integers(2, 64))
def test_a_healthy_tokenizer_is_never_refused(healthy, texts, max_length):
    for tokenizer in healthy:
        tokenizer(texts, max_length)


@given(texts=st.lists(st.text(max_size=40), min_size=2, max_size=20), max_length=st.integers(8, 64))
def test_a_tokenizer_of_bytes_tells_any_texts_apart(healthy, texts, max_length):
    for tokenizer in healthy[1:]:
        tokenizer(texts, max_length)


def test_real_texts_are_told_apart(healthy):
    texts = corpus.prompts("stdlib", 256, 0)
    for tokenizer in healthy:
        for max_length in (4, 32, 256):
            assert len(tokenizer(texts, max_length)) == len(texts)


def test_a_few_texts_of_unknown_characters_are_no_error(healthy):
    assert len(set(map(len, healthy[0](["\U00013000", "\U00013001", *TEXTS], 64)))) > 1


@pytest.mark.parametrize("texts", [UNKNOWN, [*UNKNOWN, *TEXTS[:2], "совсем не то", "и не это"]])
@pytest.mark.parametrize("words", [1, 200])
def test_texts_that_become_the_same_tokens_are_named(tmp_path, minilm, texts, words):
    folder = unknown_letters(tmp_path, minilm)
    texts = [" ".join([text] * words) for text in texts]
    with pytest.raises(
        DataError, match=r"distinct texts become the same tokens .*(ничто|совсем).* and "
    ):
        Tokenizer(at(folder))([text.replace(" ", "") if words == 1 else text for text in texts], 32)


def unknown_letters(folder, minilm):
    """MiniLM's tokenizer with Latin words only."""
    tokenizer = json.loads((minilm / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {word: i for word, i in vocabulary.items() if word.isascii()}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ("config.json", "tokenizer_config.json"):
        (folder / name).write_text((minilm / name).read_text())
    return folder


@given(st.lists(LATIN.filter(str.strip), min_size=2, max_size=20))
def test_a_tokenizer_that_knows_nothing_is_always_refused(texts):
    distinct = {tokens._plain(text) for text in texts}
    with (
        pytest.raises(DataError, match="become the same tokens")
        if len(distinct) > 1
        else nullcontext()
    ):
        tokens._check_distinct(texts, [np.array([1], np.int32)] * len(texts), 64)


def test_what_tokenizers_drop_makes_no_texts_distinct(healthy):
    same = ["A  Text", "a text", "Ä téxt", "a\ttext\n", "a te\u200bxt"]
    assert len({tuple(healthy[0](same, 64)[row]) for row in range(5)}) == 1


@pytest.mark.parametrize("kind", ["gpt_neox", "gpt2", "bert", "roberta", "t5"])
def test_an_empty_tokenizer_that_transformers_invents_is_refused(tmp_path, minilm, kind):
    folder = build(kind, tmp_path / kind, minilm)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(DataError, match=r"has no vocabulary .* Copy tokenizer\.json"):
        LoadedModel(at(folder), Protocol())


def test_the_length_that_a_tokenizer_was_made_for_is_a_limit(tmp_path, minilm):
    folder = build("gpt_neox", tmp_path / "0", minilm)
    path = folder / "tokenizer_config.json"
    for stated, limit in ((16, 16), (100, 64), (1, 64), (10**30, 64)):
        path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": stated}))
        assert LoadedModel(at(folder), Protocol(pooling="mean", max_length=256)).max_length == limit
