"""The texts that a suite is trained on: Python's standard library, text files, tables."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.config import Recipe
from daskmetrics.core import _corpus as corpus
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key

SUFFIXES = (".txt", ".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class Labelled:
    """Texts with their classes; a label is an index into the classes, which are in alphabetical order."""

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]


def files(source: str) -> tuple[Path, ...]:
    """The files of a corpus, at least one; empty for ``stdlib``."""
    if source == "stdlib":
        return ()
    path = Path(source).expanduser()
    if path.is_dir():
        matches = tuple(sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES))
        if not matches:
            raise ConfigError(f"Corpus folder '{source}' holds no file of {', '.join(SUFFIXES)}.")
        return matches
    if not path.is_file():
        raise ConfigError(
            f"No corpus file '{path}'. Give a text file with one text per line, a table, a folder, or 'stdlib'."
        )
    return (path,)


def read(recipe: Recipe) -> tuple[str, ...]:
    """The texts of a recipe's corpus, in the order of its files; an empty corpus is an error."""
    if recipe.corpus == "stdlib":
        return corpus.training_texts("stdlib")
    texts = tuple(text for path in files(recipe.corpus) for text in _texts(path, recipe.text) if text)
    if not texts:
        raise ConfigError(f"Corpus '{recipe.corpus}' is empty. Give texts, one per line or row, or 'stdlib'.")
    return texts


def read_labelled(recipe: Recipe) -> Labelled:
    """The texts of a recipe's corpus with their classes, of which there must be two."""
    pairs = [
        (str(row[recipe.text]), str(row[recipe.label]))
        for path in files(recipe.corpus)
        for row in _rows(path, (recipe.text, recipe.label))
    ]
    classes = tuple(sorted({label for _, label in pairs}))
    if len(classes) < 2:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' has {len(classes)} classes in column '{recipe.label}'; a classifier needs two."
        )
    index = {name: place for place, name in enumerate(classes)}
    return Labelled(tuple(text for text, _ in pairs), tuple(index[label] for _, label in pairs), classes)


def key(recipe: Recipe) -> Key:
    """The content key of a recipe's corpus; it does not depend on the corpus's path."""
    if recipe.corpus == "stdlib":
        return corpus.digest(corpus.training_texts("stdlib"))
    return content_key("files", [_digest(path) for path in files(recipe.corpus)])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha256(path.suffix.encode())).hexdigest()


def _texts(path: Path, column: str) -> Iterator[str]:
    if path.suffix in (".jsonl", ".csv", ".parquet"):
        return (str(row[column]).strip() for row in _rows(path, (column,)))
    return (line.strip() for line in corpus.read_text(path).splitlines())


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """The rows of a table, each with these columns."""
    kinds = {".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet}
    if path.suffix not in kinds:
        raise ConfigError(f"'{path}' has no columns; a table is a file of {', '.join(kinds)}.")
    for row in kinds[path.suffix](path, columns):
        missing = [column for column in columns if row.get(column) is None]
        if missing:
            raise ConfigError(f"A row of '{path}' has no '{missing[0]}'. Its columns: {', '.join(map(str, row))}.")
        yield row


def _jsonl(path: Path, columns: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(corpus.read_text(path).splitlines(), start=1):
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError):
            raise ConfigError(f"Line {number} of '{path}' is not a JSON object.") from None


def _csv(path: Path, columns: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    return iter(csv.DictReader(corpus.read_text(path).splitlines(keepends=True)))


def _parquet(path: Path, columns: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError:
        raise ConfigError("Parquet needs pyarrow: pip install 'daskmetrics[table]'.") from None
    try:
        file = parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise ConfigError(f"'{path}' is not a Parquet file: {error}") from None
    present = [column for column in columns if column in file.schema_arrow.names]
    for batch in file.iter_batches(columns=present or None):
        yield from batch.to_pylist()
