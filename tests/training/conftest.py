from __future__ import annotations

from pathlib import Path

import pytest

from daskmetrics.config import Recipe
from daskmetrics.training import revisions, train_to


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A suite that trains in a second."""
    return small_recipe(tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite of this recipe, trained in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    recipe = small_recipe(folder)
    train_to(recipe, folder / "suite", revisions(recipe)[-1])
    return folder / "suite"


def small_recipe(folder: Path) -> Recipe:
    path = folder / "corpus.txt"
    path.write_text(
        "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(200)),
        encoding="utf-8",
    )
    return Recipe(
        width=16,
        depth=2,
        heads=2,
        context=16,
        vocabulary=300,
        batch=4,
        steps=12,
        learning_rate=1e-2,
        corpus=str(path),
    )
