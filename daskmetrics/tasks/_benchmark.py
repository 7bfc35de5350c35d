"""The one file that touches mteb: its tasks loaded once per process, and run on embeddings that were made elsewhere.

A run of the benchmark needs an encoder, which here is a function from texts to vectors: once it only notes the texts,
afterwards it looks their vectors up. What the benchmark needs for that, and does not say:

- a task object draws from its own generator, so that a second run of the same object gives other scores: each run gets
  a copy whose generators are as they were after loading;
- making a task seeds the global generators of ``random``, ``numpy`` and ``torch``: they are put back;
- ``datasets`` reads a column row by row, and a classifier does so for every fit: columns of classifications are lists;
- ``datasets`` keeps a local folder whose README names its files by the folder's name alone, so that other data of that
  name is taken for it: each content has a cache of its own;
- its cache of results is not safe with several writers: it is left out, and only the driver exports.
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

AT_ONCE = 1024  # texts that the benchmark hands over at a time; it changes no score
_DIMENSIONS = 8  # of the vectors while texts are noted; any will do

Embed = Callable[[list[str]], NDArray[np.float32]]


@dataclass
class Encoded:
    """What a run handed to its encoder: the role of each call (``query``, ``document`` or none) and its texts."""

    calls: list[tuple[str | None, int]] = field(default_factory=list)

    def judged(self, kind: str) -> int:
        """How many texts, pairs or queries the score of a task of this kind is about."""
        queries = sum(n for role, n in self.calls if role == "query")
        if kind == "classification" and len(self.calls) % 2 == 0:  # what is learnt from, what is judged, and so on
            return sum(n for _, n in self.calls[1::2])
        return queries or sum(n for _, n in self.calls) // (2 if kind in ("sts", "pair_classification") else 1)


class Columns:
    """A split of a data set as plain lists, with as much of ``datasets.Dataset`` as a classification asks for."""

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


def installed() -> Any:
    """The benchmark.

    Raises
    ------
    ConfigError
        If it is not installed.
    """
    try:
        with _undisturbed():
            import mteb
    except ImportError:
        raise ConfigError("Tasks 'mteb:...' need the benchmark itself: pip install 'daskmetrics[mteb]'") from None
    return mteb


def make(place: str) -> Any:
    """A new task object, from its name in the benchmark or from ``package.module:Class``; nothing is loaded.

    Raises
    ------
    ConfigError
        If there is no such task.
    """
    mteb = installed()
    module, _, name = place.partition(":")
    with _undisturbed():
        if name:
            try:
                return getattr(import_module(module), name)()
            except (ImportError, AttributeError) as error:
                raise ConfigError(f"Task 'mteb:{place}' cannot be imported: {error}. Wanted is MODULE:CLASS.") from None
        try:
            return mteb.get_task(place)
        except KeyError as error:
            raise ConfigError(f"The benchmark has no task '{place}'. {str(error.args[0])[:300]}") from None


def content(place: str) -> Key:
    """Of the files of a task whose data set is a local folder, and of what it says of any other."""
    dataset = make(place).metadata.dataset
    folder = Path(str(dataset["path"]))
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return content_key(dict(dataset), [(str(path.relative_to(folder)), _digest(path)) for path in files])


@lru_cache(maxsize=4)
def loaded(place: str, content: Key | None = None) -> Any:
    """The task with its data; never run itself, only copies of it.

    Parameters
    ----------
    place : str
    content : Key, optional
        Of a task of one's own (`content`): what `datasets` makes of such data is kept by it.
    """
    task = make(place)
    with _undisturbed():
        import datasets

        datasets.disable_progress_bars()
        with _cached_below(cache_folder() / "datasets" / content if content else None):
            task.load_data()
    from mteb.abstasks import AbsTaskClassification

    if isinstance(task, AbsTaskClassification):
        task.dataset = _eager(task.dataset)
    return task


def texts_of(place: str, content: Key | None = None) -> tuple[str, ...]:
    """Every distinct text that the benchmark hands to an encoder, in the order in which it does."""
    seen: dict[str, None] = {}

    def note(batch: list[str]) -> NDArray[np.float32]:
        seen.update(dict.fromkeys(batch))
        # distinct vectors: probes refuse features that do not vary
        return np.random.default_rng(len(seen)).normal(size=(len(batch), _DIMENSIONS)).astype(np.float32)

    run(place, note, content)
    return tuple(seen)


def run(place: str, embed: Embed, content: Key | None = None) -> tuple[Any, Encoded]:
    """The benchmark's ``TaskResult`` for an encoder that is only a function, and what it was asked to encode."""
    mteb, encoded = installed(), Encoded()
    pristine = loaded(place, content)
    with _undisturbed():
        task = copy.copy(pristine)
        task.rng_state, task.np_rng = copy.deepcopy((pristine.rng_state, pristine.np_rng))
        results = mteb.evaluate(
            _encoder(embed, encoded),
            task,
            cache=None,
            co2_tracker=False,
            show_progress_bar=False,
            encode_kwargs={"batch_size": AT_ONCE, "show_progress_bar": False},
        )
    return results.task_results[0], encoded


def _eager(dataset: Any) -> Any:
    """Splits, or subsets of splits, as `Columns`."""
    if hasattr(dataset, "column_names") and not isinstance(dataset, dict):
        return Columns({name: list(dataset[name]) for name in dataset.column_names})
    return {name: _eager(part) for name, part in dataset.items()}


def _encoder(embed: Embed, encoded: Encoded) -> Any:
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder

    class Lookup(AbsEncoder):  # type: ignore[misc]
        """What the benchmark takes for a model."""

        def __init__(self) -> None:
            self.model = None
            self.mteb_model_meta = ModelMeta.create_empty({"name": "daskmetrics/lookup", "revision": "1"})

        def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> NDArray[np.float32]:
            vectors = np.concatenate([embed(list(batch["text"])) for batch in inputs])
            encoded.calls.append((prompt_type.value if prompt_type else None, len(vectors)))
            return vectors

    return Lookup()


@contextmanager
def _cached_below(folder: Path | None) -> Iterator[None]:
    """What ``datasets`` prepares meanwhile lies in this folder; where it always does, if none is given."""
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
def _undisturbed() -> Iterator[None]:
    """Global generators are afterwards what they were, and the benchmark's own warnings are its own affair."""
    states = random.getstate(), np.random.get_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
