"""A user's file of text as rows with named columns, whatever its format.

CSV and TSV with a header, JSON Lines, Parquet; a folder with one sub-folder of text files per class; or a folder in the
layout of BEIR (``corpus.jsonl``, ``queries.jsonl``, ``qrels.tsv``).
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks._examples import Examples
from daskmetrics.tasks._probes import FOLDS

#: Rows of a BEIR folder: one for each judgement, and one without a query for each document that nobody judged.
BEIR = ("corpus.jsonl", "queries.jsonl")
_LONGEST_FIELD = 1 << 27


@dataclass(frozen=True)
class Table:
    """Rows of a file, with the place of each for messages: ``line 7``, ``row 7`` or a file's name."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    places: tuple[str, ...]


def read(path: Path) -> Table:
    """The rows of a file or folder.

    Raises
    ------
    ConfigError
        If it is missing, of no known format, cannot be read, or holds no row; with the line where that is known.
    """
    if path.is_dir():
        reader: Callable[[Path], Rows] = _beir if (path / BEIR[0]).is_file() else _classes
    elif not path.is_file():
        raise ConfigError(f"No file '{path}'. Name a file or folder of texts as file:PATH, relative to {Path.cwd()}.")
    elif path.suffix.lower() not in READERS:
        raise ConfigError(
            f"'{path}' is of no known format ('{path.suffix}'). Give {', '.join(READERS)}, or a folder; plain text has "
            "no labels: put it into a CSV file with the columns text and label."
        )
    else:
        reader = READERS[path.suffix.lower()]
    try:
        found = list(reader(path))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"'{path}' is not UTF-8 text ({error.reason} at byte {error.start}). Convert it first, for instance with: "
            f"iconv -f latin1 -t utf-8 '{path}'"
        ) from None
    if not found:
        raise ConfigError(f"'{path}' holds no row. It needs a header and rows, or text files in a folder per class.")
    columns = tuple(dict.fromkeys(name for _, row in found for name in row))
    return Table(path, columns, tuple(row for _, row in found), tuple(place for place, _ in found))


Rows = Iterator[tuple[str, Mapping[str, Any]]]


