"""The texts that a suite is trained on: Python's standard library, text files, tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from daskmetrics.config import Recipe
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.rows import READERS, format_of, read_lines, read_rows

SUFFIXES = (".txt", *READERS)


@dataclass(frozen=True)
class Labelled:
    """Texts with their classes; a label is an index into the classes, which are in alphabetical
    order.
    """

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
            f"No corpus file '{path}'. Give a text file with one text per line, a table, a folder,"
            " or 'stdlib'."
        )
    return (path,)


def read(recipe: Recipe) -> tuple[str, ...]:
    """The texts of a recipe's corpus, in the order of its files; an empty corpus is an error."""
    if recipe.corpus == "stdlib":
        return corpus.training_texts("stdlib")
    lines = chain.from_iterable(_texts(path, recipe.text) for path in files(recipe.corpus))
    texts = tuple(filter(None, lines))
    if not texts:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' is empty. Give texts, one per line or row, or 'stdlib'."
        )
    return texts


def read_labelled(recipe: Recipe) -> Labelled:
    """The texts of a recipe's corpus with their classes, of which there must be two."""
    columns = recipe.text, recipe.label
    rows = chain.from_iterable(_rows(path, columns) for path in files(recipe.corpus))
    pairs = [(str(row[recipe.text]), str(row[recipe.label])) for row in rows]
    classes = tuple(sorted({label for _, label in pairs}))
    if len(classes) < 2:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' has {len(classes)} classes in column '{recipe.label}'; a "
            "classifier needs two."
        )
    numbers = {name: number for number, name in enumerate(classes)}
    return Labelled(
        tuple(text for text, _ in pairs), tuple(numbers[label] for _, label in pairs), classes
    )


def key(recipe: Recipe) -> Key:
    """The content key of a recipe's corpus; it does not depend on the corpus's path."""
    if recipe.corpus == "stdlib":
        return corpus.digest(corpus.training_texts("stdlib"))
    return content_key("files", [_digest(path) for path in files(recipe.corpus)])


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.sha256(path.suffix.encode())).hexdigest()


def _texts(path: Path, column: str) -> Iterator[str]:
    if format_of(path) in READERS:
        return (str(row[column]).strip() for row in _rows(path, (column,)))
    return (line.strip() for line in read_lines(path))


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """The rows of a table, each with these columns."""
    if format_of(path) not in READERS:
        raise ConfigError(f"'{path}' has no columns; a table is a file of {', '.join(READERS)}.")
    for line, row in read_rows(path, columns):
        missing = [column for column in columns if row.get(column) is None]
        if missing:
            raise ConfigError(
                f"'{path}', {line} has no '{missing[0]}'. Its columns: {', '.join(map(str, row))}."
            )
        yield row
