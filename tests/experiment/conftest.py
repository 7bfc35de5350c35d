from __future__ import annotations

import pytest

from daskmetrics import config, experiment

SMALL = {
    "name": "small",
    "models": [
        {"name": "a", "train": {"width": 16, "depth": 2, "steps": 4}},
        {"name": "b", "train": {"width": 8, "depth": 1, "steps": 2}, "layers": "blocks"},
    ],
    "corpus": {"prompts": 16},
    "tasks": ["stdlib:order", "stdlib:package"],
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def prepared():
    """Prepares the small experiment with some keys changed."""

    def prepare(**changes):
        return experiment.prepare(config.parse({**SMALL, **changes}))

    return prepare
