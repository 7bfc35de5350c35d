from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def own_path(monkeypatch):
    """A file that is loaded puts its folder on the path; no other test may find what lies there."""
    monkeypatch.setattr(sys, "path", sys.path[:])
