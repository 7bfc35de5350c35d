"""A hub on this machine, which this process uses."""

from __future__ import annotations

import pytest

from tests.hub import serve, use


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub without repositories, which tests give it."""
    with serve({}) as hub:
        use(hub, tmp_path, monkeypatch)
        yield hub
