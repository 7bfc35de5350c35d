"""Tasks of the Massive Text Embedding Benchmark, scored by the benchmark itself on embeddings made elsewhere.

The texts of a task are written once to the cache folder, so that only scoring imports the benchmark, and one forward
pass of a checkpoint serves the scores of all its layers.
"""

from __future__ import annotations

import copy
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
from daskmetrics.tasks import _mteb_results as results
from daskmetrics.tasks import _mteb_run as benchmark
from daskmetrics.tasks._task import EmbeddingArray, Pooling, Role, Score

_MAIN_SCORES: Mapping[str, str] = {
    "classification": "accuracy",
    "clustering": "v_measure",
    "pair_classification": "max_ap",
    "reranking": "map_at_1000",
    "retrieval": "ndcg_at_10",
    "sts": "cosine_spearman",
}


@dataclass(frozen=True)
class TextStatistics:
    """The size of a task as the benchmark lists it: the number of texts and of their characters."""

    texts: int
    characters: int


@dataclass(frozen=True)
class MtebTask:
    """One task of the benchmark; nothing is imported or loaded before its texts are read.

    The target is the benchmark's name, such as ``Banking77Classification``; or ``package.module:Class`` of a custom
    task, a subclass of one of ``mteb.abstasks``.
    """

    target: str
    pooling: Pooling | None = None
    similarity: str = "cosine"  # of vectors, or ``dot``: the model's, so that it is not part of the task's key

    def compared_by(self, similarity: str) -> MtebTask:
        """This task with vectors compared by ``cosine`` or ``dot``; what is cached of it stays, such as its key."""
        twin = copy.copy(self)
        object.__setattr__(twin, "similarity", similarity)
        return twin

    @property
    def benchmark_name(self) -> str:
        """The name in result files of the benchmark."""
        return self.target.rpartition(":")[2]

    @property
    def name(self) -> str:
        return f"mteb:{self.benchmark_name}"

    @cached_property
    def kind(self) -> str:
        """As in `daskmetrics.tasks.Task`; ``benchmark`` if the benchmark is not installed or does not know the task."""
        if kind := LAYER_BY_LAYER.get(self.benchmark_name):
            return kind
        if self._is_custom:
            return _snake(str(benchmark.make(self.target).metadata.type))
        file = _statistics_file(self.benchmark_name)
        return _snake(file.parent.name) if file else "benchmark"

    @property
    def main_score(self) -> str:
        return _MAIN_SCORES.get(self.kind, "main_score")

    @property
    def description(self) -> str:
        return f"{self.benchmark_name} of MTEB"

    @cached_property
    def key(self) -> Key:
        try:
            release = version("mteb")  # it pins the revision of each data set
        except PackageNotFoundError:
            release = None
        return content_key("task", "mteb", release, self.target, self.pooling, *filter(None, [self.content]))

    @cached_property
    def content(self) -> Key | None:
        """Key of the data set of a custom task: other data make another task."""
        return benchmark.content_of(self.target) if self._is_custom else None

    @property
    def is_local(self) -> bool:
        return self._texts_file.is_file()

    @property
    def statistics(self) -> TextStatistics | None:
        """The size that the benchmark lists; None if it lists none."""
        file = _statistics_file(self.benchmark_name)
        return _read_statistics(file) if file else None

    def texts(self) -> Sequence[str]:
        """Every text that the benchmark hands to an encoder, once in each of its roles."""
        return self._read()[0]

    def roles(self) -> Sequence[Role | None]:
        """The role of each text, as the benchmark tells it to an encoder."""
        return self._read()[1]

    def _read(self) -> tuple[Sequence[str], Sequence[Role | None]]:
        if not self.is_local:
            self.fetch()
        return _read_texts(self._texts_file)

    def fetch(self) -> None:
        """Load the data, from the hub if it is not cached, and write texts and roles to the cache folder."""
        try:
            texts = benchmark.texts_of(self.target, self.content)
        except ConfigError:
            raise
        except Exception as error:  # the benchmark and the hub fail in many ways
            reason = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"The data of '{self.name}' is not cached and cannot be loaded ({type(error).__name__}: {reason}). "
                "Fetch it on a machine with a network and the same cache folders: "
                f"daskmetrics prefetch --task mteb:{self.target}"
            ) from None
        self._texts_file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._texts_file, json.dumps(list(zip(*texts, strict=True))))

    def evaluate(self, embeddings: EmbeddingArray, seed: int) -> Score:
        """The benchmark's main score; it draws its own samples from its own fixed seed, so `seed` is not used.

        The error is an estimate, because the benchmark does not report one. Classifications: from the number of test
        texts and the spread of the ten draws. Correlations: Bonett and Wright (2000). Clusterings: the spread of the
        draws. Others: at most ``sqrt(v (1 - v) / n)``, for a mean over n pairs or queries of values in [0, 1].
        """
        self._read()
        rows = _rows(self._texts_file)
        if embeddings.ndim != 2 or len(embeddings) != len(rows):
            raise DataError(f"Task '{self.name}' needs embeddings of shape ({len(rows)}, D), got {embeddings.shape}.")
        table = np.asarray(embeddings, dtype=np.float32)

        def look_up(batch: list[str], role: Role | None) -> NDArray[np.float32]:
            try:
                return table[[rows[text, role] for text in batch]]
            except KeyError:
                raise DataError(
                    f"The data of '{self.name}' has changed. Remove '{self._texts_file}' and run again."
                ) from None

        result, calls = benchmark.run(self.target, look_up, self.content, self.similarity)
        content = results.reduce(json.loads(result.model_dump_json()))
        return results.score(content, self.kind, calls.scored_units(self.kind))

    @property
    def _is_custom(self) -> bool:
        return ":" in self.target

    @property
    def _texts_file(self) -> Path:
        """The file with its texts in the cache folder."""
        return cache_folder() / "tasks" / f"{self.key}-roles.json"


