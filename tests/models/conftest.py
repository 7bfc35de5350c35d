"""Networks that tests read and do not change, and pools that no other test has used."""

from __future__ import annotations

from pathlib import Path

import pytest

from daskmetrics.models import _networks as networks
from daskmetrics.models import _tokens as tokens
from tests import embedders
from tests.models.architectures import build


@pytest.fixture(scope="session")
def neox_pair(tmp_path_factory, minilm) -> tuple[Path, Path]:
    """Two checkpoints of one GPT-NeoX with a head."""
    folder = tmp_path_factory.mktemp("neox")
    first, second = (
        build("gpt_neox", folder / str(seed), minilm, seed, head=True) for seed in (0, 1)
    )
    return first, second


@pytest.fixture(scope="session")
def neox(neox_pair) -> Path:
    return neox_pair[0]


@pytest.fixture(scope="session")
def e5(tmp_path_factory) -> Path:
    """A folder of sentence-transformers that is read as shipped."""
    return embedders.build("e5", tmp_path_factory.mktemp("e5"))


@pytest.fixture
def fresh_pool(monkeypatch):
    """A pool that no other test has filled."""
    pool = networks.NetworkPool()
    monkeypatch.setattr("daskmetrics.models._model.NETWORKS", pool)
    return pool


@pytest.fixture
def fresh_tokens(monkeypatch):
    monkeypatch.setattr(tokens, "_TOKENS", tokens.LRUCache(8))
    monkeypatch.setattr(tokens, "_TOKENIZERS", tokens.LRUCache(4))
