"""Tokenizers that tell texts apart, and those that do not."""

from __future__ import annotations

import json
import shutil
import string
from inspect import signature

import numpy as np
import pytest
import tokenizers
import torch
import transformers
import xarray
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from transformers import AutoConfig, AutoModel

from daskmetrics import embed, measure
from daskmetrics.checkpoints.shipped import protocol_of
from daskmetrics.config import Model, Protocol
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import DataError
from daskmetrics.models import InMemory, LoadedModel, TextEncoder
from daskmetrics.models._tokens import Tokenizer
from daskmetrics.training import data as training_data

from .architectures import SMALL, at

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
def test_tokenizers_that_differ_in_a_file_are_not_shared(tmp_path, minilm, name):
    folders = [shutil.copytree(minilm, tmp_path / str(number)) for number in (0, 1, 2)]
    for folder, content in zip(folders, "aab", strict=True):
        (folder / name).write_text(content)
    first, same, other = (Tokenizer(at(folder)).of_transformers for folder in folders)
    assert first is same and first is not other


SEGMENTS = {
    "bert": ("[CLS]:0 $A:1 [SEP]:1", {}),
    "electra": ("[CLS]:1 $A:0 [SEP]:1", {"embedding_size": 16}),
    "xlnet": ("$A:0 [SEP]:0 [CLS]:2", {"d_head": 8, "max_position_embeddings": None}),
    "gpt2": ("$A:0 [SEP]:3", {}),  # it adds the token embedding of a type
    "llama": ("$A:0 [SEP]:3", {}),  # it takes no types
}


def of_segments(template: str) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of words with special tokens and types as in the template."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *" ".join(TEXTS).split()]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    inner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single=template, special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    )
    # kept beside a tokenizer in memory only, unlike an argument
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize("padding", ["left", "right"])
def test_types_of_tokens_reach_the_network(tmp_path, kind, padding):
    template, config = SEGMENTS[kind]
    tokenizer = of_segments(template)
    torch.manual_seed(0)
    sizes = {**SMALL, "vocab_size": 32, "num_key_value_heads": 4, **config}
    sizes = {name: value for name, value in sizes.items() if value is not None}
    network = AutoModel.from_config(AutoConfig.for_model(kind, **sizes)).eval()
    accepted = signature(network.forward).parameters
    states = []
    for text in TEXTS:
        inputs = {k: v for k, v in tokenizer(text, return_tensors="pt").items() if k in accepted}
        with torch.no_grad():
            hidden = network.double()(**inputs, output_hidden_states=True).hidden_states
        states.append(torch.stack(hidden)[:, 0].mean(1))
    right = torch.stack(states).numpy()
    network.float()
    vectors = embed(
        network, TEXTS, tokenizer=tokenizer, padding=padding, state_norm="hidden_states"
    )
    assert np.abs(vectors.values - right).max() < 2e-6 * np.abs(right).max()
    assert "token_type_ids" in accepted or kind == "llama"


@pytest.mark.parametrize(
    ("size", "name"), [("type_vocab_size", "token_type_ids"), ("vocab_size", "input_ids")]
)
def test_tokens_that_the_network_does_not_know_are_named(size, name):
    config = {**SMALL, "vocab_size": 40, "max_position_embeddings": 8, "type_vocab_size": 2}
    sizes = {**config, size: 1 if size == "type_vocab_size" else 8}
    network = AutoModel.from_config(AutoConfig.for_model("bert", **sizes))
    with pytest.raises(DataError, match=f"gives {name} up to"):
        embed(network, TEXTS, tokenizer=of_segments(SEGMENTS["bert"][0]), max_length=8)


def test_a_saved_model_reads_the_types_of_its_tokens(tmp_path):
    template, _ = SEGMENTS["bert"]
    tokenizer = of_segments(template)
    network = AutoModel.from_config(AutoConfig.for_model("bert", **{**SMALL, "vocab_size": 32}))
    read = protocol_of(Protocol(), Model(name="m", source="."), None)
    loaded = LoadedModel(InMemory(network.eval(), tokenizer, "m"), read.base)
    encoder = TextEncoder(loaded, read, [2])
    saved = SentenceTransformer(str(encoder.save(tmp_path / "saved")), device="cpu")
    np.testing.assert_allclose(saved.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)
    assert "token_type_ids" in saved.tokenizer(TEXTS[0])


def test_texts_with_equal_tokens_count_once(minilm):
    texts = list(corpus.prompts("stdlib", 20, 0))
    names = ["alpha_req", "intrinsic_dimension", "prompt_entropy", "lidar"]
    once = measure(str(minilm), texts, names, layers=[6])
    copies = [*texts, *texts, *(text.upper() + "  " for text in texts)]
    with pytest.warns(UserWarning, match="40 of 60 texts have the tokens of another text"):
        again = measure(str(minilm), copies, names, layers=[6])
    xarray.testing.assert_equal(once, again)
    assert len(embed(str(minilm), copies, layers=[6])) == 60
    with pytest.raises(DataError, match="All 2 texts have the same tokens"):
        measure(str(minilm), [texts[0], texts[0]], names)
