"""A small synthetic task of every class of the benchmark scores as by the plain benchmark, or is
refused with the reason.
"""

from __future__ import annotations

import zlib
from functools import partial
from importlib import import_module

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks.mteb import mteb_task
from tests.tasks.conftest import plain_score

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


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    monkeypatch.setenv("DASKMETRICS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def vector(text: str, seed: int) -> np.ndarray:
    return np.random.default_rng([zlib.crc32(text.encode()), seed]).normal(size=8)


@pytest.mark.parametrize("name", TEXTS)
def test_a_task_of_texts_scores_as_by_the_plain_benchmark(name):
    task = mteb_task(f"{MOCKS}.{name}", {})
    module, _, class_name = name.partition(":")
    for seed in range(2):
        plain = getattr(import_module(f"{MOCKS}.{module}"), class_name)()
        plain.hf_subsets = list(task.selection.subsets)
        plain.filter_eval_splits(list(task.selection.splits))
        expected = plain_score(plain, partial(vector, seed=seed))
        vectors = np.stack([vector(text, seed) for text in task.texts()])
        score = task.evaluate(vectors, seed=0)
        assert score.value == pytest.approx(expected, abs=1e-6)
        assert 0 < score.n <= 20


@pytest.mark.parametrize("name", OTHERS)
def test_a_task_of_more_than_texts_is_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match=f"has .*{OTHERS[name]}.* to embed; only tasks of texts"):
        mteb_task(f"{MOCKS}.{name}", {}).texts()
