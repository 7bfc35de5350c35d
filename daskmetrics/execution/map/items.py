"""Items of a map: their keys follow from their content, their seeds from their keys."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.names import Key, content_key, seed_of
from daskmetrics.core.rows import READERS, format_of, read_json_lines, read_lines, read_rows

_LONGEST_NAME = 60
_NUMBER = re.compile(r"-?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
SUFFIXES = (*READERS, ".txt")  #: of files of items
TYPES: Mapping[str, type[int] | type[float]] = {
    "int": int,
    "float": float,
}  #: of a column, beside text


@dataclass(frozen=True)
class Item:
    """One element of the iterable."""

    # hash of function, version, element, seed of the run, and number of equal elements before this
    # one
    key: Key
    index: int
    value: Any
    name: str  # short text for tables
    seed: int  # 32 bits that follow from the key, so that numpy.random.seed accepts them


def make_items(
    values: Iterable[Any], function: str, version: str, seed: int = 0
) -> tuple[Item, ...]:
    """The elements of an iterable as items; raises ConfigError if one has no reproducible content.

    Equal elements are numbered, so ``[7, 7]`` gives two items with different keys and seeds.

    >>> one, two = make_items([7, 7], "bench:step", "v1")
    >>> one.name, one.key != two.key, one.seed != two.seed
    ('7', True, True)
    >>> make_items([7], "bench:step", "v1")[0] == one
    True
    """
    counts: Counter[str] = Counter()
    items = []
    for index, value in enumerate(values):
        content = content_hash(value)
        key = content_key("item", function, version, content, counts[content], seed)
        counts[content] += 1
        items.append(Item(key, index, value, _short_text(value), seed_of(key) >> 31))
    return tuple(items)


def content_hash(value: Any) -> str:
    """A hash that is the same for equal values in every process; raises ConfigError if there is
    none.
    """
    if is_json(value):
        return content_key(value)
    from dask.base import tokenize

    try:
        return str(tokenize(value, ensure_deterministic=True))
    except Exception as error:  # a foreign __reduce__ or __dask_tokenize__ can raise anything
        raise ConfigError(
            f"{_short_text(value)} ({type(value).__name__}) has no reproducible content, so a resumed run could not "
            f"recognize it: {error}. Map over numbers, text, lists, dicts, arrays or dataclasses."
        ) from None


def is_json(value: Any) -> bool:
    """Whether JSON represents a value completely and unambiguously."""
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(is_json, value.values()))
    if isinstance(value, list):
        return all(map(is_json, value))
    return value is None or type(value) in (bool, int, float, str)


def _short_text(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


def read_items(path: Path, types: Mapping[str, str] = MappingProxyType({})) -> list[Any]:
    """The items of a file: JSON values of ``.jsonl``, rows of a table as dicts, lines of ``.txt``.

    Parameters
    ----------
    path : Path
        Lines that are empty are skipped.
    types : mapping of str to str
        Columns of a CSV or TSV file whose values are numbers: ``int`` or ``float``. The others are
        texts.

    Raises
    ------
    ConfigError
        If the file does not exist, its suffix is not supported, or a line or a value cannot be
        read.
    """
    suffix = format_of(path)
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"Cannot read items from '{path}': the suffix must be one of {', '.join(SUFFIXES)}."
        )
    if not path.is_file():
        raise ConfigError(f"File '{path}' does not exist.")
    if types and suffix not in (".csv", ".tsv"):
        raise ConfigError(
            f"'{path}' has no columns of texts: --types is for CSV and TSV files. Remove the option."
        )
    values: list[Any]
    match suffix:
        case ".txt":
            values = read_lines(path)
        case ".jsonl" | ".ndjson":
            values = [value for _, value in read_json_lines(path)]
        case _:
            values = list(_typed_rows(path, types))
    if not values:
        raise ConfigError(f"'{path}' contains no items.")
    return values


def numeric_columns(rows: Sequence[Any]) -> list[str]:
    """The columns of texts that all look like numbers.

    >>> numeric_columns([{"rate": "1e-3", "zip": "007", "name": "a"}, {"rate": "2", "zip": "12", "name": "b"}])
    ['rate']
    """

    def is_numeric(column: str) -> bool:
        texts = (row.get(column) for row in rows)
        return all(isinstance(text, str) and _NUMBER.fullmatch(text) for text in texts)

    if not all(isinstance(row, dict) for row in rows):
        return []
    return list(filter(is_numeric, rows[0]))


def _typed_rows(path: Path, types: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for line, row in read_rows(path):
        for name, kind in types.items():
            if name not in row:
                raise unknown("column", name, row)
            if kind not in TYPES:
                raise unknown("type", kind, TYPES)
        values = dict(row)
        for name, kind in types.items():
            values[name] = _typed(row[name], kind, f"'{path}', {line}, column '{name}'")
        yield values


def _typed(value: str, kind: str, source: str) -> float:
    try:
        number = TYPES[kind](value)
    except ValueError:
        number = math.nan
    if "_" in value or not math.isfinite(number):
        raise ConfigError(f"{source}: got '{value}', not a finite number of type {kind}.")
    return number
