from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

collect_ignore = ["local_mteb.py"]  # it needs the benchmark; the fixture of that name imports it
Write = Callable[[str, Any], str]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a file of text and returns its path."""

    def write(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """As workers have it: many threads on small matrices wait for each other."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
