"""Every switch of a recipe: what it changes and what it must not change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from daskmetrics.config import DDP, Recipe
from daskmetrics.core.errors import ConfigError, DataError, UndefinedError
from daskmetrics.training import _learning as learning
from daskmetrics.training import recipe_key, revisions, train_to
from daskmetrics.training import suite as suite
from daskmetrics.training._distributed import SINGLE, World
from daskmetrics.training.data import examples, passes


def trained(recipe: Recipe, folder: Path, steps: int = 4) -> dict[str, torch.Tensor]:
    changed = recipe.model_copy(update={"steps": steps, "checkpoints": (steps,)})
    train_to(changed, folder, f"step{steps}")
    return load_file(folder / f"step{steps}" / "model.safetensors")


def changed(recipe: Recipe, **keys: object) -> Recipe:
    return Recipe.model_validate({**recipe.model_dump(), **keys})


def gradient(recipe: Recipe, folder: Path, world: World = SINGLE) -> torch.Tensor:
    """Of the first step, as the optimizer gets it; Adam would make noise of the size of a step out
    of every zero.
    """
    suite.write_corpus(recipe, folder)
    source = suite.data.read(recipe, folder / "corpus")
    which = examples(recipe, len(source), 1)
    learner = learning.new(recipe, folder / "corpus", world)
    seen: list[torch.Tensor] = []
    learner.optimizer.register_step_pre_hook(
        lambda *_: seen.append(
            torch.cat([p.grad.flatten().clone() for p in learner.model.parameters()])
        )
    )
    learning.take_step(
        learner,
        recipe,
        [source.take(which[part]) for part in passes(len(which), recipe.batch)],
    )
    return seen[0]


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("by", [2, 4])
def test_accumulation_equals_the_larger_batch(recipe: Recipe, tmp_path: Path, by: int) -> None:
    whole = gradient(changed(recipe, batch=4), tmp_path / "whole")
    assert (
        apart(gradient(changed(recipe, batch=4 // by, accumulate=by), tmp_path / "parts"), whole)
        < 1e-6
    )
    assert apart(gradient(changed(recipe, batch=4, seed=1), tmp_path / "other"), whole) > 0.1


def test_activation_checkpointing_changes_no_bit(recipe: Recipe, tmp_path: Path) -> None:
    kept, again = recipe, changed(recipe, activation_checkpointing=True)
    assert torch.equal(gradient(kept, tmp_path / "a"), gradient(again, tmp_path / "b"))
    there, here = trained(kept, tmp_path / "c"), trained(again, tmp_path / "d")
    assert all(torch.equal(there[name], here[name]) for name in there)


def test_clipping_bounds_the_gradient(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = gradient(recipe, tmp_path / "free").norm()
    assert 0.1 < free < learning.LARGEST_GRADIENT
    monkeypatch.setattr(learning, "LARGEST_GRADIENT", 0.01)
    bound = gradient(recipe, tmp_path / "bound").norm()
    assert float(bound) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.slow  # five trainings
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_trains_and_resumes(recipe: Recipe, tmp_path: Path, precision: str) -> None:
    half = changed(recipe, precision=precision)
    for revision in revisions(half):
        result = train_to(half, tmp_path / "chain", revision)
    first = suite.summary(tmp_path / "chain", "step0")
    assert result["loss"] < first["loss"] - 0.3
    assert suite.summary(tmp_path / "chain", "step12")["loss"] == pytest.approx(
        train_to(recipe, tmp_path / "full", "step12")["loss"], rel=0.02
    )
    train_to(half, tmp_path / "once", "step12")
    chain, once = (
        load_file(tmp_path / name / "step12" / "model.safetensors") for name in ("chain", "once")
    )
    assert all(torch.equal(chain[name], once[name]) for name in once)
    assert all(tensor.dtype == torch.float32 for tensor in once.values())


@pytest.mark.slow  # loaders are processes
def test_the_number_of_loaders_changes_no_bit(recipe: Recipe, tmp_path: Path) -> None:
    folders = []
    for count in (0, 2):
        folders.append(tmp_path / str(count))
        suite.write_corpus(recipe, folders[-1])
        learning.train(recipe, folders[-1], ("step4", "step12"), DDP(loaders=count))
    assert len({(folder / "step12" / "model.safetensors").read_bytes() for folder in folders}) == 1


def test_the_initial_model_is_the_first_checkpoint(recipe: Recipe, tmp_path: Path) -> None:
    base = trained(recipe, tmp_path / "base")
    tuned = changed(recipe, init_from=str(tmp_path / "base" / "step4"), steps=3, seed=5)
    train_to(tuned, tmp_path / "tuned", "step0")
    start = load_file(tmp_path / "tuned" / "step0" / "model.safetensors")
    assert all(torch.equal(base[name], start[name]) for name in base)
    train_to(tuned, tmp_path / "tuned", "step3")
    tuned_weights = load_file(tmp_path / "tuned" / "step3" / "model.safetensors")
    assert all(not torch.equal(base[name], tuned_weights[name]) for name in base)
    files = [(tmp_path / name / "step0" / "tokenizer.json").read_bytes() for name in ("tuned",)]
    assert files[0] == (tmp_path / "base" / "step4" / "tokenizer.json").read_bytes()


def test_the_key_depends_on_the_initial_model(recipe: Recipe, tmp_path: Path) -> None:
    trained(recipe, tmp_path / "base")
    here = changed(recipe, init_from=str(tmp_path / "base" / "step4"))
    shutil.copytree(tmp_path / "base" / "step4", tmp_path / "moved")
    moved = changed(recipe, init_from=str(tmp_path / "moved"))
    assert recipe_key(here) == recipe_key(moved) != recipe_key(recipe)
    with pytest.raises(ConfigError, match=r"not a model folder.*config\.json"):
        recipe_key(changed(recipe, init_from=str(tmp_path)))


def test_a_given_tokenizer_is_used_unchanged(recipe: Recipe, tmp_path: Path) -> None:
    trained(recipe, tmp_path / "base")
    given = changed(recipe, tokenizer=str(tmp_path / "base" / "step4"), vocabulary=9999)
    weights = trained(given, tmp_path / "given")
    assert weights["gpt_neox.embed_in.weight"].shape[0] < 9999
    assert recipe_key(given) != recipe_key(recipe)


def labelled(tmp_path: Path) -> str:
    rows = [
        {
            "text": f"{'good fine glad' if n % 2 else 'bad poor sad'} number {n}",
            "label": "+" if n % 2 else "-",
        }
        for n in range(40)
    ]
    path = tmp_path / "reviews.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def test_a_classifier_learns_its_classes(recipe: Recipe, tmp_path: Path) -> None:
    classifier = changed(
        recipe, objective="classification", corpus=labelled(tmp_path), batch=8, steps=24, width=32
    )
    first, last = (
        train_to(classifier, tmp_path / "s", revision)["loss"] for revision in ("step0", "step24")
    )
    assert last < 0.2 < first
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "s" / "step24")
    assert model.config.id2label == {0: "+", 1: "-"}


def test_a_pretrained_model_gets_a_head(recipe: Recipe, tmp_path: Path) -> None:
    base = trained(recipe, tmp_path / "base")
    classifier = changed(
        recipe,
        objective="classification",
        corpus=labelled(tmp_path),
        init_from=str(tmp_path / "base" / "step4"),
    )
    train_to(classifier, tmp_path / "head", "step0")
    start = load_file(tmp_path / "head" / "step0" / "model.safetensors")
    assert torch.equal(start["gpt_neox.embed_in.weight"], base["gpt_neox.embed_in.weight"])
    assert start["score.weight"].shape == (2, recipe.width)


def test_a_loss_that_is_not_finite_is_an_error(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(UndefinedError, match="lower learning_rate"):
        train_to(changed(recipe, learning_rate=1e30), tmp_path / "s", "step12")


def test_a_damaged_initial_model_is_named(recipe: Recipe, tmp_path: Path) -> None:
    trained(recipe, tmp_path / "base")
    (tmp_path / "base" / "step4" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="Cannot load the model"):
        train_to(
            changed(recipe, init_from=str(tmp_path / "base" / "step4")), tmp_path / "s", "step0"
        )
