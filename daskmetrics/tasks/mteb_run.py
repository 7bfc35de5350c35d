"""The one file that imports mteb: its tasks are loaded once per process and run on embeddings made
elsewhere; and what they declare: a task of many languages has a subset for each.

Importing mteb imports torch, which the driver avoids. So mteb is asked what its tasks declare in a
process of its own, and the cache folder keeps the answer.

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
import random
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter

from daskmetrics.checkpoints.digests import digests_of, files_of
from daskmetrics.core.errors import ConfigError, require_known
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.user_code import load_object
from daskmetrics.domain.outcomes import TOLERANCE
from daskmetrics.tasks import _measures as measures
from daskmetrics.tasks.task import Role, Selection

if TYPE_CHECKING:
    from mteb.abstasks import AbsTask
    from mteb.results import TaskResult

LANGUAGE = "eng"
SPLIT = "test"
ONLY = "default"  #: mteb's name of the subset of a task that has only one
BATCH_SIZE = 1024  # texts per call of the encoder; does not change the scores
_DIMENSIONS = 8  # of the vectors while texts are collected; any number works

_PER_QUERY = {  # mteb's names of scores, and of the same scores of single queries
    "ndcg_at": "ndcg_cut",
    "map_at": "map_cut",
    "recall_at": "recall",
    "precision_at": "P",
}
_SEARCHES = ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking")
_FITTED = ("classification", "multilabel_classification", "regression")  # kinds with a probe
_SIMILARITIES = {  # and their sign
    "cosine_scores": 1,
    "dot_scores": 1,
    "similarity_scores": 1,
    "manhattan_distances": -1,
    "euclidean_distances": -1,
}

Array = NDArray[np.floating[Any]]
Vectors = NDArray[np.float32]
Embed = Callable[[list[str], Role | None], Vectors]
TextInRole = tuple[str, Role | None]


@dataclass(frozen=True)
class DataSource:
    """The data on which a task is evaluated."""

    target: str  # the task's name in the benchmark, or ``package.module:Class``
    selection: Selection
    content: Key | None  # of the data of a task that is not the benchmark's own


@dataclass(frozen=True)
class Declaration:
    """What mteb declares of a task."""

    languages: Mapping[str, tuple[str, ...]]  # of each subset, such as eng-Latn
    splits: tuple[str, ...]
    samples: int = 8  # training texts per label that each experiment of a classification draws
    experiments: int = 10

    def select(self, task: str, options: Mapping[str, Sequence[str]]) -> Selection:
        """The chosen splits and subsets.

        By default these are the split ``test`` and the subsets that are all in English.

        A task without the split ``test`` uses all its splits, and one without a subset in English
        all its subsets.
        """
        usual_splits = _chosen((SPLIT,), self.splits) or self.splits
        splits = options.get("split", usual_splits)
        subsets = options.get("subsets", tuple(self.languages))
        for kind, names, valid in (
            ("split", splits, self.splits),
            ("subset", subsets, self.languages),
        ):
            for name in names:
                require_known(f"{kind} of '{task}'", name, valid)
        languages = options.get("languages", ())
        within = [name for name in subsets if self._is_in(name, languages or [LANGUAGE])]
        if languages and not within:
            listing = (f"{name} ({'+'.join(self.languages[name])})" for name in subsets)
            raise ConfigError(
                f"'{task}' has no chosen subset that is only in {'+'.join(languages)}. Name all"
                " languages of a subset, such as eng, or the subset itself. The subsets: "
                f"{', '.join(listing):.300}"
            )
        if within and (languages or "subsets" not in options):
            subsets = within
        return Selection(_chosen(splits, self.splits), _chosen(subsets, self.languages))

    def codes(self, subsets: Iterable[str]) -> set[str]:
        """The languages in these subsets, without scripts."""
        codes = chain.from_iterable(self.languages[name] for name in subsets)
        return {code.partition("-")[0] for code in codes}

    def _is_in(self, subset: str, languages: Sequence[str]) -> bool:
        """Whether a subset has no language but these, with or without scripts."""
        codes = self.languages[subset]
        return all(code in languages or code.partition("-")[0] in languages for code in codes)


def _chosen(names: Sequence[str], valid: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in valid if name in names)


DECLARATIONS = TypeAdapter(dict[str, Declaration])  # by the names of tasks, as they are written


def declared(name: str) -> Declaration | None:
    """What mteb declares of a task; None if it knows none."""
    if package():
        return _declarations().get(name)
    return None


def package() -> Path | None:
    """The folder of the installed mteb; None if it is not installed."""
    spec = find_spec("mteb")
    if spec and spec.origin:
        return Path(spec.origin).parent
    return None


def release() -> str | None:
    """The version of the installed mteb, which pins its data sets."""
    try:
        return version("mteb")
    except PackageNotFoundError:
        return None


@lru_cache
def _declarations() -> Mapping[str, Declaration]:
    """What mteb declares of all tasks, cached."""
    path = cache_folder() / "tasks" / f"mteb-{release()}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        code = (
            "import pathlib, sys\nfrom daskmetrics.tasks.mteb_run import write_declarations\n"
            "write_declarations(pathlib.Path(sys.argv[1]))"
        )
        command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if answer.returncode:
            *_, reason = answer.stderr.strip().split("\n")
            raise ConfigError(
                f"mteb cannot list its tasks: {reason}. See the whole error with: "
                f"{sys.executable} -c 'import mteb'"
            )
    return DECLARATIONS.validate_json(path.read_bytes())


class Observer:
    """Sees one run of a task, and makes outcomes of it.

    It sees the texts that mteb gives to the encoder, and the predictions where it scores them.

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
        # role of the texts (``query``, ``document`` or none) and their number, by call of the
        # encoder
        self.calls: list[tuple[str | None, int]] = []
        self._draws = defaultdict[bytes, list[Any]](list)  # outcomes of each draw, by their items
        self._main_score = ""

    def watch(self, task: AbsTask) -> None:
        """Observe this task object, which must not be used for another run."""
        self._main_score = task.metadata.main_score
        watched: dict[str, tuple[str, Callable[..., None]]] = {
            "Classification": ("_calculate_scores", self._see_classes),
            "STS": ("_calculate_scores", self._see_grades),
            "PairClassification": ("_compute_metrics", self._see_pairs),
            **dict.fromkeys(_SEARCHES, ("task_specific_scores", self._see_queries)),
        }
        method, see = watched.get(task.metadata.type, ("", self._add))
        score = getattr(task, method, None)
        if score is None:
            return

        def observed(*args: object, **keywords: object) -> object:
            see(*args)
            return score(*args, **keywords)

        setattr(task, method, observed)

    def outcomes(self, score: float, draws: Sequence[float]) -> Array | None:
        """Outcomes whose mean is this score, or None.

        Those of a clustering come from its draws.
        """
        outcomes = [np.mean(draws_of_items, axis=0) for draws_of_items in self._draws.values()]
        if draws and not outcomes:
            # of half the items: their deviation is the error of their mean
            deviations = np.array(draws, dtype=np.float64) - np.mean(draws)
            outcomes = [np.mean(draws) + np.sqrt(len(draws)) * deviations]
        joined = np.concatenate(outcomes or [np.empty(0)])
        if len(joined) > 1 and abs(joined.mean() - score) <= TOLERANCE:
            return joined
        return None

    def scored_units(self, kind: str) -> int:
        """Number of texts, pairs or queries behind a score."""
        counts = [count for _, count in self.calls]
        if kind in _FITTED and len(counts) % 2 == 0:
            return sum(counts[1::2])  # training texts, test texts, and so on
        queries = sum(count for role, count in self.calls if role == "query")
        if queries:
            return queries
        texts = sum(counts)
        if kind in ("sts", "pair_classification"):
            return texts // 2
        return texts

    def _add(self, items: ArrayLike, outcomes: Array | None) -> None:
        self._draws[np.asarray(items).tobytes()].append(outcomes)

    def _see_classes(self, labels: ArrayLike, predicted: ArrayLike) -> None:
        right = np.asarray(labels) == np.asarray(predicted)
        self._add(labels, right.astype(np.float64))

    def _see_queries(self, scores: Mapping[str, Mapping[str, float]], *_: object) -> None:
        measure, separator, cut = self._main_score.rpartition("_")
        name = _PER_QUERY.get(measure, measure) + separator + cut
        queries = sorted(query for query in scores if name in scores[query])
        if queries:
            outcomes = [scores[query][name] for query in queries]
            self._add(queries, np.array(outcomes))

    def _see_grades(self, scores: Mapping[str, Sequence[float]], grades: Sequence[float]) -> None:
        cosines = np.array(scores["cosine_scores"])
        score = measures.jackknife(measures.correlation_of, cosines, np.array(grades))
        self._add(grades, score.outcomes)

    def _see_pairs(self, scores: Mapping[str, Sequence[float]], labels: Sequence[int]) -> None:
        from sklearn.metrics import average_precision_score

        similarities = [
            np.array(scores[name]) * sign
            for name, sign in _SIMILARITIES.items()
            if scores.get(name) is not None
        ]
        best = max(similarities, key=partial(average_precision_score, labels))
        score = measures.jackknife(measures.precision_of, best, np.array(labels))
        self._add(labels, score.outcomes)