def _snake(kind: str) -> str:
    """A kind in snake case.

    >>> [_snake(kind) for kind in ("STS", "PairClassification")]
    ['sts', 'pair_classification']
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()


@lru_cache(maxsize=4)
def _read_texts(path: Path) -> tuple[tuple[str, ...], tuple[Role | None, ...]]:
    texts, roles = json.loads(path.read_text(encoding="utf-8"))
    return tuple(texts), tuple(roles)


@lru_cache(maxsize=4)
def _rows(path: Path) -> Mapping[tuple[str, Role | None], int]:
    return {pair: row for row, pair in enumerate(zip(*_read_texts(path), strict=True))}


@lru_cache
def _statistics_file(name: str) -> Path | None:
    """The benchmark's file with the sizes of a task; found without importing the benchmark."""
    spec = find_spec("mteb")
    folders = spec.submodule_search_locations if spec else None
    if not folders or not re.fullmatch(r"[\w.() -]+", name):
        return None
    return next(Path(folders[0], "descriptive_stats").glob(f"*/{name}.json"), None)


@lru_cache
def _read_statistics(path: Path) -> TextStatistics:
    splits = json.loads(path.read_text(encoding="utf-8")).values()
    parts = [
        part
        for split in splits
        for name, part in split.items()
        if part and re.fullmatch(r"(.*text|text[12])_statistics", name)
    ]
    return TextStatistics(*(sum(part[field] for part in parts) for field in ("unique_texts", "total_text_length")))


_LAYER_BY_LAYER = {
    "classification": (
        "AmazonCounterfactualClassification", "AmazonReviewsClassification", "Banking77Classification",
        "EmotionClassification", "MTOPDomainClassification", "MTOPIntentClassification", "MassiveIntentClassification",
        "MassiveScenarioClassification", "ToxicConversationsClassification", "TweetSentimentExtractionClassification",
    ),
    "clustering": (
        "ArxivClusteringS2S", "BiorxivClusteringS2S", "MedrxivClusteringS2S", "RedditClustering",
        "StackExchangeClustering", "TwentyNewsgroupsClustering",
    ),
    "pair_classification": ("SprintDuplicateQuestions", "TwitterSemEval2015", "TwitterURLCorpus"),
    "reranking": ("AskUbuntuDupQuestions", "MindSmallReranking", "SciDocsRR", "StackOverflowDupQuestions"),
    "sts": ("BIOSSES", "SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16", "STS17", "STSBenchmark"),
}  # fmt: skip

LAYER_BY_LAYER: Mapping[str, str] = dict(
    sorted((name, kind) for kind, names in _LAYER_BY_LAYER.items() for name in names)
)
"""Name and kind of the 32 tasks of "Layer by Layer" (Skean et al., 2025)."""

PRESETS: Mapping[str, tuple[str, ...]] = {"preset:layer-by-layer-32": tuple(f"mteb:{name}" for name in LAYER_BY_LAYER)}
