"""Tasks of the Massive Text Embedding Benchmark, scored by the benchmark itself on embeddings made elsewhere.

What a task's texts are is written down once, in the cache folder; who encodes them needs the benchmark no more. So one
forward pass of a checkpoint serves the scores of all its layers, and only what scores imports the benchmark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core._files import atomic_write, cache_folder
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Key, content_key
from daskmetrics.tasks import _results as results
from daskmetrics.tasks._presets import LAYER_BY_LAYER
from daskmetrics.tasks._task import Embeddings, Pooling, Score

_MAIN_SCORES: Mapping[str, str] = {
    "classification": "accuracy",
    "clustering": "v_measure",
    "pair_classification": "max_ap",
    "reranking": "map_at_1000",
    "retrieval": "ndcg_at_10",
    "sts": "cosine_spearman",
}


@dataclass(frozen=True)
class Listed:
    """What the benchmark says of a task without its data: number of texts, and characters in all."""

    texts: int
    characters: int


@dataclass(frozen=True)
class MtebTask:
    """One task of the benchmark; nothing is imported or loaded before its texts are asked for.

    Attributes
    ----------
    place : str
        As the benchmark calls it, such as ``Banking77Classification``; or ``package.module:Class`` of a task of one's
        own, a subclass of one of ``mteb.abstasks``.
    """

    place: str
    pooling: Pooling | None = None

    @property
    def benchmark_name(self) -> str:
        """What results are called in the benchmark's files."""
        return self.place.rpartition(":")[2]

    @property
    def name(self) -> str:
        return f"mteb:{self.benchmark_name}"

    @cached_property
    def kind(self) -> str:
        """In our words; ``benchmark`` where the benchmark is not installed or has no word for it."""
        if found := LAYER_BY_LAYER.get(self.benchmark_name):
            return found
        if self._is_own:
            from daskmetrics.tasks import _benchmark as benchmark

            return _snake(str(benchmark.make(self.place).metadata.type))
        statistics = _statistics(self.benchmark_name)
        return _snake(statistics.parent.name) if statistics else "benchmark"

    @property
    def main_score(self) -> str:
        return _MAIN_SCORES.get(self.kind, "main_score")

    @property
    def description(self) -> str:
        return f"{self.benchmark_name} of MTEB"

    @cached_property
    def key(self) -> Key:
        # a release of the benchmark pins the revision of each data set
        return content_key("task", "mteb", _version(), self.place, self.pooling, *filter(None, [self.content]))

    @cached_property
    def content(self) -> Key | None:
        """Of the data set of a task of one's own, so that another content is another task."""
        from daskmetrics.tasks import _benchmark as benchmark

        return benchmark.content(self.place) if self._is_own else None

    @property
    def is_local(self) -> bool:
        return self._noted.is_file()

    @property
    def listed(self) -> Listed | None:
        """Its size as the benchmark lists it; None where it does not."""
        statistics = _statistics(self.benchmark_name)
        return _listed(statistics) if statistics else None

    def texts(self) -> Sequence[str]:
        """Every distinct text that the benchmark hands to an encoder.

        Raises
        ------
        ConfigError
            If the benchmark is not installed, or the task's data is neither here nor to be had.
        """
        return _read_texts(self._noted) if self.is_local else self.fetch()

    def fetch(self) -> Sequence[str]:
        """Load the task's data, from the hub if it is not cached, and write its texts down for those who encode them.

        Raises
        ------
        ConfigError
            As `texts`.
        """
        from daskmetrics.tasks import _benchmark as benchmark

        try:
            found = benchmark.texts_of(self.place, self.content)
        except ConfigError:
            raise
        except Exception as error:  # whatever the benchmark and the hub make of data that is not there
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"The data of '{self.name}' is not here and cannot be loaded ({type(error).__name__}: {reason}). "
                "Fetch it where there is a network, with the same cache folders: "
                f"daskmetrics prefetch --task mteb:{self.place}"
            ) from None
        self._noted.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._noted, json.dumps(found))
        return found

    def evaluate(self, embeddings: Embeddings, seed: int) -> Score:
        """The benchmark's main score; it draws its own samples from its own fixed seed, so `seed` is not used.

        Of the error only the order of magnitude is known, since the benchmark tells no more: of a classification that
        of its test texts and its ten draws; of correlations that of Bonett and Wright (2000); of clusterings the spread
        of the draws; else at most ``sqrt(v (1 - v) / n)``, of a mean over n pairs or queries of values in [0, 1].

        Raises
        ------
        DataError
            If the embeddings do not fit the texts, or the benchmark gives no number.
        """
        from daskmetrics.tasks import _benchmark as benchmark

        rows = _rows(self._noted) if self.is_local else {text: row for row, text in enumerate(self.texts())}
        if embeddings.ndim != 2 or len(embeddings) != len(rows):
            raise DataError(f"Task '{self.name}' wants embeddings of shape ({len(rows)}, D), got {embeddings.shape}.")
        table = np.asarray(embeddings, dtype=np.float32)

        def look_up(batch: list[str]) -> NDArray[np.float32]:
            try:
                return table[[rows[text] for text in batch]]
            except KeyError:
                raise DataError(
                    f"The data of '{self.name}' has changed. Remove '{self._noted}' and run again."
                ) from None

        result, encoded = benchmark.run(self.place, look_up, self.content)
        plain = results.plain(json.loads(result.model_dump_json()))
        return results.score(plain, self.kind, encoded.judged(self.kind))

    @property
    def _is_own(self) -> bool:
        return ":" in self.place

    @property
    def _noted(self) -> Path:
        """Where its texts are written down."""
        return cache_folder() / "tasks" / f"{self.key}.json"


def _snake(kind: str) -> str:
    """Our word for the benchmark's.

    >>> [_snake(kind) for kind in ("STS", "PairClassification")]
    ['sts', 'pair_classification']
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()


@lru_cache(maxsize=4)
def _read_texts(path: Path) -> tuple[str, ...]:
    return tuple(json.loads(path.read_text(encoding="utf-8")))


@lru_cache(maxsize=4)
def _rows(path: Path) -> Mapping[str, int]:
    return {text: row for row, text in enumerate(_read_texts(path))}


@lru_cache
def _statistics(name: str) -> Path | None:
    """The file in which the benchmark lists the sizes of a task; found without importing it."""
    spec = find_spec("mteb")
    places = spec.submodule_search_locations if spec else None
    if not places or not re.fullmatch(r"[\w.() -]+", name):
        return None
    return next(Path(places[0], "descriptive_stats").glob(f"*/{name}.json"), None)


@lru_cache
def _listed(path: Path) -> Listed:
    splits = json.loads(path.read_text(encoding="utf-8")).values()
    statistics = [part for split in splits for name, part in split.items() if name.endswith("text_statistics") and part]
    statistics += [
        part for split in splits for name, part in split.items() if re.fullmatch("text[12]_statistics", name)
    ]
    unique = {id(part): part for part in statistics}.values()
    return Listed(*(sum(part[field] for part in unique) for field in ("unique_texts", "total_text_length")))


def _version() -> str | None:
    try:
        return version("mteb")
    except PackageNotFoundError:
        return None
