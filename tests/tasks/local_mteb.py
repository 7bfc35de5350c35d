"""Tasks of the benchmark on local data in the hub's formats, one of each kind; texts are the
standard library's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
from mteb.abstasks import (
    AbsTaskClassification,
    AbsTaskClustering,
    AbsTaskPairClassification,
    AbsTaskRetrieval,
    AbsTaskSTS,
)
from mteb.abstasks.task_metadata import TaskMetadata

from daskmetrics.tasks._stdlib import TASKS

FOLDER = Path(os.environ.get("DASKMETRICS_TEST_MTEB", "not-written"))

CONFIGS = {
    "default": "qrels/test.jsonl",
    "corpus": "corpus.jsonl",
    "queries": "queries.jsonl",
    "top_ranked": "top_ranked.jsonl",
}


LANGUAGES = {
    "en": ["eng-Latn"],
    "de": ["deu-Latn"],
    "en-ext": ["eng-Latn"],
    "de-en": ["deu-Latn", "eng-Latn"],
}


def about(name: str, kind: str, main: str, **more: Any) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        description="Text of the standard library.",
        main_score=main,
        type=kind,
        dataset={"path": str(FOLDER / name), "revision": "local-1"},
        **{"eval_langs": ["eng-Latn"], "eval_splits": ["test"], **more},
    )


class LocalClassification(AbsTaskClassification):
    metadata = about("LocalClassification", "Classification", "accuracy")


class LocalLanguages(AbsTaskClassification):
    """Several subsets and splits, each with other texts."""

    metadata = about(
        "LocalLanguages",
        "Classification",
        "accuracy",
        eval_langs=LANGUAGES,
        eval_splits=["validation", "test"],
    )


class LocalClustering(AbsTaskClustering):
    metadata = about("LocalClustering", "Clustering", "v_measure")
    max_fraction_of_documents_to_embed = (
        0.8  # draws texts by the task's own generator, which is a trap
    )
    max_documents_per_cluster = 200


class LocalSTS(AbsTaskSTS):
    metadata = about("LocalSTS", "STS", "cosine_spearman")
    min_score, max_score = 0, 3


class LocalPairs(AbsTaskPairClassification):
    metadata = about("LocalPairs", "PairClassification", "max_ap")


class LocalRetrieval(AbsTaskRetrieval):
    metadata = about("LocalRetrieval", "Retrieval", "ndcg_at_10")


class LocalReranking(AbsTaskRetrieval):
    metadata = about("LocalReranking", "Reranking", "map_at_1000")


CLASSES: tuple[type[Any], ...] = (
    LocalClassification,
    LocalClustering,
    LocalSTS,
    LocalPairs,
    LocalRetrieval,
    LocalReranking,
)
PLACES = {each.__name__: f"{__name__}:{each.__name__}" for each in CLASSES}
MULTILINGUAL = f"{__name__}:{LocalLanguages.__name__}"


def write(folder: Path, texts: int = 240) -> None:
    """Write all data sets; `texts` is about how many each has."""
    package, close = TASKS["stdlib:package"].draw(), TASKS["stdlib:closeness"].draw()
    labelled = pd.DataFrame(
        {"text": package.texts[: 2 * texts], "label": list(map(int, package.labels[: 2 * texts]))}
    )
    _parquet(folder / "LocalClassification", train=labelled[::2], test=labelled[1::2])
    _languages(folder / "LocalLanguages", labelled)
    clustered = labelled.rename(columns={"text": "sentences", "label": "labels"})
    _parquet(folder / "LocalClustering", test=clustered)
    n = len(close.texts) // 2
    pairs = pd.DataFrame(
        {
            "sentence1": close.texts[:n],
            "sentence2": close.texts[n:],
            "score": list(map(float, close.labels)),
        }
    )
    pairs = pairs.sample(n=min(n, texts), random_state=0)
    _parquet(folder / "LocalSTS", test=pairs)
    matched = pairs.assign(labels=(pairs["score"] > 1.5).astype(int)).drop(columns="score")
    _parquet(folder / "LocalPairs", test=matched)
    _search(folder / "LocalRetrieval", texts // 2, ranked=False)
    _search(folder / "LocalReranking", texts // 2, ranked=True)


def _languages(folder: Path, labelled: pd.DataFrame) -> None:
    parts = []
    for subset in LANGUAGES:
        rows = labelled.assign(text=[f"{subset} {text}" for text in labelled["text"]])
        splits = {"train": rows[::2], "validation": rows[1::4], "test": rows[3::4]}
        _parquet(folder / subset, **splits)
        files = "".join(f"  - split: {split}\n    path: {subset}/{split}-*\n" for split in splits)
        parts.append(f"- config_name: {subset}\n  data_files:\n{files}")
    (folder / "README.md").write_text(
        "---\nconfigs:\n" + "".join(parts) + "---\n", encoding="utf-8"
    )


def _parquet(folder: Path, **splits: pd.DataFrame) -> None:
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        rows.to_parquet(folder / f"{name}-00000-of-00001.parquet", index=False)


def _search(folder: Path, queries: int, ranked: bool) -> None:
    examples = TASKS["stdlib:candidates"].draw()
    n = examples.queries
    (folder / "qrels").mkdir(parents=True)
    _lines(
        folder / "corpus.jsonl",
        ({"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(examples.texts[n:])),
    )
    _lines(
        folder / "queries.jsonl",
        ({"_id": f"q{i}", "text": text} for i, text in enumerate(examples.texts[:queries])),
    )
    relevant = ({"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(queries))
    _lines(folder / CONFIGS["default"], relevant)
    configs = {name: file for name, file in CONFIGS.items() if ranked or name != "top_ranked"}
    if ranked:
        mine: dict[int, list[str]] = {}
        for query, document, _ in examples.judgements:
            mine.setdefault(query, []).append(f"d{document}")
        _lines(
            folder / CONFIGS["top_ranked"],
            ({"query-id": f"q{i}", "corpus-ids": mine[i]} for i in range(queries)),
        )
    parts = [
        f"- config_name: {name}\n  data_files:\n  - split: test\n    path: {file}\n"
        for name, file in configs.items()
    ]
    (folder / "README.md").write_text(
        "---\nconfigs:\n" + "".join(parts) + "---\n", encoding="utf-8"
    )


def _lines(path: Path, rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
