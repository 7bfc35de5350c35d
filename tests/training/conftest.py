from __future__ import annotations

from pathlib import Path

import pytest

from daskmetrics.config import Recipe
from daskmetrics.training import train


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    lines = [f"{n} times seven is {7 * n}, as everyone knows." for n in range(200)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def recipe(corpus: Path) -> Recipe:
    """A suite that trains in a second."""
    return Recipe(
        width=16,
        depth=2,
        heads=2,
        context=16,
        vocabulary=300,
        batch=4,
        steps=12,
        learning_rate=1e-2,
        corpus=str(corpus),
    )


@pytest.fixture(scope="session")
def undisturbed(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite of this recipe, trained at one go."""
    folder = tmp_path_factory.mktemp("undisturbed") / "suite"
    train(recipe, folder)
    return folder
