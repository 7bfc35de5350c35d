"""A small synthetic task of every class of the benchmark scores as by the plain benchmark, or is
refused with the reason.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks.mteb import mteb_task

pytestmark = pytest.mark.filterwarnings("default")  # the benchmark's own
MOCKS = "mteb.mocks.mock_tasks"
TEXTS = [
    "bitext_mining:MockBitextMiningTask",
    "bitext_mining:MockMultilingualParallelBitextMiningTask",
    "classification:MockClassificationTask",
    "classification:MockMultilingualClassificationTask",
    "classification:MockMultilabelClassification",
    "classification:MockMultilingualMultilabelClassification",
    "clustering:MockClusteringTask",
    "clustering:LegacyMockClusteringFastTask",
    "pair_classification:MockPairClassificationTask",
    "regression:MockRegressionTask",
    "reranking:MockInstructionReranking",
    "reranking:MockRerankingTask",
    "retrieval:MockInstructionRetrieval",
    "retrieval:MockRetrievalDialogTask",
    "retrieval:MockRetrievalTask",
    "sts:MockSTSTask",
    "summarization:MockSummarizationTask",
    "zeroshot_classification:MockTextZeroShotClassificationTask",
]
OTHERS = {
    "retrieval:MockAny2AnyRetrievalI2TTask": "image",
    "retrieval:MockAny2AnyRetrievalT2ATask": "audio",
    "classification:MockImageMultilabelClassificationTask": "image",
    "pair_classification:MockImageTextPairClassificationTask": "image",
    "sts:MockVisualSTSTask": "image",
}


def vector(text: str, seed: int) -> np.ndarray:
    return np.random.default_rng([zlib.crc32(text.encode()), seed]).normal(size=8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("name", TEXTS)
def test_a_task_of_texts_scores_as_by_the_plain_benchmark(name: str) -> None:
    import mteb
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

    class Ordinary(AbsEncoder):
        def __init__(self, seed: int) -> None:
            meta = {"name": "test/o", "similarity_fn_name": ScoringFunction.COSINE}
            self.model, self.seed = None, seed
            self.mteb_model_meta = ModelMeta.create_empty({**meta, "revision": "1"})

        def encode(self, inputs: Any, **_: Any) -> np.ndarray:
            texts = [text for batch in inputs for text in batch["text"]]
            return np.stack([vector(text, self.seed) for text in texts]).astype(np.float32)

    task = mteb_task(f"{MOCKS}.{name}", {})
    module, _, class_name = name.partition(":")
    for seed in range(3):
        plain = getattr(import_module(f"{MOCKS}.{module}"), class_name)()
        plain.hf_subsets = list(task.selection.subsets)
        plain.filter_eval_splits(list(task.selection.splits))
        (result,) = mteb.evaluate(
            Ordinary(seed), plain, cache=None, show_progress_bar=False, co2_tracker=False
        ).task_results
        vectors = np.stack([vector(text, seed) for text in task.texts()])
        score = task.evaluate(vectors, seed=0)
        assert score.value == pytest.approx(float(result.get_score()), abs=1e-6)
        assert 0 < score.n <= 20


@pytest.mark.parametrize("name", OTHERS)
def test_a_task_of_more_than_texts_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=f"has .*{OTHERS[name]}.* to embed; only tasks of texts"):
        mteb_task(f"{MOCKS}.{name}", {}).texts()
