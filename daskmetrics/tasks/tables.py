"""Rows of a user's file with named columns, and the examples of a task made of them.

Formats are CSV and TSV with a header, JSON Lines, Parquet, a folder with one sub-folder of text
files per class, and a folder in the layout of BEIR (``corpus.jsonl``, ``queries.jsonl``,
``qrels.tsv``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.rows import READERS, PlacedRow, format_of, read_rows, read_text
from daskmetrics.core.text import plural
from daskmetrics.tasks._probes import FOLDS
from daskmetrics.tasks.examples import Examples

#: Files of a BEIR folder. Its rows: one for each judgement, and one without a query for each
#: document without one.
BEIR = ("corpus.jsonl", "queries.jsonl")
TRUE, FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


@dataclass(frozen=True)
class TextTable:
    """Rows of a file; `places` names each row in messages: ``line 7``, ``row 7`` or a file name."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    places: tuple[str, ...]


def read_table(path: Path) -> TextTable:
    """The rows of a file or folder; errors name the line where it is known."""
    if path.is_dir():
        rows = _beir(path) if (path / BEIR[0]).is_file() else _classes(path)
    elif not path.is_file():
        raise ConfigError(
            f"No file '{path}'. Name a file or folder of texts as file:PATH, relative to {Path.cwd()}."
        )
    elif format_of(path) not in READERS:
        raise ConfigError(
            f"'{path}' has an unknown format ('{path.suffix}'). Use {', '.join(READERS)}, or a folder; plain text has "
            "no labels: put it into a CSV file with the columns text and label."
        )
    else:
        rows = read_rows(path)
    placed = list(rows)
    if not placed:
        raise ConfigError(
            f"'{path}' has no rows. It needs a header and rows, or one folder of text files per class."
        )
    positions, table = zip(*placed, strict=True)
    return TextTable(path, tuple(dict.fromkeys(chain.from_iterable(table))), table, positions)


def _classes(folder: Path) -> Iterator[PlacedRow]:
    """The text files of each sub-folder; the name of the sub-folder is the class."""
    for path in sorted(folder.glob("*/*.txt")):
        yield str(path.relative_to(folder)), {"text": read_text(path), "label": path.parent.name}


def _beir(folder: Path) -> Iterator[PlacedRow]:
    documents, queries = (_beir_texts(folder / name) for name in BEIR)
    qrels = next(
        (p for p in (folder / "qrels.tsv", *sorted(folder.glob("qrels/*.tsv"))) if p.is_file()),
        None,
    )
    if qrels is None:
        raise ConfigError(
            f"'{folder}' has no qrels.tsv (or qrels/test.tsv) with the columns query-id, corpus-id, score."
        )
    unjudged = dict(documents)
    for position, row in read_rows(qrels):
        query, document, score = (row.get(name) for name in ("query-id", "corpus-id", "score"))
        for identity, texts, file in ((query, queries, BEIR[1]), (document, documents, BEIR[0])):
            if identity not in texts:
                raise ConfigError(f"'{qrels}', {position}: no _id of {file} is '{identity}'.")
        unjudged.pop(str(document), None)
        yield (
            position,
            {
                "query": queries[str(query)],
                "document": documents[str(document)],
                "relevance": score,
            },
        )
    for identity, text in unjudged.items():
        yield f"document {identity}", {"document": text}


def _beir_texts(path: Path) -> dict[str, str]:
    """The texts of one file of a BEIR folder, by their ids."""
    if not path.is_file():
        raise ConfigError(
            f"'{path.parent}' has no {path.name}; a folder of documents and queries needs both files."
        )
    texts = {}
    for position, row in read_rows(path):
        if "_id" not in row:
            raise ConfigError(f"'{path}', {position} has no '_id'; it has {', '.join(row)}.")
        texts[str(row["_id"])] = f"{row.get('title') or ''} {row.get('text') or ''}".strip()
    return texts


def examples_of(table: TextTable, kind: str, columns: Mapping[str, str]) -> Examples:
    """The rows of a table as examples of a kind of task, from the column of each role that the kind
    requires.
    """
    return _BUILDERS[kind](_RoleReader(table, columns))


class _RoleReader:
    """Reads the columns of a table by role; errors name the row."""

    def __init__(self, table: TextTable, columns: Mapping[str, str]) -> None:
        self.table, self.columns = table, columns

    def values(self, role: str) -> Iterator[tuple[str, Any]]:
        """The position and the value of each row."""
        column = self.columns[role]
        for position, row in zip(self.table.places, self.table.rows, strict=True):
            yield f"'{self.table.path}', {position}, column '{column}'", row.get(column)

    def texts(self, role: str) -> tuple[str, ...]:
        return tuple(_text(position, value) for position, value in self.values(role))

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"'{self.table.path}' {problem}")


