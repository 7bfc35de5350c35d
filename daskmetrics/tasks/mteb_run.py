"""The one file that imports mteb: its tasks are loaded once per process and run on embeddings made
elsewhere.

mteb needs an encoder to run a task. Here it is a function from texts to vectors: at first it only
collects the texts, later it looks up their vectors. Some of mteb's behaviour needs care (2.26):

- a task object keeps its random generator, so a second run of the same object gives other scores:
  each run gets a copy whose generators are as they were after loading;
- creating a task seeds the global generators of ``random`` and ``numpy``: their state is restored;
- ``datasets`` reads a column row by row, and a classifier does so for every fit: columns of
  classifications are lists;
- ``datasets`` caches a local folder whose README names its files by the name of the folder alone,
  and so confuses it with other data of that name: each content gets a cache;
- mteb's cache of results is not safe with several writers: it is not used, and only the driver
  exports.
"""

from __future__ import annotations

import copy
import hashlib
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.outcomes import TOLERANCE
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks.mteb_subsets import DECLARATIONS, Declaration, Selection
from daskmetrics.tasks.task import Role

BATCH_SIZE = 1024  # texts per call of the encoder; does not change the scores
_DIMENSIONS = 8  # of the vectors while texts are collected; any number works

_PER_QUERY = {  # mteb's names of scores, and of the same scores of single queries
    "ndcg_at_": "ndcg_cut_",
    "map_at_": "map_cut_",
    "recall_at_": "recall_",
    "precision_at_": "P_",
}
_SIMILARITIES = {  # and their sign
    "cosine_scores": 1,
    "dot_scores": 1,
    "similarity_scores": 1,
    "manhattan_distances": -1,
    "euclidean_distances": -1,
}

Array = NDArray[np.float64]
Embed = Callable[[list[str], Role | None], NDArray[np.float32]]


class Observer:
    """Sees the predictions of one run of a task where mteb hands them to its scores, and makes
    outcomes of them.

    ======================= ===================================================================
    classification          the share of its draws in which a text is predicted rightly
    retrieval, reranking    nDCG, average precision, recall or precision of each query
    sts                     pseudo-values of Spearman's correlation of the cosine
    pair_classification     pseudo-values of the average precision of the best similarity
    clustering              pseudo-values of its draws, which are the same for all arms
    ======================= ===================================================================

    A task has outcomes only if their mean is its main score; this excludes a mean over several
    subsets, F1, and others.
    """

    def __init__(self) -> None:
        self._draws: dict[bytes, list[Array]] = {}  # outcomes of every draw, by their items

    def watch(self, task: Any) -> None:
        """Observe this task object, which must not be used for another run."""
        main_score = task.metadata.main_score
        see: Callable[..., None]
        match task.metadata.type:
            case "Classification":
                method, see = "_calculate_scores", self._see_classes
            case "STS":
                method, see = "_calculate_scores", self._see_grades
            case "PairClassification":
                method, see = "_compute_metrics", self._see_pairs
            case "Retrieval" | "Reranking":
                method, see = "task_specific_scores", partial(self._see_queries, main_score)
            case _:
                return
        score = getattr(task, method, None)
        if score is None:
            return

        def observed(*args: Any, **keywords: Any) -> Any:
            see(*args)
            return score(*args, **keywords)

        setattr(task, method, observed)

    def outcomes(self, score: float, draws: Sequence[float] = ()) -> Array | None:
        """Outcomes whose mean is this score, from the draws of a clustering if there are any; None
        if there are none.
        """
        outcomes = [np.mean(draws_of_items, axis=0) for draws_of_items in self._draws.values()]
        if draws and not outcomes:
            outcomes = [measures.draw_outcomes(draws)]
        joined = np.concatenate(outcomes or [np.empty(0)])
        is_mean = len(joined) > 1 and abs(joined.mean() - score) <= TOLERANCE
        return joined if is_mean else None

    def _add(self, items: ArrayLike, outcomes: Array) -> None:
        self._draws.setdefault(np.asarray(items).tobytes(), []).append(outcomes)

    def _see_classes(self, labels: ArrayLike, predicted: ArrayLike) -> None:
        self._add(labels, (np.asarray(labels) == np.asarray(predicted)).astype(np.float64))

    def _see_queries(
        self, main_score: str, scores: Mapping[str, Mapping[str, float]], *_: Any
    ) -> None:
        name = main_score
        for prefix, prefix_per_query in _PER_QUERY.items():
            if main_score.startswith(prefix):
                name = main_score.replace(prefix, prefix_per_query)
        queries = sorted(query for query, query_scores in scores.items() if name in query_scores)
        if queries:
            self._add(queries, np.array([scores[query][name] for query in queries]))

    def _see_grades(self, scores: Mapping[str, Sequence[float]], grades: Sequence[float]) -> None:
        cosines = np.array(scores["cosine_scores"])
        self._add(grades, measures.correlation_outcomes(cosines, np.array(grades)))

    def _see_pairs(self, scores: Mapping[str, Sequence[float]], labels: Sequence[int]) -> None:
        from sklearn.metrics import average_precision_score

        similarities = [
            np.array(scores[name]) * sign
            for name, sign in _SIMILARITIES.items()
            if scores.get(name) is not None
        ]
        best = max(similarities, key=lambda values: average_precision_score(labels, values))
        self._add(labels, measures.precision_outcomes(best, np.array(labels)))


