"""The benchmark's own scores, from shared embeddings and from an ordinary encoder."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Protocol
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.models import LoadedModel
from daskmetrics.tasks import resolve
from daskmetrics.tasks.mteb import MtebTask
from daskmetrics.tasks.mteb_run import load

pytestmark = pytest.mark.filterwarnings("ignore", "error:::daskmetrics")  # the benchmark's own
KINDS = {
    "LocalClassification": "classification",
    "LocalClustering": "clustering",
    "LocalSTS": "sts",
    "LocalPairs": "pair_classification",
    "LocalRetrieval": "retrieval",
    "LocalReranking": "reranking",
}
every_kind = pytest.mark.parametrize("name", KINDS)
LAYERS = range(7)


def task_of(local: ModuleType, name: str) -> MtebTask:
    (task,) = resolve([f"mteb:{local.PLACES[name]}"])
    assert isinstance(task, MtebTask)
    return task


def noise(task: MtebTask, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(len(task.texts()), 16)).astype(np.float32)


class Plain:
    """All layers of each text by transformers alone, one text at a time, so that no padding is
    involved.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModel, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.network = AutoModel.from_pretrained(folder).eval()
        self.seen: dict[str, np.ndarray] = {}

    def __call__(self, text: str) -> np.ndarray:
        import torch

        if text not in self.seen:
            with torch.inference_mode():
                inputs = self.tokenizer(text, return_tensors="pt", truncation=True, max_length=256)
                states = self.network(**inputs, output_hidden_states=True).hidden_states
            self.seen[text] = np.stack([layer[0].mean(0).numpy() for layer in states])
        return self.seen[text]


@pytest.fixture(scope="module")
def plain(minilm: Path) -> Plain:
    return Plain(minilm)


def ordinary_scores(local: ModuleType, name: str, plain: Plain) -> list[float]:
    """By `mteb.evaluate` as its documentation has it: an encoder, and a new task object for each
    layer.
    """
    import mteb
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Ordinary(AbsEncoder):
        def __init__(self, layer: int) -> None:
            self.model, self.layer = None, layer
            self.mteb_model_meta = ModelMeta.create_empty(
                {"name": "test/ordinary", "revision": "1"}
            )

        def encode(self, inputs: Any, **_: Any) -> np.ndarray:
            return np.stack([plain(text)[self.layer] for batch in inputs for text in batch["text"]])

    scores = []
    for layer in LAYERS:
        found = mteb.evaluate(
            Ordinary(layer), getattr(local, name)(), cache=None, show_progress_bar=False
        )
        scores.append(float(found.task_results[0].get_score()))
    return scores


@every_kind
def test_scores_equal_those_of_a_plain_encoder(
    local_mteb: ModuleType, minilm: Path, plain: Plain, name: str
) -> None:
    task = task_of(local_mteb, name)
    assert task.kind == KINDS[name]
    one_by_one = Protocol(batch_tokens=1)
    with LoadedModel(Location(str(minilm), None, "minilm"), one_by_one) as model:
        vectors = model.encode(task.texts(), LAYERS, "mean")
    shared = [task.evaluate(vectors[layer], seed=layer) for layer in LAYERS]
    ordinary = ordinary_scores(local_mteb, name, plain)
    assert [score.value for score in shared] == pytest.approx(ordinary, abs=1e-6)
    assert len(set(ordinary)) > 3  # layers differ, so that a mix-up would show
    assert all(0 < score.stderr < 0.2 and score.n >= 25 for score in shared)


@every_kind
def test_a_score_does_not_depend_on_earlier_scores(local_mteb: ModuleType, name: str) -> None:
    task = task_of(local_mteb, name)
    first = task.evaluate(noise(task), seed=0)
    other = task.evaluate(noise(task, 1), seed=0)
    assert task.evaluate(noise(task), seed=1) == first != other
    assert first.detail is not None and first.detail["task_name"] == name


@every_kind
def test_outcomes_are_of_the_score_and_pair(local_mteb: ModuleType, name: str) -> None:
    task = task_of(local_mteb, name)
    one, same, other = (
        task.evaluate(rows, seed=0) for rows in (noise(task), noise(task), noise(task) + 0.1)
    )
    assert one.outcomes is not None and same.outcomes is not None and other.outcomes is not None
    assert one.outcomes.mean() == pytest.approx(one.value, abs=1e-4)
    assert (one.outcomes == same.outcomes).all() and one.outcomes.shape == other.outcomes.shape


def test_a_main_score_that_is_no_mean_over_texts_has_no_outcomes(
    local_mteb: ModuleType, monkeypatch: Any
) -> None:
    f1 = local_mteb.LocalClassification.metadata.model_copy(update={"main_score": "f1"})
    monkeypatch.setattr(local_mteb.LocalClassification, "metadata", f1)
    load.cache_clear()
    task = task_of(local_mteb, "LocalClassification")
    try:
        assert task.evaluate(noise(task), seed=0).outcomes is None
    finally:
        load.cache_clear()


def test_the_global_generators_do_not_change(local_mteb: ModuleType) -> None:
    task = task_of(local_mteb, "LocalClustering")
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), copy.deepcopy(np.random.get_state()[1])
    task.evaluate(noise(task), seed=0)
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()


