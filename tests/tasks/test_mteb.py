from __future__ import annotations

import numpy as np
import pytest

from daskmetrics.errors import DataError
from daskmetrics.tasks.mteb import MtebTask

mocks = pytest.importorskip("mteb.mocks.mock_tasks", reason="needs the extra 'mteb'")
pytestmark = pytest.mark.filterwarnings("default")  # the benchmark's own


@pytest.mark.parametrize(
    "name", ["MockPairClassificationTask", "MockRerankingTask", "MockRetrievalTask", "MockSTSTask"]
)
def test_the_benchmark_scores_embeddings_made_elsewhere(name: str) -> None:
    task = MtebTask(name, load=getattr(mocks, name))
    texts = task.texts()
    assert len(set(texts)) == len(texts) > 0
    embeddings = np.random.default_rng(0).normal(size=(len(texts), 8))
    score = task.evaluate(embeddings, seed=0)
    assert -1.001 <= score.value <= 1
    assert score == task.evaluate(embeddings, seed=1)


def test_the_vectors_decide_the_score() -> None:
    task = MtebTask("MockRetrievalTask", load=mocks.MockRetrievalTask)
    rows = len(task.texts())
    scores = {task.evaluate(np.random.default_rng(seed).normal(size=(rows, 4)), seed=0).value for seed in range(8)}
    assert len(scores) > 1


def test_the_wrong_number_of_rows_is_refused() -> None:
    task = MtebTask("MockSTSTask", load=mocks.MockSTSTask)
    with pytest.raises(DataError, match="mteb:MockSTSTask"):
        task.evaluate(np.zeros((1, 4)), seed=0)