def _csv(path: Path) -> Rows:
    csv.field_size_limit(_LONGEST_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        names = reader.fieldnames or ()
        if len(set(names)) < len(names):
            raise ConfigError(f"'{path}' names a column twice in its header: {', '.join(names)}.")
        try:
            for row in reader:
                if None in row or None in row.values():
                    got = sum(value is not None for name, value in row.items() if name is not None)
                    got += len(row.get(None, ()))
                    raise ConfigError(
                        f"'{path}', line {reader.line_num}: {got} fields where the header has {len(names)}. Put texts "
                        "with commas into double quotes."
                    )
                yield f"line {reader.line_num}", row
        except csv.Error as error:
            raise ConfigError(f"'{path}', line {reader.line_num}: {error}. Is a double quote left open?") from None


def _json_lines(path: Path) -> Rows:
    with path.open(encoding="utf-8-sig") as text:
        for number, line in enumerate(text, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"'{path}', line {number} is not JSON: {error}. Write one object per line.") from None
            if not isinstance(row, dict):
                raise ConfigError(
                    f"'{path}', line {number} is a {type(row).__name__}, not an object with named values."
                )
            yield f"line {number}", row


def _parquet(path: Path) -> Rows:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise ConfigError(f"'{path}' needs pyarrow: pip install 'daskmetrics[table]'") from None
    try:
        rows = parquet.read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise ConfigError(f"'{path}' cannot be read as Parquet: {error}") from None
    for number, row in enumerate(rows, start=1):
        yield f"row {number}", row


def _classes(folder: Path) -> Rows:
    """Each text file of each sub-folder, whose name is the class."""
    for path in sorted(folder.glob("*/*.txt")):
        yield str(path.relative_to(folder)), {"text": path.read_text(encoding="utf-8"), "label": path.parent.name}


def _beir(folder: Path) -> Rows:
    documents, queries = (
        {_id(folder / name, place, row): _whole(row) for place, row in _json_lines(folder / name)}
        for name in BEIR
        if _required(folder / name)
    )
    found = next((p for p in (folder / "qrels.tsv", *sorted(folder.glob("qrels/*.tsv"))) if p.is_file()), None)
    if found is None:
        raise ConfigError(
            f"'{folder}' lacks qrels.tsv (or qrels/test.tsv) with the columns query-id, corpus-id, score."
        )
    left = dict(documents)
    for place, row in _csv(found):
        query, document, score = (row.get(name) for name in ("query-id", "corpus-id", "score"))
        for identity, known, where in ((query, queries, BEIR[1]), (document, documents, BEIR[0])):
            if identity not in known:
                raise ConfigError(f"'{found}', {place}: '{identity}' is not among the _id of {where}.")
        left.pop(str(document), None)
        yield place, {"query": queries[str(query)], "document": documents[str(document)], "relevance": score}
    for identity, text in left.items():
        yield f"document {identity}", {"document": text}


def _required(path: Path) -> bool:
    if not path.is_file():
        raise ConfigError(f"'{path.parent}' lacks {path.name}; a folder of documents and queries needs both.")
    return True


def _id(path: Path, place: str, row: Mapping[str, Any]) -> str:
    if "_id" not in row:
        raise ConfigError(f"'{path}', {place} has no '_id'; it has {', '.join(row)}.")
    return str(row["_id"])


def _whole(row: Mapping[str, Any]) -> str:
    return f"{row.get('title') or ''} {row.get('text') or ''}".strip()


READERS: Mapping[str, Callable[[Path], Rows]] = MappingProxyType(
    {".csv": _csv, ".tsv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}
)
"""What reads a file, by its suffix."""


TRUE, FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


def examples_of(table: Table, kind: str, columns: Mapping[str, str]) -> Examples:
    """What a table holds as examples of this kind.

    Parameters
    ----------
    table : Table
    kind : str
    columns : mapping
        Of roles to columns; all that the kind needs.

    Raises
    ------
    ConfigError
        If a row does not fit, or there is too little to score.
    """
    return _READERS[kind](_Sheet(table, columns))


class _Sheet:
    """A table read by roles, its mistakes told with their place."""

    def __init__(self, table: Table, columns: Mapping[str, str]) -> None:
        self.table, self.columns = table, columns

    def values(self, role: str) -> Iterator[tuple[str, Any]]:
        """Place and value of each row."""
        column = self.columns[role]
        for place, row in zip(self.table.places, self.table.rows, strict=True):
            yield f"'{self.table.path}', {place}, column '{column}'", row.get(column)

    def texts(self, role: str) -> tuple[str, ...]:
        return tuple(_text(place, value) for place, value in self.values(role))

    def numbers(self, role: str) -> tuple[float, ...]:
        return tuple(_number(place, value) for place, value in self.values(role))

    def refuse(self, what: str) -> ConfigError:
        return ConfigError(f"'{self.table.path}' {what}")


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{place}: a text was wanted, got {value!r}. Fill it in or remove the row.")
    return value


def _number(place: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{place}: a number was wanted, got {value!r}.") from None
    if not -1e300 < number < 1e300:
        raise ConfigError(f"{place}: a finite number was wanted, got {value!r}.")
    return number


def _truth(place: str, value: Any) -> int:
    word = str(value).strip().lower()
    if word not in (*TRUE, *FALSE):
        raise ConfigError(f"{place}: 1 (they belong together) or 0 was wanted, got {value!r}.")
    return int(word in TRUE)


def _labelled(sheet: _Sheet, least: int) -> Examples:
    texts = sheet.texts("text")
    labels = []
    for place, value in sheet.values("label"):
        if value is None or not str(value).strip():
            raise ConfigError(f"{place}: a label was wanted, got {value!r}. Fill it in or remove the row.")
        labels.append(str(value).strip())
    counts = Counter(labels)
    if len(counts) < 2:
        raise sheet.refuse(f"has one label only, '{labels[0]}'; at least two are needed to tell apart.")
    rare, times = min(counts.items(), key=lambda item: (item[1], item[0]))
    if times < least:
        raise sheet.refuse(
            f"has {times} text{'s' * (times != 1)} with the label '{rare}', and {len(counts)} labels in all; {least} "
            "of each are needed. Merge or remove rare labels, or name the right column: label=COLUMN"
        )
    index = {label: i for i, label in enumerate(sorted(counts))}
    return Examples(texts, tuple(index[label] for label in labels))


def _classification(sheet: _Sheet) -> Examples:
    return _labelled(sheet, least=FOLDS)


def _clustering(sheet: _Sheet) -> Examples:
    return _labelled(sheet, least=2)


def _pairs(sheet: _Sheet) -> Examples:
    labels = tuple(_truth(place, value) for place, value in sheet.values("label"))
    if len(set(labels)) < 2:
        raise sheet.refuse(
            f"has pairs of label {labels[0]} only; some that belong together and some that do not are needed."
        )
    return Examples(sheet.texts("first") + sheet.texts("second"), labels)


def _graded_pairs(sheet: _Sheet) -> Examples:
    grades = sheet.numbers("grade")
    if len(set(grades)) < 2 or len(grades) < 4:
        raise sheet.refuse(
            f"has {len(grades)} pairs and {len(set(grades))} different grades; at least four pairs and two are needed."
        )
    return Examples(sheet.texts("first") + sheet.texts("second"), grades)


def _search(sheet: _Sheet) -> Examples:
    documents = {text: i for i, text in enumerate(dict.fromkeys(sheet.texts("document")))}
    queries: dict[str, int] = {}
    judged: dict[tuple[int, int], float] = {}
    worths = sheet.values("relevance") if "relevance" in sheet.columns else repeat(("", 1))
    for (place, query), (where, worth), document in zip(
        sheet.values("query"), worths, sheet.texts("document"), strict=False
    ):
        if query is not None and query != "":  # a row without one is a document that nobody judged
            row = queries.setdefault(_text(place, query), len(queries))
            judged[row, documents[document]] = _number(where, worth)
    if not queries:
        raise sheet.refuse("has no query; each row needs a query and a document.")
    texts = tuple(queries) + tuple(documents)
    found = tuple((query, document, worth) for (query, document), worth in judged.items())
    return Examples(texts, judged=found, queries=len(queries))


def _retrieval(sheet: _Sheet) -> Examples:
    examples = _search(sheet)
    count = len(examples.texts) - examples.queries
    if count < 2:
        raise sheet.refuse("has one document only; at least two are needed to search among.")
    return _answered(sheet, examples)


def _reranking(sheet: _Sheet) -> Examples:
    examples = _search(sheet)
    if all(worth > 0 for _, _, worth in examples.judged):
        raise sheet.refuse(
            "has no candidate of relevance 0, so that every order is as good. Say kind=retrieval instead."
        )
    return _answered(sheet, examples)


def _answered(sheet: _Sheet, examples: Examples) -> Examples:
    answered = {query for query, _, worth in examples.judged if worth > 0}
    if len(answered) < examples.queries:
        lost = next(text for i, text in enumerate(examples.texts[: examples.queries]) if i not in answered)
        raise sheet.refuse(f"has no relevant document for the query '{lost[:60]}'. Add one or remove the query.")
    return examples


_READERS: Mapping[str, Callable[[_Sheet], Examples]] = MappingProxyType(
    {
        "classification": _classification,
        "clustering": _clustering,
        "pair_classification": _pairs,
        "sts": _graded_pairs,
        "retrieval": _retrieval,
        "reranking": _reranking,
    }
)
