from __future__ import annotations

from pathlib import Path

import pytest

from daskmetrics.config import Recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A suite that trains in a second."""
    path = tmp_path / "corpus.txt"
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