def test_texts_are_written_once(
    local_mteb: ModuleType, session_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(local_mteb, "LocalSTS")
    texts = task.texts()
    assert task.is_local and len(set(texts)) == len(texts)
    monkeypatch.setattr("daskmetrics.tasks.mteb_run.import_mteb", None)  # any call would fail
    assert task.texts() == texts


def test_other_data_is_another_task(local_mteb: ModuleType) -> None:
    before = task_of(local_mteb, "LocalPairs").key
    (file,) = (local_mteb.FOLDER / "LocalPairs").glob("*.parquet")
    content = file.read_bytes()
    try:
        file.write_bytes(content + b"more")
        assert task_of(local_mteb, "LocalPairs").key != before
    finally:
        file.write_bytes(content)
    assert task_of(local_mteb, "LocalPairs").key == before


def test_other_data_in_a_folder_of_the_same_name_is_not_confused(
    local_mteb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = task_of(local_mteb, "LocalRetrieval")
    assert before.evaluate(noise(before), seed=0).n == 40
    local_mteb.write(tmp_path, texts=60)
    elsewhere = local_mteb.LocalRetrieval.metadata.model_copy(
        update={"dataset": {"path": str(tmp_path / "LocalRetrieval"), "revision": "local-1"}}
    )
    monkeypatch.setattr(local_mteb.LocalRetrieval, "metadata", elsewhere)
    after = task_of(local_mteb, "LocalRetrieval")
    assert after.key != before.key and after.evaluate(noise(after), seed=0).n == 30


def test_the_error_for_missing_data_names_the_command_that_fetches_it(session_cache: Path) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    with pytest.raises(ConfigError, match="daskmetrics runs prefetch --task mteb:BIOSSES"):
        MtebTask("BIOSSES").texts()


@pytest.mark.parametrize(
    ("place", "message"), [("BIOSES", "no task 'BIOSES'"), ("nowhere:Task", "cannot be imported")]
)
def test_an_unknown_task_is_an_error(session_cache: Path, place: str, message: str) -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    with pytest.raises(ConfigError, match=message):
        MtebTask(place).texts()


def test_a_wrong_number_of_rows_is_an_error(local_mteb: ModuleType) -> None:
    with pytest.raises(DataError, match="mteb:LocalSTS"):
        task_of(local_mteb, "LocalSTS").evaluate(np.zeros((1, 4)), seed=0)


class TestLanguages:
    """A task of four subsets and two splits."""

    def task(self, local: ModuleType, options: str = "") -> MtebTask:
        (task,) = resolve([f"mteb:{local.MULTILINGUAL}{options}"])
        assert isinstance(task, MtebTask)
        return task

    @pytest.mark.parametrize(
        ("options", "splits", "subsets"),
        [
            ("", ["test"], ["en", "en-ext"]),
            ("(languages=deu)", ["test"], ["de"]),
            (
                "(languages=deu+eng, split=validation)",
                ["validation"],
                ["en", "de", "en-ext", "de-en"],
            ),
            ("(subsets=de-en, split=test+validation)", ["validation", "test"], ["de-en"]),
        ],
    )
    def test_texts_and_scores_are_those_of_the_chosen_subsets(
        self, local_mteb: ModuleType, options: str, splits: list[str], subsets: list[str]
    ) -> None:
        import mteb
        import pandas as pd
        from mteb.models import ModelMeta
        from mteb.models.abs_encoder import AbsEncoder

        task = self.task(local_mteb, options)
        assert task.name.startswith("mteb:LocalLanguages") and task.name.endswith(")") == bool(
            options
        )
        folder = local_mteb.FOLDER / "LocalLanguages"
        tested = {
            text
            for subset in subsets
            for split in splits
            for text in pd.read_parquet(next((folder / subset).glob(f"{split}-*")))["text"]
        }
        assert tested <= set(task.texts())
        assert {text.split()[0] for text in task.texts()} == set(subsets)
        vectors = noise(task)
        rows = {text: row for row, text in enumerate(task.texts())}

        class Ordinary(AbsEncoder):
            def __init__(self) -> None:
                self.model, self.mteb_model_meta = (
                    None,
                    ModelMeta.create_empty({"name": "test/o", "revision": "1"}),
                )

            def encode(self, inputs: Any, **_: Any) -> np.ndarray:
                return vectors[[rows[text] for batch in inputs for text in batch["text"]]]

        plain = (
            local_mteb.LocalLanguages()
            .filter_languages(None, hf_subsets=subsets)
            .filter_eval_splits(splits)
        )
        found = mteb.evaluate(Ordinary(), plain, cache=None, show_progress_bar=False).task_results[
            0
        ]
        score = task.evaluate(vectors, seed=0)
        assert score.value == pytest.approx(float(found.get_score()), abs=1e-6)
        assert score.detail is not None and list(score.detail["scores"]) == splits
        assert all(
            [each["hf_subset"] for each in part] == subsets
            for part in score.detail["scores"].values()
        )
        assert score.n == len(tested)

    def test_variants_are_different_tasks(self, local_mteb: ModuleType) -> None:
        place = f"mteb:{local_mteb.MULTILINGUAL}"
        tasks = resolve(
            [
                place,
                f"{place}(subsets=en+en-ext)",
                f"{place}(subsets=en)",
                f"{place}(split=validation)",
            ]
        )
        assert (
            len(tasks)
            == len({task.key for task in tasks})
            == len({task.name for task in tasks})
            == 3
        )

    def test_an_unknown_split_is_an_error(self, local_mteb: ModuleType) -> None:
        with pytest.raises(
            ConfigError,
            match=r"Unknown split of 'mteb:LocalLanguages' 'dev'. Valid: test, validation",
        ):
            self.task(local_mteb, "(split=dev)")


def test_sizes_are_listed_without_the_data() -> None:
    pytest.importorskip("mteb", reason="needs the extra 'mteb'")
    size = MtebTask("Banking77Classification").statistics
    assert size is not None and 3_080 < size.texts < 13_083 and size.characters > 400_000
    assert MtebTask("NoSuchTask").statistics is None
