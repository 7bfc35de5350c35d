from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
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


def plain_score(task: Any, vector: Callable[[str], np.ndarray]) -> float:
    """By `mteb.evaluate` as its documentation has it: an encoder, and a new task object."""
    import mteb
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

    about = {"name": "test/o", "revision": "1", "similarity_fn_name": ScoringFunction.COSINE}

    class Ordinary(AbsEncoder):
        model = None
        mteb_model_meta = ModelMeta.create_empty(about)

        def encode(self, inputs: Any, **_: Any) -> np.ndarray:
            return np.stack([vector(text) for batch in inputs for text in batch["text"]])

    options = {"cache": None, "show_progress_bar": False, "co2_tracker": False}
    (result,) = mteb.evaluate(Ordinary(), task, **options).task_results
    return float(result.get_score())
