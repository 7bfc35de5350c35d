"""Tasks of the benchmark on local data in the hub's formats, one of each kind; texts are the
standard library's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
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
    # draws texts by the task's own generator, which is a trap
    max_fraction_of_documents_to_embed = 0.8
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
PLACES = {task.__name__: f"{__name__}:{task.__name__}" for task in CLASSES}
MULTILINGUAL = f"{__name__}:LocalLanguages"


def write(folder: Path, texts: int = 240) -> None:
    """Write all data sets; `texts` is about how many each has."""
    package, close = TASKS["stdlib:package"].draw(), TASKS["stdlib:closeness"].draw()
    labelled = pd.DataFrame({"text": package.texts, "label": package.labels}).head(2 * texts)
    labelled["label"] = labelled["label"].astype(int)
    _parquet(folder / "LocalClassification", train=labelled[::2], test=labelled[1::2])
    _languages(folder / "LocalLanguages", labelled)
    clustered = labelled.rename(columns={"text": "sentences", "label": "labels"})
    _parquet(folder / "LocalClustering", test=clustered)
    n = len(close.texts) // 2
    sentences = {"sentence1": close.texts[:n], "sentence2": close.texts[n:]}
    pairs = pd.DataFrame({**sentences, "score": np.array(close.labels, dtype=float)})
    pairs = pairs.sample(n=min(n, texts), random_state=0)
    _parquet(folder / "LocalSTS", test=pairs)
    matched = pairs.assign(labels=(pairs["score"] > 1.5).astype(int)).drop(columns="score")
    _parquet(folder / "LocalPairs", test=matched)
    _search(folder / "LocalRetrieval", texts // 2, ranked=False)
    _search(folder / "LocalReranking", texts // 2, ranked=True)


def _languages(folder: Path, labelled: pd.DataFrame) -> None:
    configs = {}
    for subset in LANGUAGES:
        rows = labelled.assign(text=f"{subset} " + labelled["text"])
        splits = {"train": rows[::2], "validation": rows[1::4], "test": rows[3::4]}
        _parquet(folder / subset, **splits)
        configs[subset] = {split: f"{subset}/{split}-*" for split in splits}
    _readme(folder, configs)


def _readme(folder: Path, configs: dict[str, dict[str, str]]) -> None:
    """The file of each split of each configuration, as the hub has them."""
    listed = []
    for name, path_of in configs.items():
        files = [{"split": split, "path": path} for split, path in path_of.items()]
        listed.append({"config_name": name, "data_files": files})
    text = f"---\n{yaml.safe_dump({'configs': listed})}---\n"
    (folder / "README.md").write_text(text, encoding="utf-8")


def _parquet(folder: Path, **splits: pd.DataFrame) -> None:
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        rows.to_parquet(folder / f"{name}-00000-of-00001.parquet", index=False)


def _search(folder: Path, queries: int, ranked: bool) -> None:
    examples = TASKS["stdlib:candidates"].draw()
    n = examples.queries
    (folder / "qrels").mkdir(parents=True)
    texts = pd.DataFrame({"title": "", "text": examples.texts})
    texts["_id"] = [*(f"q{i}" for i in range(n)), *(f"d{i}" for i in range(len(texts) - n))]
    _lines(folder / "corpus.jsonl", texts[["_id", "title", "text"]][n:])
    _lines(folder / "queries.jsonl", texts[["_id", "text"]].head(queries))
    relevant = [(f"q{i}", f"d{i}", 1) for i in range(queries)]
    columns = ["query-id", "corpus-id", "score"]
    _lines(folder / CONFIGS["default"], pd.DataFrame(relevant, columns=columns))
    judged = pd.DataFrame(examples.judgements, columns=columns)
    candidates = ("d" + judged["corpus-id"].astype(str)).groupby(judged["query-id"]).agg(list)
    ranking = {"query-id": "q" + candidates.index.astype(str), "corpus-ids": candidates}
    configs = {name: {"test": file} for name, file in CONFIGS.items()}
    if ranked:
        _lines(folder / CONFIGS["top_ranked"], pd.DataFrame(ranking).head(queries))
    else:
        del configs["top_ranked"]
    _readme(folder, configs)


def _lines(path: Path, rows: pd.DataFrame) -> None:
    rows.to_json(path, orient="records", lines=True)
