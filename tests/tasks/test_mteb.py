"""The benchmark's own scores, from shared embeddings and from an ordinary encoder."""

from __future__ import annotations

import copy
import random
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import v_measure_score

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.tasks import mteb_results, resolve
from daskmetrics.tasks.mteb import MtebTask
from daskmetrics.tasks.mteb_run import load
from tests.tasks.conftest import plain_score

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
KINDS = {
    "LocalClassification": "classification",
    "LocalClustering": "clustering",
    "LocalSTS": "sts",
    "LocalPairs": "pair_classification",
    "LocalRetrieval": "retrieval",
    "LocalReranking": "reranking",
}


def task_of(local: ModuleType, name: str, options: str = "") -> MtebTask:
    (task,) = resolve([f"mteb:{local.__name__}:{name}{options}"])
    assert isinstance(task, MtebTask)
    return task


def noise(task: MtebTask, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(task.texts()), 16)).astype(np.float32)


def test_a_perfect_score_of_a_result_file_has_an_error():
    content = {"scores": {"test": [{"main_score": 1.0}]}}
    score = mteb_results.score(content, "retrieval", 40)
    assert (score.value, score.n) == (1.0, 40) and 0.02 < score.stderr < 0.03
    labels = np.arange(40) % 2
    moved = np.append(labels[:-1], 2)
    of_clusters = mteb_results.score(content, "clustering", 40)
    assert of_clusters.stderr == pytest.approx(1 - v_measure_score(labels, moved), rel=0.1)
    without_draws = {"scores": {"test": [{"main_score": 0.5}]}}
    assert mteb_results.score(without_draws, "clustering", 100).stderr == pytest.approx(0.05)


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_those_of_a_plain_encoder(local_mteb, name):
    task = task_of(local_mteb, name)
    assert task.kind == KINDS[name]
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), copy.deepcopy(np.random.get_state()[1])
    first, other, again = (task.evaluate(noise(task, seed), seed=seed) for seed in (0, 1, 0))
    # the global generators are as before
    assert random.getstate() == before[0] and (np.random.get_state()[1] == before[1]).all()
    assert again == first != other  # a mix-up would show
    assert (first.outcomes == again.outcomes).all()
    assert first.outcomes.shape == other.outcomes.shape
    assert first.outcomes.mean() == pytest.approx(first.value, abs=1e-4)
    assert first.detail["task_name"] == name
    assert first.stderr > 0 and first.n >= 25
    for seed, score in enumerate((first, other)):
        vectors = dict(zip(task.texts(), noise(task, seed), strict=True))
        plain = plain_score(getattr(local_mteb, name)(), vectors.__getitem__)
        assert score.value == pytest.approx(plain, abs=1e-6)
    with pytest.raises(DataError, match=f"mteb:{name}"):
        task.evaluate(np.zeros((1, 4)), seed=0)


def test_a_main_score_that_is_no_mean_over_texts_has_no_outcomes(local_mteb, monkeypatch):
    f1 = local_mteb.LocalClassification.metadata.model_copy(update={"main_score": "f1"})
    monkeypatch.setattr(local_mteb.LocalClassification, "metadata", f1)
    load.cache_clear()
    task = task_of(local_mteb, "LocalClassification")
    try:
        assert task.evaluate(noise(task), seed=0).outcomes is None
    finally:
        load.cache_clear()


def test_texts_are_written_once(local_mteb, monkeypatch):
    task = task_of(local_mteb, "LocalSTS")
    texts = task.texts()
    assert task.is_local and len(set(texts)) == len(texts)
    monkeypatch.setattr("daskmetrics.tasks.mteb_run.import_mteb", None)  # any call would fail
    assert task.texts() == texts


def test_other_data_in_a_folder_of_the_same_name_is_another_task(local_mteb, tmp_path, monkeypatch):
    before = task_of(local_mteb, "LocalRetrieval")
    assert before.evaluate(noise(before), seed=0).n == 40
    local_mteb.write(tmp_path, texts=60)
    elsewhere = local_mteb.LocalRetrieval.metadata.model_copy(
        update={"dataset": {"path": str(tmp_path / "LocalRetrieval"), "revision": "local-1"}}
    )
    monkeypatch.setattr(local_mteb.LocalRetrieval, "metadata", elsewhere)
    after = task_of(local_mteb, "LocalRetrieval")
    assert after.key != before.key and after.evaluate(noise(after), seed=0).n == 30
    corpus = tmp_path / "LocalRetrieval" / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes() + b"\n")
    assert task_of(local_mteb, "LocalRetrieval").key != after.key


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BIOSSES", "daskmetrics runs prefetch --task mteb:BIOSSES"),
        ("BIOSES", "no task 'BIOSES'"),
        ("nowhere:Task", "cannot be loaded"),
    ],
)
def test_missing_data_and_an_unknown_task_are_an_error(session_cache, name, message):
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    with pytest.raises(ConfigError, match=message):
        MtebTask(name).texts()


@pytest.mark.parametrize(
    ("options", "splits", "subsets"),
    [
        ("", ["test"], ["en", "en-ext"]),
        ("(languages=deu)", ["test"], ["de"]),
        ("(languages=deu+eng, split=validation)", ["validation"], ["en", "de", "en-ext", "de-en"]),
        ("(subsets=de-en, split=test+validation)", ["validation", "test"], ["de-en"]),
    ],
)
def test_texts_and_scores_are_those_of_the_chosen_subsets(local_mteb, options, splits, subsets):
    task = task_of(local_mteb, "LocalLanguages", options)
    assert task.name.startswith("mteb:LocalLanguages") and task.name.endswith(")") == bool(options)
    folder = local_mteb.FOLDER / "LocalLanguages"
    files = [next((folder / subset).glob(f"{split}-*")) for subset in subsets for split in splits]
    tested = set(pd.concat(map(pd.read_parquet, files))["text"])
    assert tested <= set(task.texts())
    assert {text.split()[0] for text in task.texts()} == set(subsets)
    vectors = dict(zip(task.texts(), noise(task), strict=True))
    plain = local_mteb.LocalLanguages().filter_languages(None, hf_subsets=subsets)
    expected = plain_score(plain.filter_eval_splits(splits), vectors.__getitem__)
    score = task.evaluate(noise(task), seed=0)
    assert score.value == pytest.approx(expected, abs=1e-6)
    assert list(score.detail["scores"]) == splits
    for part in score.detail["scores"].values():
        assert [of_subset["hf_subset"] for of_subset in part] == subsets
    assert score.n == len(tested)