def _text(position: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{position}: got {value!r}, not a text. Fill it in or remove the row.")
    return value


def _number(position: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{position}: got {value!r}, not a number.") from None
    if not -1e300 < number < 1e300:
        raise ConfigError(f"{position}: got {value!r}, not a finite number.")
    return number


def _labelled(reader: _RoleReader, fewest: int) -> Examples:
    texts = reader.texts("text")
    labels = []
    for position, value in reader.values("label"):
        if value is None or not str(value).strip():
            raise ConfigError(
                f"{position}: got {value!r}, not a label. Fill it in or remove the row."
            )
        labels.append(str(value).strip())
    counts = Counter(labels)
    if len(counts) < 2:
        raise reader.error(f"has only one label, '{labels[0]}'; a task needs at least two.")
    rarest, count = min(counts.items(), key=lambda item: (item[1], item[0]))
    if count < fewest:
        raise reader.error(
            f"has {plural(count, 'text')} with the label '{rarest}', and {len(counts)} labels in all; each label needs "
            f"at least {fewest} texts. Merge or remove rare labels, or name the right column: label=COLUMN"
        )
    index = {label: i for i, label in enumerate(sorted(counts))}
    return Examples(texts, tuple(index[label] for label in labels))


def _pairs(reader: _RoleReader) -> Examples:
    labels = []
    for position, value in reader.values("label"):
        word = str(value).strip().lower()
        if word not in (*TRUE, *FALSE):
            raise ConfigError(
                f"{position}: got {value!r}; write 1 if the texts belong together, else 0."
            )
        labels.append(int(word in TRUE))
    if len(set(labels)) < 2:
        raise reader.error(
            f"has only pairs with the label {labels[0]}; a task needs pairs of both labels."
        )
    return Examples(reader.texts("first") + reader.texts("second"), tuple(labels))


def _graded_pairs(reader: _RoleReader) -> Examples:
    grades = tuple(_number(position, value) for position, value in reader.values("grade"))
    if len(set(grades)) < 2 or len(grades) < 4:
        raise reader.error(
            f"has {len(grades)} pairs and {len(set(grades))} different grades; a task needs at least four pairs "
            "and two grades."
        )
    return Examples(reader.texts("first") + reader.texts("second"), grades)


def _judged_pairs(reader: _RoleReader) -> Examples:
    documents = {text: i for i, text in enumerate(dict.fromkeys(reader.texts("document")))}
    queries: dict[str, int] = {}
    judgements: dict[tuple[int, int], float] = {}
    relevances = reader.values("relevance") if "relevance" in reader.columns else repeat(("", 1))
    for (position, query), (relevance_position, relevance), document in zip(
        reader.values("query"), relevances, reader.texts("document"), strict=False
    ):
        # a row without a query is a document without a judgement
        if query is not None and query != "":
            row = queries.setdefault(_text(position, query), len(queries))
            judgements[row, documents[document]] = _number(relevance_position, relevance)
    if not queries:
        raise reader.error("has no query; each row needs a query and a document.")
    flat = tuple(
        (query, document, relevance) for (query, document), relevance in judgements.items()
    )
    return Examples(tuple(queries) + tuple(documents), judgements=flat, queries=len(queries))


def _retrieval(reader: _RoleReader) -> Examples:
    examples = _judged_pairs(reader)
    if len(examples.texts) - examples.queries < 2:
        raise reader.error("has only one document; a retrieval needs at least two.")
    return _check_answered(reader, examples)


def _reranking(reader: _RoleReader) -> Examples:
    examples = _judged_pairs(reader)
    if all(relevance > 0 for _, _, relevance in examples.judgements):
        raise reader.error(
            "has no candidate of relevance 0, so every order is equally good. Use kind=retrieval instead."
        )
    return _check_answered(reader, examples)


def _check_answered(reader: _RoleReader, examples: Examples) -> Examples:
    answered = {query for query, _, relevance in examples.judgements if relevance > 0}
    if len(answered) < examples.queries:
        query = next(text for i, text in enumerate(examples.texts) if i not in answered)
        raise reader.error(
            f"has no relevant document for the query '{query[:60]}'. Add one or remove the query."
        )
    return examples


_BUILDERS: Mapping[str, Callable[[_RoleReader], Examples]] = {
    "classification": partial(_labelled, fewest=FOLDS),
    "clustering": partial(_labelled, fewest=2),
    "pair_classification": _pairs,
    "sts": _graded_pairs,
    "retrieval": _retrieval,
    "reranking": _reranking,
}