class Columns(dict[str, list[Any]]):
    """A split of a data set as lists by column.

    It has the part of ``datasets.Dataset`` that a classification uses.
    """

    @property
    def column_names(self) -> Sequence[str]:
        return list(self)

    def __len__(self) -> int:
        return len(next(iter(self.values()), []))

    def select(self, rows: Sequence[int]) -> Columns:
        """These rows, in this order."""
        selected = Columns()
        for name, values in self.items():
            selected[name] = [values[row] for row in rows]
        return selected


def import_mteb() -> Any:
    """The benchmark; a `ConfigError` if it is not installed."""
    try:
        with _isolated():
            import mteb
    except ImportError:
        raise ConfigError("Tasks 'mteb:...' need mteb: pip install 'daskmetrics[mteb]'") from None
    return mteb


def make(target: str) -> Any:
    """Create a task from its name or ``package.module:Class``, without data."""
    mteb = import_mteb()
    with _isolated():
        if ":" in target:
            return load_object(f"Task 'mteb:{target}'", target)()
        try:
            return mteb.get_task(target)
        except KeyError as error:
            raise ConfigError(
                f"The benchmark has no task '{target}'. {str(error.args[0])[:300]}"
            ) from None


def declaration_of(task: AbsTask | type[AbsTask]) -> Declaration:
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
    """Key of a task's metadata and of its files in a local folder."""
    dataset = make(target).metadata.dataset
    (digests,) = digests_of([files_of(Path(str(dataset["path"])))])
    return content_key(dict(dataset), sorted(digests.items()))


