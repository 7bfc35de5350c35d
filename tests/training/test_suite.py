from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.config import Recipe
from daskmetrics.training import data as data
from daskmetrics.training import recipe_key
from daskmetrics.training import suite as suite


def test_naming_revisions_needs_no_torch(recipe):
    code = f"""
import sys
from pathlib import Path
from daskmetrics.config import Recipe
from daskmetrics.training import suite as suite
from daskmetrics.training import is_complete, recipe_key, revisions
recipe = Recipe.model_validate_json({recipe.model_dump_json()!r})
recipe_key(recipe), revisions(recipe), is_complete(Path("nowhere"), "step0")
assert not {{"torch", "transformers", "tokenizers", "distributed"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_key_depends_on_the_text_and_not_on_the_file(recipe, tmp_path):
    moved = recipe.model_copy(update={"corpus": shutil.copy(recipe.corpus, tmp_path / "moved.txt")})
    other = recipe.model_copy(update={"seed": 1})
    assert recipe_key(moved) == recipe_key(recipe) != recipe_key(other)
    Path(moved.corpus).write_text("another text", encoding="utf-8")
    assert recipe_key(moved) != recipe_key(recipe)


def test_how_a_training_is_run_does_not_change_the_key(recipe):
    run = {"save_every": 7, "loaders": 2, "stage": "$TMPDIR"}
    assert recipe_key(recipe.model_copy(update=run)) == recipe_key(recipe)


def test_epochs_become_steps_by_counting_the_corpus(recipe, tmp_path, undisturbed):
    base = {**recipe.model_dump(exclude={"steps", "epochs"}), "batch": 4}
    counted = data.with_steps(Recipe(epochs=0.5, **base), tmp_path / "cache")
    sequences = data.epoch(recipe, tmp_path / "cache")
    assert sequences == len(np.load(undisturbed / "corpus" / "tokens.npy")) // 16
    assert counted.epochs is None and counted.steps == math.ceil(0.5 * sequences / 4)
    # equal steps give equal suites
    assert recipe_key(counted) == recipe_key(Recipe(steps=counted.steps, **base))
    with pytest.raises(ValueError, match="leave out 'steps'"):
        Recipe(epochs=3, steps=8, **base)


def test_disk_is_what_training_leaves(recipe, undisturbed):
    saved = sum(path.stat().st_size for path in undisturbed.rglob("*.safetensors"))
    state = next((undisturbed / "resume").iterdir()).stat().st_size
    assert suite.disk(recipe) == pytest.approx(saved + 2 * state, rel=0.2)
