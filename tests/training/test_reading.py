from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from daskmetrics.config import DDP, Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import _learning as learning
from daskmetrics.training import data as data
from daskmetrics.training import suite as suite
from daskmetrics.training._learning import SINGLE, RankSteps, World, read_steps
from daskmetrics.training.data import staged


@pytest.fixture
def corpus(tmp_path) -> Path:
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
    assert waits == [1] and not copy.exists() and (corpus / "tokens.npy").exists()


def test_another_rank_of_the_node_reads_the_same_copy(corpus, tmp_path, monkeypatch):
    with staged(corpus, str(tmp_path), lambda: None) as first:
        monkeypatch.setenv("LOCAL_RANK", "1")
        with staged(corpus, str(tmp_path), lambda: None) as second:
            assert first == second
        assert first.is_dir(), "only the rank that copied removes the copy"


def test_a_rank_that_does_not_see_the_copy_of_the_first_makes_its_own(
    corpus, tmp_path, monkeypatch
):
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
    ("place", "message"), [("$NO_SUCH/x", "is not set"), ("/dev/null/x", "cannot hold the copy")]
)
def test_a_folder_that_cannot_be_used_is_refused(corpus, place, message):
    with pytest.raises(ConfigError, match=message), staged(corpus, place, lambda: None):
        pass


def test_a_training_from_a_copy_has_the_same_weights(tmp_path):
    (tmp_path / "text.txt").write_text(
        "\n".join(f"{n} times seven is {7 * n}." for n in range(300))
    )
    recipe = Recipe(
        width=16, depth=1, heads=2, context=16, steps=3, checkpoints=(3,), vocabulary=300,
        corpus=str(tmp_path / "text.txt"),
    )  # fmt: skip
    weights = []
    for name, stage in {"shared": None, "copied": str(tmp_path / "node")}.items():
        folder = tmp_path / name
        suite.write_corpus(recipe, folder)
        with staged(folder / "corpus", stage, lambda: None) as corpus:
            tokens = data.read(recipe, corpus)
            learning.train(recipe, folder, ("step3",), tokens, DDP(loaders=0))
        weights.append((folder / "step3" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] and not list((tmp_path / "node").iterdir())


TOKENS = np.arange(500, dtype=np.int32)
RECIPE = Recipe(batch=2, accumulate=2, context=8, steps=20)


@pytest.mark.parametrize("count", [0, 2])
def test_loaders_give_the_same_steps(count):
    steps = RankSteps(RECIPE, TOKENS, SINGLE)
    torch.manual_seed(1)
    expected = torch.random.get_rng_state()
    for step, passes in enumerate(read_steps(steps, range(1, 21), count), start=1):
        for batch, direct in zip(passes, steps[step], strict=True):
            assert (batch.numpy() == direct).all()
    assert step == 20 and torch.equal(torch.random.get_rng_state(), expected)


def test_ranks_read_their_own_parts():
    parts = [part for rank in range(3) for part in RankSteps(RECIPE, TOKENS, World(rank, 3))[5]]
    assert (np.concatenate(parts) == np.concatenate(RankSteps(RECIPE, TOKENS, SINGLE)[5])).all()
