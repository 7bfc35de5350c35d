"""Tasks of the Massive Text Embedding Benchmark, scored by the benchmark itself on embeddings made
elsewhere.

The texts of a task are written once to the cache folder, so that only scoring imports the
benchmark, and one forward pass of a checkpoint serves the scores of all its layers.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from daskmetrics.core.errors import ConfigError, DataError, require_known
from daskmetrics.core.files import atomic_write, cache_folder
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.main_module import restore_state, state_with_main_object
from daskmetrics.core.user_code import code_key
from daskmetrics.tasks import mteb_results as results
from daskmetrics.tasks import mteb_run as benchmark
from daskmetrics.tasks._measures import mean
from daskmetrics.tasks.mteb_run import DataSource, Declaration, TextInRole, Vectors
from daskmetrics.tasks.task import (
    EmbeddingArray,
    Pooling,
    Role,
    Score,
    Selection,
    Task,
    TextStatistics,
    check_embeddings,
)

_MAIN_SCORES: Mapping[str, str] = {
    "classification": "accuracy",
    "clustering": "v_measure",
    "pair_classification": "max_ap",
    "reranking": "map_at_1000",
    "retrieval": "ndcg_at_10",
    "sts": "cosine_spearman",
}


@dataclass(frozen=True)
class MtebTask(Task):
    """One task of the benchmark, which is imported when texts are read.

    The target is the benchmark's name, such as ``Banking77Classification``; or
    ``package.module:Class`` of a custom task, a subclass of one of ``mteb.abstasks``.
    """

    target: str
    pooling: Pooling | None = None
    chosen: Selection | None = None  # None is the default: English and the split ``test``
    options: str = field(default="", compare=False)  # `chosen` as it is written, in parentheses
    # of vectors, or ``dot``: the model's, so that it is not part of the task's key
    similarity: str = "cosine"

    def __getstate__(self) -> dict[str, Any]:
        return state_with_main_object(self, self.target)

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore_state(self, state)

    def compared_by(self, similarity: str) -> MtebTask:
        """This task with vectors compared by ``cosine`` or ``dot``.

        What is cached of it stays, such as its key.
        """
        twin = copy.copy(self)
        object.__setattr__(twin, "similarity", similarity)
        return twin

    @property
    def benchmark_name(self) -> str:
        """The name in result files of the benchmark."""
        return self.target.rpartition(":")[2]

    @property
    def name(self) -> str:
        return f"mteb:{self.benchmark_name}{self.options}"

    @cached_property
    def selection(self) -> Selection:
        """The splits and subsets that are evaluated."""
        return self.chosen or _declaration(self.target).select(self.name, {})

    @property
    def source(self) -> DataSource:
        """The data on which the task is evaluated."""
        return DataSource(self.target, self.selection, self.content)

    @cached_property
    def kind(self) -> str:
        """The kind of task; ``benchmark`` if the benchmark does not know it."""
        kind = "benchmark"
        file = _statistics_file(self.benchmark_name)
        if ":" in self.target:
            kind = str(benchmark.make(self.target).metadata.type)
        elif file:
            kind = file.parent.name
        # in snake case: STS is sts, and PairClassification is pair_classification
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()

    @property
    def main_score(self) -> str:
        return _MAIN_SCORES.get(self.kind, "main_score")

    @property
    def description(self) -> str:
        text = f"{self.benchmark_name} of MTEB"
        codes = _declaration(self.target).codes(self.selection.subsets)
        if self.chosen is None and benchmark.LANGUAGE not in codes:
            text += ", all languages: none of its data is in English"
        return text

    @cached_property
    def key(self) -> Key:
        chosen = self.selection.splits, self.selection.subsets
        content = filter(None, [self.content])
        release = benchmark.release()
        return content_key("task", "mteb", release, self.target, self.pooling, chosen, *content)

    @cached_property
    def content(self) -> Key | None:
        """Key of the data and the code of a custom task."""
        if ":" in self.target:
            return content_key(benchmark.content_of(self.target), code_key(self.target))
        return None

    @property
    def is_local(self) -> bool:
        return self._texts_file.is_file()

    @property
    def statistics(self) -> TextStatistics | None:
        """The size that the benchmark lists; None if it lists none."""
        file = _statistics_file(self.benchmark_name)
        if file:
            return _read_statistics(file, self.target, self.selection)
        return None

    def texts(self) -> Sequence[str]:
        """Every text that the benchmark encodes, once in each role."""
        return [text for text, _ in self._read()]

    def roles(self) -> Sequence[Role | None]:
        """The role of each text, as the benchmark tells it."""
        return [role for _, role in self._read()]

    def _read(self) -> Mapping[TextInRole, int]:
        """The row of each text and role."""
        if not self.is_local:
            self.fetch()
        return _read_rows(self._texts_file)

    def fetch(self) -> None:
        """Load the data, and write texts and roles to the cache folder."""
        try:
            texts = benchmark.texts_of(self.source)
        except ConfigError:
            raise
        except Exception as error:  # the benchmark and the hub fail in many ways
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"The data of '{self.name}' is not cached and cannot be loaded "
                f"({type(error).__name__}: {reason:.300}). Fetch it on a machine with a network and"
                " the same cache folders: daskmetrics runs prefetch --task"
                f" {quote(f'mteb:{self.target}{self.options}')}"
            ) from None
        self._texts_file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self._texts_file, json.dumps(list(zip(*texts, strict=True))))

    def evaluate(self, embeddings: EmbeddingArray, seed: int) -> Score:
        """The benchmark's main score; `seed` is not used.

        It draws its own samples from its own fixed seed.

        The error is an estimate, because the benchmark does not report one. Classifications: from
        the number of test texts and the spread of the ten draws. Correlations: Bonett and Wright
        (2000). Clusterings: the spread of the draws. Others: at most ``sqrt(v (1 - v) / n)``, for a
        mean over n pairs or queries of values in [0, 1]; of an average precision of pairs at least
        that of a jackknife. Outcomes as
        `daskmetrics.tasks.mteb_run.Observer` lists them.
        """
        rows = self._read()
        check_embeddings(self.name, embeddings, len(rows))
        table = np.asarray(embeddings, dtype=np.float32)

        def look_up(batch: list[str], role: Role | None) -> Vectors:
            try:
                return table[[rows[text, role] for text in batch]]
            except KeyError:
                raise DataError(
                    f"The data of '{self.name}' has changed. Remove '{self._texts_file}' and run "
                    "again."
                ) from None

        result, observer = benchmark.run(self.source, look_up, self.similarity)
        content = json.loads(result.model_dump_json())
        score = results.score(content, self.kind, observer.scored_units(self.kind))
        draws = []
        if self.kind == "clustering":
            draws = results.draws(content)
        outcomes = observer.outcomes(score.value, draws)
        error = score.stderr
        if self.kind == "pair_classification" and outcomes is not None:
            error = max(error, mean(outcomes.astype(np.float64)).stderr)  # it is no mean over pairs
        return replace(score, stderr=error, outcomes=outcomes)

    @property
    def _texts_file(self) -> Path:
        return cache_folder() / "tasks" / f"{self.key}-roles.json"


@lru_cache(maxsize=4)
def _read_rows(path: Path) -> Mapping[TextInRole, int]:
    texts, roles = json.loads(path.read_text(encoding="utf-8"))
    return {pair: row for row, pair in enumerate(zip(texts, roles, strict=True))}


def mteb_task(target: str, options: Mapping[str, str]) -> MtebTask:
    """The task of a name, with the options ``languages``, ``split`` and ``subsets``.

    Each option has one or more values, joined by +.

    Options that select what the default selects make the same task, with the same name.
    """
    for name in options:
        require_known("option of a task of the benchmark", name, OPTIONS)
    task = MtebTask(target)
    if not options:
        return task
    written = {}
    for name, text in options.items():
        written[name] = [value.strip() for value in text.split("+")]
    chosen = _declaration(target).select(task.name, written)
    if chosen == task.selection:
        return task
    names = ", ".join(f"{name}={'+'.join(written[name])}" for name in OPTIONS if name in written)
    return MtebTask(target, chosen=chosen, options=f"({names})")


def _declaration(target: str) -> Declaration:
    """What a task declares; a custom or unlisted task is made for it."""
    declared = ":" not in target and benchmark.declared(target)
    return declared or benchmark.declaration_of(benchmark.make(target))


@lru_cache
def _statistics_file(name: str) -> Path | None:
    """The benchmark's file with the sizes of a task; imports nothing."""
    folder = benchmark.package()
    if not folder or not re.fullmatch(r"[\w.() -]+", name):
        return None
    return next((folder / "descriptive_stats").glob(f"*/{name}.json"), None)


