"""The one file that imports mteb: its tasks are loaded once per process and run on embeddings made elsewhere.

A run of the benchmark needs an encoder. Here it is a function from texts to vectors: the first time it only collects
the texts, later it looks up their vectors. The benchmark has some behaviour that needs care:

- a task object keeps its random generator, so a second run of the same object gives other scores: each run gets a copy
  whose generators are as they were after loading;
- creating a task seeds the global generators of ``random``, ``numpy`` and ``torch``: their state is restored;
- ``datasets`` reads a column row by row, and a classifier does so for every fit: columns of classifications are lists;
- ``datasets`` caches a local folder whose README names its files by the name of the folder alone, and so confuses it
  with other data of that name: each content gets its own cache;
- its cache of results is not safe with several writers: it is not used, and only the driver exports.
"""

from __future__ import annotations

import copy
import hashlib
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core._files import cache_folder
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key
from daskmetrics.tasks._mteb_outcomes import Observer
from daskmetrics.tasks._mteb_subsets import Declaration, Selection, declaration
from daskmetrics.tasks._task import Role

BATCH_SIZE = 1024  # texts per call of the encoder; does not change the scores
_DIMENSIONS = 8  # of the vectors while texts are collected; any number works

Embed = Callable[[list[str], Role | None], NDArray[np.float32]]


@dataclass
class EncoderCalls:
    """The calls of the encoder in a run: the role of each (``query``, ``document`` or none) and its number of texts."""

    calls: list[tuple[str | None, int]] = field(default_factory=list)
    observer: Observer = field(default_factory=Observer)  # of the predictions in this run

    def scored_units(self, kind: str) -> int:
        """Number of texts, pairs or queries that the score of a task of this kind is about."""
        queries = sum(n for role, n in self.calls if role == "query")
        if kind == "classification" and len(self.calls) % 2 == 0:  # training texts, test texts, and so on
            return sum(n for _, n in self.calls[1::2])
        return queries or sum(n for _, n in self.calls) // (2 if kind in ("sts", "pair_classification") else 1)


class Columns:
    """A split of a data set as lists, with the part of ``datasets.Dataset`` that a classification uses."""

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
        return Columns({name: [values[row] for row in rows] for name, values in self._columns.items()})


def import_mteb() -> Any:
    """The benchmark; a `ConfigError` if it is not installed."""
    try:
        with _isolated():
            import mteb
    except ImportError:
        raise ConfigError("Tasks 'mteb:...' need mteb: pip install 'daskmetrics[mteb]'") from None
    return mteb


def make(target: str) -> Any:
    """Create a task from its name in the benchmark or from ``package.module:Class``; no data is loaded."""
    mteb = import_mteb()
    module, _, name = target.partition(":")
    with _isolated():
        if name:
            try:
                return getattr(import_module(module), name)()
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"Task 'mteb:{target}' cannot be imported: {error}. Write MODULE:CLASS.") from None
        try:
            return mteb.get_task(target)
        except KeyError as error:
            raise ConfigError(f"The benchmark has no task '{target}'. {str(error.args[0])[:300]}") from None


def declaration_of(target: str) -> Declaration:
    """What a task declares, from the benchmark itself."""
    task = make(target)
    draws = {name: getattr(task, name) for name in ("samples_per_label", "n_experiments") if hasattr(task, name)}
    return declaration(task.metadata.hf_subsets_to_langscripts, task.metadata.eval_splits, draws)


def content_of(target: str) -> Key:
    """Key of the data of a task: of its files if they are in a local folder, and of its metadata."""
    dataset = make(target).metadata.dataset
    folder = Path(str(dataset["path"]))
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return content_key(dict(dataset), [(str(path.relative_to(folder)), _digest(path)) for path in files])


@lru_cache(maxsize=4)
def load(target: str, content: Key | None = None, selection: Selection | None = None) -> Any:
    """The task with its data, once per process; only copies of it are run. A selection restricts data and scores."""
    task = make(target)
    if selection:
        task.hf_subsets = list(selection.subsets)
        task.filter_eval_splits(list(selection.splits))
    with _isolated():
        import datasets

        datasets.disable_progress_bars()
        with _dataset_cache(cache_folder() / "datasets" / content if content else None):
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
        return np.random.default_rng(len(seen)).normal(size=(len(batch), _DIMENSIONS)).astype(np.float32)

    run(target, collect, content, selection=selection)
    return tuple(seen)


def run(
    target: str,
    embed: Embed,
    content: Key | None = None,
    selection: Selection | None = None,
    similarity: str = "cosine",
) -> tuple[Any, EncoderCalls]:
    """Run a task with a function as its encoder; returns the benchmark's ``TaskResult`` and the calls.

    The similarity of vectors is ``cosine`` or ``dot``.
    """
    mteb, calls = import_mteb(), EncoderCalls()
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
    return {name: _eager(part) for name, part in dataset.items()}


def _encoder(embed: Embed, calls: EncoderCalls, similarity: str) -> Any:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder
    from mteb.models.model_meta import ScoringFunction

    class Lookup(AbsEncoder):  # type: ignore[misc]
        """An encoder of the benchmark."""

        def __init__(self) -> None:
            self.model = None
            self.mteb_model_meta = ModelMeta.create_empty(
                {"name": "daskmetrics/lookup", "revision": "1", "similarity_fn_name": ScoringFunction(similarity)}
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
