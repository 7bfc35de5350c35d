from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def restored_path(monkeypatch):
    """Loading a file adds its folder to the path; other tests must not import from it."""
    monkeypatch.setattr(sys, "path", sys.path[:])