@lru_cache
def _read_statistics(path: Path, target: str, selection: Selection) -> TextStatistics | None:
    splits = json.loads(path.read_text(encoding="utf-8"))
    evaluated = [splits.get(split, {}) for split in selection.splits]
    sizes: list[tuple[int, int]] = []
    for split in evaluated:
        sizes += [size for _, size in _columns(split, selection)]
    if not sizes:
        return None
    if any("samples_in_train" in split for split in evaluated):
        declaration = _declaration(target)
        for labels, (texts, characters) in _columns(splits.get("train", {}), selection):
            # expected share of the training texts that some experiment draws
            counts = [label["count"] for label in labels["labels"].values()]
            drawn = []
            for n in counts:
                missed = 1 - min(1.0, declaration.samples / n)
                drawn.append(n - n * missed**declaration.experiments)
            share = sum(drawn) / sum(counts)
            sizes.append((round(share * texts), round(share * characters)))
    texts, characters = map(sum, zip(*sizes, strict=True))
    return TextStatistics(texts, characters)


def _columns(
    statistics: Mapping[str, Any], selection: Selection
) -> Iterator[tuple[Mapping[str, Any], tuple[int, int]]]:
    """Statistics of the labels, and distinct texts and characters, of each column of texts."""
    by_subset = statistics.get("hf_subset_descriptive_stats") or {benchmark.ONLY: statistics}
    for subset in selection.subsets:
        columns = by_subset.get(subset) or {}
        for name, column in columns.items():
            if column and re.fullmatch(r"(.*text|text[12])_statistics", name):
                texts = column["unique_texts"]
                characters = column.get("total_text_length")
                if characters is None:
                    characters = round(column["average_text_length"] * texts)
                yield columns.get("label_statistics", {}), (texts, characters)


OPTIONS = ("languages", "split", "subsets")

LAYER_BY_LAYER = (
    "AmazonCounterfactualClassification", "AmazonReviewsClassification", "ArxivClusteringS2S",
    "AskUbuntuDupQuestions", "BIOSSES", "Banking77Classification", "BiorxivClusteringS2S",
    "EmotionClassification", "MTOPDomainClassification", "MTOPIntentClassification",
    "MassiveIntentClassification", "MassiveScenarioClassification", "MedrxivClusteringS2S",
    "MindSmallReranking", "RedditClustering", "SICK-R", "STS12", "STS13", "STS14", "STS15", "STS16",
    "STS17", "STSBenchmark", "SciDocsRR", "SprintDuplicateQuestions", "StackExchangeClustering",
    "StackOverflowDupQuestions", "ToxicConversationsClassification",
    "TweetSentimentExtractionClassification", "TwentyNewsgroupsClustering", "TwitterSemEval2015",
    "TwitterURLCorpus",
)  # fmt: skip
"""The 32 tasks of "Layer by Layer" (Skean et al., 2025)."""

PRESETS: Mapping[str, tuple[str, ...]] = {
    "preset:layer-by-layer-32": tuple(f"mteb:{name}" for name in LAYER_BY_LAYER)
}
