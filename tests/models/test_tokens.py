"""Tokenizers that tell texts apart, and those that do not."""

from __future__ import annotations

import json
import shutil
import string

import pytest
import transformers
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.config import Protocol
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import DataError
from daskmetrics.models import LoadedModel
from daskmetrics.models._tokens import Tokenizer
from daskmetrics.training import data as training_data

from .architectures import at

TEXTS = ["one text", "another text", "a third one, with a comma", "Four!"]
UNKNOWN = ["ничто не понятно", "совсем другой текст"]  # to a tokenizer of Latin letters
LATIN = string.ascii_letters + string.digits + string.punctuation + " \n\té àüñçß"


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


@given(
    latin=st.lists(st.text(LATIN, max_size=40), min_size=2, max_size=10),
    any_texts=st.lists(st.text(max_size=40), min_size=2, max_size=10),
    max_length=st.integers(8, 64),
)
def test_a_healthy_tokenizer_is_never_refused(healthy, latin, any_texts, max_length):
    for tokenizer in healthy:
        tokenizer(latin, max_length // 4)
    for of_bytes in healthy[1:]:
        of_bytes(any_texts, max_length)


def test_real_texts_are_told_apart(healthy):
    texts = corpus.prompts("stdlib", 128, 0)
    for tokenizer in healthy:
        for max_length in (4, 256):
            assert len(tokenizer(texts, max_length)) == len(texts)
    # also beside a few of unknown characters
    assert len(healthy[0](["\U00013000", "\U00013001", *TEXTS], 64)) == 6


def test_what_tokenizers_drop_makes_no_texts_distinct(healthy):
    same = ["A  Text", "a text", "Ä téxt", "a\ttext\n", "a te\u200bxt"]
    assert len({tuple(row) for row in healthy[0](same, 64)}) == 1


@pytest.mark.parametrize("texts", [UNKNOWN, [*UNKNOWN, *TEXTS[:2], "совсем не то", "и не это"]])
@pytest.mark.parametrize("words", [1, 200])
def test_texts_that_become_the_same_tokens_are_named(tmp_path, minilm, texts, words):
    for name in ("config.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, tmp_path)
    tokenizer = json.loads((minilm / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"].items()
    tokenizer["model"]["vocab"] = {word: i for word, i in vocabulary if word.isascii()}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    if words == 1:
        texts = [text.replace(" ", "") for text in texts]
    message = r"distinct texts become the same tokens .*(ничто|совсем).* and "
    with pytest.raises(DataError, match=message):
        Tokenizer(at(tmp_path))([" ".join([text] * words) for text in texts], 32)


def test_an_empty_tokenizer_that_transformers_invents_is_refused(tmp_path, neox):
    shutil.copytree(neox, tmp_path, dirs_exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        (tmp_path / name).unlink(missing_ok=True)
    for kind in ("gpt_neox", "bert", "t5"):
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": kind}))
        with pytest.raises(DataError, match=r"has no vocabulary .* Copy tokenizer\.json"):
            Tokenizer(at(tmp_path))


@pytest.mark.parametrize(("stated", "limit"), [(16, 16), (100, 64), (1, 64), (10**30, 64)])
def test_the_length_that_a_tokenizer_was_made_for_is_a_limit(tmp_path, neox, stated, limit):
    shutil.copytree(neox, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": stated}))
    with LoadedModel(at(tmp_path), Protocol(pooling="mean", max_length=256)) as model:
        assert model.max_length == limit


@pytest.mark.parametrize("name", ["dict.txt", "emoji.json", "target_vocab.json", "a.tokenizer"])
def test_tokenizers_that_differ_in_any_of_their_files_are_not_shared(tmp_path, minilm, name):
    folders = [shutil.copytree(minilm, tmp_path / str(number)) for number in (0, 1, 2)]
    for folder, content in zip(folders, "aab", strict=True):
        (folder / name).write_text(content)
    first, same, other = (Tokenizer(at(folder)).of_transformers for folder in folders)
    assert first is same and first is not other
