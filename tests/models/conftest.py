"""Fixtures of networks and tokens that no other test has used."""

from __future__ import annotations

import pytest

from daskmetrics.models import _networks as networks
from daskmetrics.models import _tokens as tokens


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
