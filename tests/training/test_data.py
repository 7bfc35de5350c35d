"""From the files of a corpus to the examples of a step, on every rank."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import data as data
from daskmetrics.training.data import examples, staged
from daskmetrics.training.recipe import RankSteps, World

FILES = {
    "txt": "one, two\n\nthree\n",
    "jsonl": "\n".join(json.dumps({"text": text}) for text in ("one, two", "three")),
}
TEXTS = ["The quick brown fox jumps over the lazy dog.", "The lazy dog sleeps."] * 8
FITTED = data.fit_tokenizer(TEXTS, vocabulary=300)
TOKENS = np.arange(500, dtype=np.int32)


def test_a_folder_is_read_file_by_file(tmp_path):
    for kind in ("txt", "jsonl"):
        (tmp_path / f"rows.{kind}").write_text(FILES[kind], encoding="utf-8")
    (tmp_path / "notes.md").write_text("not read", encoding="utf-8")
    assert data.texts(Recipe(corpus=str(tmp_path))) == ("one, two", "three") * 2


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "empty.txt", "is empty"),
        ('{"words": "a"}', "rows.jsonl", "has no 'text'. Its columns: words"),
    ],
)
def test_unreadable_files_are_named(tmp_path, content, name, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        data.texts(Recipe(corpus=str(tmp_path / name)))


@pytest.mark.parametrize("missing", ["gone.txt", ""])
def test_a_missing_corpus_is_an_error(tmp_path, missing):
    with pytest.raises(ConfigError, match="No corpus file"):
        data.key(Recipe(corpus=str(tmp_path / missing)))


@given(st.text().filter(lambda text: data.END not in text))
def test_any_text_survives_the_round_trip(text):
    assert FITTED.decode(FITTED.encode(text).ids) == text


def test_transformers_loads_the_same_tokenizer(tmp_path, capfd):
    data.save_tokenizer(FITTED, tmp_path, max_length=64)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "The lazy dog, naïve: 3 × «4»\n\tend"
    assert loaded(text)["input_ids"] == FITTED.encode(text).ids
    assert loaded.decode(loaded(text)["input_ids"]) == text
    assert loaded.pad_token_id == loaded.eos_token_id == data.END_ID
    assert loaded.model_max_length == 64
    padded = loaded(["The dog", "The quick brown dog"], padding=True)
    assert padded["attention_mask"][0][-1] == 0
    assert "".join(capfd.readouterr()) == ""


def test_examples_depend_on_seed_step_and_effective_batch_alone():
    """Two ranks of two passes of four learn from what one rank learns from in one pass of sixteen."""
    whole = Recipe(batch=16)
    of_step3 = examples(whole, 100, 3)
    divided = Recipe(batch=4, accumulate=2, ranks=2, learning_rate=1.0)
    assert (examples(divided, 100, 3) == of_step3).all()
    assert (examples(whole, 100, 4) != of_step3).any()
    assert (examples(Recipe(batch=16, seed=1), 100, 3) != of_step3).any()


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_each_example_has_one_rank_and_one_pass(world):
    recipe = Recipe(batch=2, accumulate=7, context=8)
    by_rank = [RankSteps(recipe, TOKENS, World(rank, world))[1] for rank in range(world)]
    sizes = [list(map(len, passes)) for passes in by_rank]
    assert max(map(max, sizes)) <= recipe.batch
    assert max(map(sum, sizes)) - min(map(sum, sizes)) <= 1
    starts = examples(recipe, 500 - 8, 1)
    expected = starts[:, None] + np.arange(9)  # the tokens are their own places
    rows = torch.cat(list(chain.from_iterable(by_rank)))
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("count", [0, 2])
def test_loaders_give_the_same_steps(count):
    recipe = Recipe(batch=2, accumulate=2, context=8, steps=20)
    steps = RankSteps(recipe, TOKENS)
    torch.manual_seed(1)
    expected = torch.random.get_rng_state()
    for step, batches in enumerate(steps.read(range(1, 21), count), start=1):
        for batch, direct in zip(batches, steps[step], strict=True):
            assert (batch.numpy() == direct).all()
    assert step == 20 and torch.equal(torch.random.get_rng_state(), expected)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "corpus"
    folder.mkdir(parents=True)
    (folder / "tokens.npy").write_bytes(b"tokens")
    return folder


def test_the_copy_is_on_the_node_and_removed_at_the_end(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "node"))
    waits = []
    with staged(corpus, "$TMPDIR", lambda: waits.append(1)) as copy:
        assert copy.parent == tmp_path / "node" and (copy / "tokens.npy").read_bytes() == b"tokens"
        assert copy.stat().st_mode & 0o077 == 0
        # another rank of the node reads the same copy
        monkeypatch.setenv("LOCAL_RANK", "1")
        with staged(corpus, "$TMPDIR", lambda: None) as second:
            assert second == copy
    assert waits == [1] and not copy.exists() and (corpus / "tokens.npy").exists()


def test_a_rank_that_misses_the_copy_of_the_first_makes_its_own(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with staged(corpus, str(tmp_path), lambda: None) as copy:
        assert (copy / "tokens.npy").exists()
    assert not copy.exists()


def test_a_changed_corpus_is_copied_again(corpus, tmp_path):
    with staged(corpus, str(tmp_path), lambda: None) as before:
        os.utime(corpus / "tokens.npy", ns=(1, 1))
        with staged(corpus, str(tmp_path), lambda: None) as after:
            assert before != after


@pytest.mark.parametrize(
    ("place", "message"),
    [("$NO_SUCH/x", "variable is not set"), ("/dev/null/x", "cannot hold the copy")],
)
def test_a_folder_that_cannot_be_used_is_refused(corpus, place, message):
    with pytest.raises(ConfigError, match=message), staged(corpus, place, lambda: None):
        pass
