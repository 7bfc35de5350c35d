"""Every switch of a recipe: what it changes and what it must not change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from daskmetrics.config import Recipe
from daskmetrics.core.errors import UndefinedError
from daskmetrics.training import _learning as learning
from daskmetrics.training import suite as suite
from daskmetrics.training import train_to
from daskmetrics.training._learning import SINGLE, World


def changed(recipe: Recipe, **keys: object) -> Recipe:
    return Recipe.model_validate({**recipe.model_dump(), **keys})


def gradient(recipe: Recipe, folder: Path, world: World = SINGLE) -> torch.Tensor:
    """Of the first step, as the optimizer gets it; Adam would make noise of the size of a step out
    of every zero.
    """
    suite.data.write_corpus(recipe, folder)
    tokens = suite.data.read(folder / "corpus")
    learner = learning.new(recipe, world)
    seen: list[torch.Tensor] = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: seen.append(
            torch.cat([p.grad.flatten().clone() for p in learner.model.parameters()])
        )
    )
    learner.take_step(learning.RankSteps(recipe, tokens, SINGLE)[1])
    return seen[0]


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("by", [2, 4])
def test_accumulation_equals_the_larger_batch(recipe, tmp_path, by):
    whole = gradient(recipe, tmp_path / "whole")
    parts = gradient(changed(recipe, batch=4 // by, accumulate=by), tmp_path / "parts")
    assert apart(parts, whole) < 1e-6
    assert apart(gradient(changed(recipe, seed=1), tmp_path / "other"), whole) > 0.1


def test_clipping_bounds_the_gradient(recipe, tmp_path, monkeypatch):
    free = gradient(recipe, tmp_path / "free").norm()
    assert 0.1 < free < learning.LARGEST_GRADIENT
    monkeypatch.setattr(learning, "LARGEST_GRADIENT", 0.01)
    bound = gradient(recipe, tmp_path / "bound").norm()
    assert float(bound) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.slow  # three trainings
def test_half_precision_trains_and_resumes(recipe, tmp_path, chain):
    half = changed(recipe, precision="bfloat16")
    for revision in ("step0", "step4", "step12"):
        result = train_to(half, tmp_path / "chain", revision)
    assert result["loss"] < suite.summary(tmp_path / "chain", "step0")["loss"] - 0.3
    assert result["loss"] == pytest.approx(suite.summary(chain, "step12")["loss"], rel=0.02)
    train_to(half, tmp_path / "once", "step12")
    resumed, once = (
        load_file(tmp_path / name / "step12" / "model.safetensors") for name in ("chain", "once")
    )
    assert all(torch.equal(resumed[name], once[name]) for name in once)
    assert all(tensor.dtype == torch.float32 for tensor in once.values())


def test_a_loss_that_is_not_finite_is_an_error(recipe, tmp_path):
    with pytest.raises(UndefinedError, match="lower learning_rate"):
        train_to(changed(recipe, learning_rate=1e30), tmp_path / "s", "step12")