@lru_cache(maxsize=4)
def load(source: DataSource) -> AbsTask:
    """The task with its data, once per process; only copies are run."""
    task = make(source.target)
    others = set(task.metadata.modalities) - {"text"}
    if others:
        raise ConfigError(
            f"'mteb:{source.target}' has {' and '.join(sorted(others))} to embed; only tasks of texts"
            " alone can be scored. Leave it out."
        )
    task.hf_subsets = list(source.selection.subsets)
    task.filter_eval_splits(list(source.selection.splits))
    with _isolated():
        import datasets

        datasets.disable_progress_bars()
        usual_cache = datasets.config.HF_DATASETS_CACHE
        if source.content:
            datasets.config.HF_DATASETS_CACHE = cache_folder() / "datasets" / source.content
        try:
            task.load_data()
        finally:
            datasets.config.HF_DATASETS_CACHE = usual_cache
    if _reads_columns(task):
        task.dataset = _eager(task.dataset)
    return task


def _reads_columns(task: AbsTask) -> bool:
    """Whether a task needs nothing of its data set but `Columns`.

    Multilabel tasks, regressions and cross-validations need more.
    """
    from mteb.abstasks import AbsTaskClassification

    if not isinstance(task, AbsTaskClassification) or task.is_cross_validation:
        return False
    return all(
        getattr(type(task), method) is getattr(AbsTaskClassification, method)
        for method in ("_evaluate_subset", "_undersample_data")
    )


def texts_of(source: DataSource) -> tuple[TextInRole, ...]:
    """The distinct texts and roles that the benchmark encodes, in order."""
    seen: dict[TextInRole, None] = {}

    def collect(batch: list[str], role: Role | None) -> Vectors:
        seen.update(dict.fromkeys((text, role) for text in batch))
        # distinct vectors: probes reject constant features
        generator = np.random.default_rng(len(seen))
        return generator.normal(size=(len(batch), _DIMENSIONS)).astype(np.float32)

    run(source, collect)
    return tuple(seen)


def run(
    source: DataSource, embed: Embed, similarity: str = "cosine"
) -> tuple[TaskResult, Observer]:
    """Run a task with a function as its encoder.

    Returns the benchmark's result and what was seen of the run.

    The similarity of vectors is ``cosine`` or ``dot``.
    """
    mteb = import_mteb()
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

    meta = {
        "name": "daskmetrics/lookup",
        "revision": "1",
        "similarity_fn_name": ScoringFunction(similarity),
    }
    observer = Observer()

    class Lookup(AbsEncoder):  # type: ignore[misc]
        """An encoder of the benchmark."""

        model = None
        mteb_model_meta = ModelMeta.create_empty(meta)

        def encode(self, inputs: Any, *, prompt_type: Any = None, **_: object) -> Array:
            role = prompt_type.value if prompt_type else None
            vectors = np.concatenate([embed(list(batch["text"]), role) for batch in inputs])
            observer.calls.append((role, len(vectors)))
            return vectors

    original = load(source)
    with _isolated():
        task = copy.copy(original)
        task.rng_state = copy.deepcopy(original.rng_state)
        task.np_rng = copy.deepcopy(original.np_rng)
        observer.watch(task)
        results = mteb.evaluate(
            Lookup(),
            task,
            cache=None,
            co2_tracker=False,
            show_progress_bar=False,
            encode_kwargs={"batch_size": BATCH_SIZE, "show_progress_bar": False},
        )
    return results.task_results[0], observer


def _eager(dataset: Any) -> Any:
    if not isinstance(dataset, dict):
        return Columns({name: list(dataset[name]) for name in dataset.column_names})
    return {name: _eager(split) for name, split in dataset.items()}


@contextmanager
def _isolated() -> Iterator[None]:
    """Restore the global random generators afterwards, and ignore warnings."""
    state = random.getstate()
    numpy_state = np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