@dataclass
class EncoderCalls:
    """The calls of the encoder in a run: the role of each (``query``, ``document`` or none) and its
    number of texts.
    """

    calls: list[tuple[str | None, int]] = field(default_factory=list)
    observer: Observer = field(default_factory=Observer)  # of the predictions in this run

    def scored_units(self, kind: str) -> int:
        """Number of texts, pairs or queries that the score of a task of this kind is about."""
        counts = [count for _, count in self.calls]
        if kind == "classification" and len(counts) % 2 == 0:
            return sum(counts[1::2])  # training texts, test texts, and so on
        queries = sum(count for role, count in self.calls if role == "query")
        if queries:
            return queries
        if kind in ("sts", "pair_classification"):
            return sum(counts) // 2
        return sum(counts)


class Columns:
    """A split of a data set as lists, with the part of ``datasets.Dataset`` that a classification
    uses.
    """

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def select(self, rows: Sequence[int]) -> Columns:
        """These rows, in this order."""
        selected = {}
        for name, values in self._columns.items():
            selected[name] = [values[row] for row in rows]
        return Columns(selected)


def import_mteb() -> Any:
    """The benchmark; a `ConfigError` if it is not installed."""
    try:
        with _isolated():
            import mteb
    except ImportError:
        raise ConfigError("Tasks 'mteb:...' need mteb: pip install 'daskmetrics[mteb]'") from None
    return mteb


def make(target: str) -> Any:
    """Create a task from its name in the benchmark or from ``package.module:Class``; no data is
    loaded.
    """
    mteb = import_mteb()
    module, _, name = target.partition(":")
    with _isolated():
        if name:
            try:
                return getattr(import_module(module), name)()
            except (ImportError, AttributeError) as error:
                raise ConfigError(
                    f"Task 'mteb:{target}' cannot be imported: {error}. Write MODULE:CLASS."
                ) from None
        try:
            return mteb.get_task(target)
        except KeyError as error:
            raise ConfigError(
                f"The benchmark has no task '{target}'. {str(error.args[0])[:300]}"
            ) from None


def declaration_of(task: Any) -> Declaration:
    """What a task declares, or its class."""
    metadata = task.metadata
    return Declaration(
        {name: tuple(codes) for name, codes in metadata.hf_subsets_to_langscripts.items()},
        tuple(metadata.eval_splits),
        getattr(task, "samples_per_label", Declaration.samples),
        getattr(task, "n_experiments", Declaration.experiments),
    )


def write_declarations(path: Path) -> None:
    """Write what mteb declares of all its tasks."""
    import_mteb()
    from mteb.get_tasks import _TASKS_REGISTRY

    declarations = {name: declaration_of(task) for name, task in _TASKS_REGISTRY.items()}
    atomic_write(path, DECLARATIONS.dump_json(declarations))


