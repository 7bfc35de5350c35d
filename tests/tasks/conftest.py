from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the session's, and no hub."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_CACHE", str(folder))
        patch.setenv("HF_HOME", str(folder / "hf"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield folder


@pytest.fixture(scope="session")
def local_mteb(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Iterator[ModuleType]:
    """Tasks of the benchmark of every kind, their data written in the hub's formats."""
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    pytest.importorskip("pyarrow", reason="needs the extra 'table'")
    folder = tmp_path_factory.mktemp("mteb-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASKMETRICS_TEST_MTEB", str(folder))
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the benchmark's own
            from tests.tasks import local_mteb

        local_mteb.write(folder, texts=120)
        yield local_mteb


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
