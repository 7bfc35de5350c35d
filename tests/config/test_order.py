"""Steps whose weights lie out of order are named, on made-up walks and on a suite that was really trained."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics import training
from daskmetrics.config import Model, Recipe
from daskmetrics.config._checkpoints import locate
from daskmetrics.config._order import out_of_order

SIZE = 8000


def walk(seed, sizes, drift=0.0):
    """Places after steps of these sizes: a random walk, with a share of drift in one direction."""
    rng = np.random.default_rng(seed)
    steps = [size * (rng.normal(size=SIZE) + drift) for size in sizes]
    return [each.astype(np.float32) for each in np.cumsum([np.zeros(SIZE), *steps], axis=0)]


def named(places):
    return out_of_order([f"step{i}" for i in range(len(places))], places)


SIZES = st.lists(st.floats(0.5, 3.0), min_size=3, max_size=10)


@given(st.integers(0, 99), SIZES, st.floats(0, 3))
def test_a_walk_of_any_strides_raises_no_alarm(seed, sizes, drift):
    assert named(walk(seed, sizes, drift)) == []


@given(st.integers(0, 99), SIZES)
def test_fluctuations_that_decay_or_grow_raise_no_alarm(seed, sizes):
    """Weights at a minimum that only fluctuate, by a learning rate that decays."""
    rng = np.random.default_rng(seed)
    for order in (sorted(sizes), sorted(sizes, reverse=True)):
        assert named([size * rng.normal(size=SIZE).astype(np.float32) for size in order]) == []


@given(st.integers(0, 99), st.lists(st.floats(0.5, 3.0), min_size=8, max_size=8), st.integers(1, 6), st.data())
def test_two_exchanged_steps_are_named(seed, sizes, first, data):
    places = walk(seed, sizes, drift=data.draw(st.floats(0, 3)))
    second = data.draw(st.integers(first + 1, 7))
    places[first], places[second] = places[second], places[first]
    (warning,) = named(places)
    assert warning.startswith(f"step{first} and step{second} seem to be exchanged")


@given(st.integers(0, 99), st.integers(1, 7))
def test_foreign_weights_are_named(seed, which):
    places = walk(seed, [0.1] * 8)
    start = np.random.default_rng(1000).normal(size=SIZE)
    places = [(start + each).astype(np.float32) for each in places]
    places[which] = np.random.default_rng(1001).normal(size=SIZE).astype(np.float32)  # initialised again
    (warning,) = named(places)
    assert warning.startswith(f"step{which} lies out of order")


def test_samples_of_different_models_are_not_compared():
    assert out_of_order(["step0", "step1", "step2"], [np.zeros(3), np.zeros(4), np.ones(3)]) == []


def train(recipe, folder, start=0):
    """Train every revision, and number the steps on from ``start``."""
    for revision in training.revisions(recipe):
        training.train_to(recipe, folder, revision)
        if start and revision != "step0":
            step = int(revision.removeprefix("step"))
            shutil.copytree(folder / revision, folder.parent / "whole" / f"step{start + step}")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A suite trained with a decaying learning rate; beside it, ``whole``, which was resumed with a new one."""
    folder = tmp_path_factory.mktemp("trained")
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(200)))
    sizes = {"width": 16, "depth": 2, "heads": 2, "context": 16, "batch": 4, "corpus": str(corpus)}
    first = Recipe(steps=64, learning_rate=1e-2, vocabulary=300, **sizes)
    train(first, folder / "first")
    shutil.copytree(folder / "first", folder / "whole", ignore=shutil.ignore_patterns("resume", "corpus"))
    again = Recipe(steps=64, learning_rate=2e-2, checkpoints=8, init_from=str(folder / "first" / "step64"), **sizes)
    train(again, folder / "again", start=64)
    return folder / "first"


def warnings(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))
    return locate(Model(name="m", source=str(folder))).warnings


def test_a_trained_suite_raises_no_alarm(trained, tmp_path, monkeypatch):
    assert warnings(trained, tmp_path, monkeypatch) == ()


def test_a_suite_that_was_resumed_with_a_new_learning_rate_raises_no_alarm(trained, tmp_path, monkeypatch):
    assert len(list((trained.parent / "whole").iterdir())) == 8 + 8
    assert warnings(trained.parent / "whole", tmp_path, monkeypatch) == ()


@pytest.mark.parametrize(("a", "b"), [("step2", "step32"), ("step8", "step16")])
def test_exchanged_steps_of_a_trained_suite_are_named(trained, tmp_path, monkeypatch, a, b):
    copy = shutil.copytree(trained, tmp_path / "suite", ignore=shutil.ignore_patterns("resume", "corpus"))
    (copy / a).rename(copy / "x")
    (copy / b).rename(copy / a)
    (copy / "x").rename(copy / b)
    (warning,) = warnings(copy, tmp_path, monkeypatch)
    assert warning.startswith(f"m: {a} and {b} seem to be exchanged")


def test_a_step_of_another_initialisation_is_named(trained, tmp_path, monkeypatch):
    copy = shutil.copytree(trained, tmp_path / "suite", ignore=shutil.ignore_patterns("resume", "corpus"))
    weights = copy / "step16" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    values = np.frombuffer(bytes(data[header:]), "<f4")
    other = np.random.default_rng(0).permutation(values)
    weights.write_bytes(bytes(data[:header]) + other.tobytes())
    (warning,) = warnings(copy, tmp_path, monkeypatch)
    assert "step16 lies out of order" in warning
