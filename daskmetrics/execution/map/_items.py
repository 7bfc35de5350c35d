"""Items of a map: their keys follow from their content, their seeds from their keys."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key, seed_of

_LONGEST_NAME = 60
_SUFFIXES = (".jsonl", ".csv", ".txt")
_INTEGER = re.compile(r"[+-]?(0|[1-9]\d*)")
_DECIMAL = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Item:
    """One element of the iterable."""

    key: Key  # hash of function, version, element, seed of the run, and number of equal elements before this one
    index: int
    value: Any
    name: str  # short text for tables
    seed: int  # 32 bits that follow from the key, so that numpy.random.seed accepts them


def make_items(values: Iterable[Any], function: str, version: str, seed: int = 0) -> tuple[Item, ...]:
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
    """A hash that is the same for equal values in every process; raises ConfigError if there is none."""
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
        return all(isinstance(key, str) and is_json(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(is_json, value))
    return value is None or type(value) in (bool, int, float, str)


def _short_text(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


def read_items(path: Path) -> list[Any]:
    """The items of a file: JSON values of ``.jsonl``, rows of ``.csv`` as dicts, lines of ``.txt``.

    Empty lines are skipped, and numbers in a CSV file become numbers. Raises ConfigError if the file does not exist,
    its suffix is not supported, or a line cannot be parsed.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"Cannot read items from '{path}': the suffix must be one of {', '.join(_SUFFIXES)}.")
    if not path.is_file():
        raise ConfigError(f"File '{path}' does not exist.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not UTF-8: {error}.") from None
    match path.suffix:
        case ".jsonl":
            values = _parse_json_lines(text, path)
        case ".csv":
            values = _parse_rows(text, path)
        case _:
            values = [line.strip() for line in text.splitlines() if line.strip()]
    if not values:
        raise ConfigError(f"'{path}' contains no items.")
    return values


def _parse_json_lines(text: str, path: Path) -> list[Any]:
    values = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                values.append(json.loads(line))
            except ValueError as error:
                raise ConfigError(f"Line {number} of '{path}' is not JSON: {error}.") from None
    return values


def _parse_rows(text: str, path: Path) -> list[Any]:
    rows = list(csv.DictReader(text.splitlines()))
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ConfigError(f"Line {number} of '{path}' has more or fewer values than the header has names.")
    return [{name: _parse_number(value) for name, value in row.items()} for row in rows]


def _parse_number(text: str) -> int | float | str:
    """A number if the text is one in its usual form; ``007`` and ``1_000`` stay text.

    >>> _parse_number("3"), _parse_number("1e-4"), _parse_number("007"), _parse_number("cosine")
    (3, 0.0001, '007', 'cosine')
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text