def content_of(target: str) -> Key:
    """Key of the data of a task: of its files if they are in a local folder, and of its metadata."""
    dataset = make(target).metadata.dataset
    folder = Path(str(dataset["path"]))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return content_key(
        dict(dataset), [(str(path.relative_to(folder)), _digest(path)) for path in files]
    )


@lru_cache(maxsize=4)
def load(target: str, content: Key | None = None, selection: Selection | None = None) -> Any:
    """The task with its data, once per process; only copies of it are run. A selection restricts
    data and scores.
    """
    task = make(target)
    if selection:
        task.hf_subsets = list(selection.subsets)
        task.filter_eval_splits(list(selection.splits))
    with _isolated():
        import datasets

        datasets.disable_progress_bars()
        folder = cache_folder() / "datasets" / content if content else None
        with _dataset_cache(folder):
            task.load_data()
    from mteb.abstasks import AbsTaskClassification

    if isinstance(task, AbsTaskClassification):
        task.dataset = _eager(task.dataset)
    return task


def texts_of(
    target: str, content: Key | None = None, selection: Selection | None = None
) -> tuple[tuple[str, Role | None], ...]:
    """Every distinct text and role that the benchmark gives to an encoder, in its order."""
    seen: dict[tuple[str, Role | None], None] = {}

    def collect(batch: list[str], role: Role | None) -> NDArray[np.float32]:
        seen.update(dict.fromkeys((text, role) for text in batch))
        # distinct vectors: probes reject constant features
        return (
            np.random.default_rng(len(seen))
            .normal(size=(len(batch), _DIMENSIONS))
            .astype(np.float32)
        )

    run(target, collect, content, selection=selection)
    return tuple(seen)


def run(
    target: str,
    embed: Embed,
    content: Key | None = None,
    selection: Selection | None = None,
    similarity: str = "cosine",
) -> tuple[Any, EncoderCalls]:
    """Run a task with a function as its encoder; returns the benchmark's ``TaskResult`` and the
    calls.

    The similarity of vectors is ``cosine`` or ``dot``.
    """
    mteb = import_mteb()
    calls = EncoderCalls()
    original = load(target, content, selection)
    with _isolated():
        task = copy.copy(original)
        task.rng_state, task.np_rng = copy.deepcopy((original.rng_state, original.np_rng))
        calls.observer.watch(task)
        results = mteb.evaluate(
            _encoder(embed, calls, similarity),
            task,
            cache=None,
            co2_tracker=False,
            show_progress_bar=False,
            encode_kwargs={"batch_size": BATCH_SIZE, "show_progress_bar": False},
        )
    return results.task_results[0], calls


def _eager(dataset: Any) -> Any:
    """Splits, or subsets of splits, as `Columns`."""
    if hasattr(dataset, "column_names") and not isinstance(dataset, dict):
        return Columns({name: list(dataset[name]) for name in dataset.column_names})
    return {name: _eager(split) for name, split in dataset.items()}


def _encoder(embed: Embed, calls: EncoderCalls, similarity: str) -> Any:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

    class Lookup(AbsEncoder):  # type: ignore[misc]
        """An encoder of the benchmark."""

        def __init__(self) -> None:
            self.model = None
            self.mteb_model_meta = ModelMeta.create_empty(
                {
                    "name": "daskmetrics/lookup",
                    "revision": "1",
                    "similarity_fn_name": ScoringFunction(similarity),
                }
            )

        def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> NDArray[np.float32]:
            role = prompt_type.value if prompt_type else None
            vectors = np.concatenate([embed(list(batch["text"]), role) for batch in inputs])
            calls.calls.append((role, len(vectors)))
            return vectors

    return Lookup()


@contextmanager
def _dataset_cache(folder: Path | None) -> Iterator[None]:
    """Let ``datasets`` cache in this folder meanwhile; None keeps its default."""
    from datasets import config

    before = config.HF_DATASETS_CACHE
    config.HF_DATASETS_CACHE = folder or before
    try:
        yield
    finally:
        config.HF_DATASETS_CACHE = before


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _isolated() -> Iterator[None]:
    """Restore the global random generators afterwards, and ignore warnings of the benchmark."""
    states = random.getstate(), np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
