"""What several faults strike: a suite of checkpoints, a journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from daskmetrics import config, training
from daskmetrics.execution import Journal

RECIPE = config.Recipe(width=16, depth=1, steps=8, vocabulary=300, context=32)


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five checkpoints, which tests copy before they hurt them."""
    folder = tmp_path_factory.mktemp("suite")
    training.train(RECIPE, folder)
    return folder


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "journal.jsonl", tmp_path / "lock") as journal:
        yield journal
