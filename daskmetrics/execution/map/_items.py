"""What a function is applied to: items with keys from their content, and seeds from their keys."""

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


@dataclass(frozen=True)
class Item:
    """One element of the iterable.

    Attributes
    ----------
    key : str
        Names the content: function, version, element, seed of the run, and how many equal elements came before it.
    index : int
        Its place in the iterable.
    value : Any
        What the function gets.
    name : str
        For people.
    seed : int
        32 bits that belong to the key, so that ``numpy.random.seed`` takes it.
    """

    key: Key
    index: int
    value: Any
    name: str
    seed: int


def items(values: Iterable[Any], function: str, version: str, seed: int = 0) -> tuple[Item, ...]:
    """The elements of an iterable as items.

    Equal elements are told apart by counting them: ``[7, 7]`` are two items with a seed each.

    Raises
    ------
    ConfigError
        If an element has no content that can be named on another day.

    Examples
    --------
    >>> one, two = items([7, 7], "bench:step", "v1")
    >>> one.name, one.key != two.key, one.seed != two.seed
    ('7', True, True)
    >>> items([7], "bench:step", "v1")[0] == one
    True
    """
    seen: Counter[str] = Counter()
    made = []
    for index, value in enumerate(values):
        content = content_of(value)
        before = seen[content]
        seen[content] += 1
        key = content_key("item", function, version, content, before, seed)
        made.append(Item(key, index, value, short(value), seed_of(key) >> 31))
    return tuple(made)


def content_of(value: Any) -> str:
    """A text that is equal for equal values, in every process.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if is_plain(value):
        return content_key(value)
    from dask.base import tokenize

    try:
        return str(tokenize(value, ensure_deterministic=True))
    except Exception as error:  # whatever a foreign __reduce__ or __dask_tokenize__ raises
        raise ConfigError(
            f"{short(value)} ({type(value).__name__}) has no content that names it on another day, so that a resumed "
            f"run would not know it: {error}. Map over numbers, text, lists, dicts, arrays or dataclasses."
        ) from None


def is_plain(value: Any) -> bool:
    """Whether JSON says all of a value, and says it in one way only."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def short(value: Any) -> str:
    """A few words for a table."""
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) <= _LONGEST_NAME else text[: _LONGEST_NAME - 3] + "..."


SUFFIXES = (".jsonl", ".csv", ".txt")
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)")
_DECIMAL = re.compile(r"[+-]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def from_file(path: Path) -> list[Any]:
    """The items of a file: JSON values of ``.jsonl``, rows of ``.csv`` as dicts, lines of ``.txt``; no empty ones.

    Numbers in a CSV file become numbers.

    Raises
    ------
    ConfigError
        If there is no such file, its suffix is another, or a line cannot be read.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"Cannot read items from '{path}': the suffix must be one of {', '.join(SUFFIXES)}.")
    if not path.is_file():
        raise ConfigError(f"There is no file '{path}'.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not UTF-8: {error}.") from None
    read = {".jsonl": _json_lines, ".csv": _rows, ".txt": _lines}[path.suffix]
    found = read(text, path)
    if not found:
        raise ConfigError(f"'{path}' holds no items.")
    return found


def _lines(text: str, path: Path) -> list[Any]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _json_lines(text: str, path: Path) -> list[Any]:
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ConfigError(f"Line {number} of '{path}' is not JSON: {error}.") from None
    return found


def _rows(text: str, path: Path) -> list[Any]:
    rows = list(csv.DictReader(text.splitlines()))
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise ConfigError(f"Line {number} of '{path}' has not as many values as the header has names.")
    return [{name: _number(value) for name, value in row.items()} for row in rows]


def _number(text: str) -> int | float | str:
    """A number if the text is one and says it plainly: ``007`` and ``1_000`` stay text.

    Examples
    --------
    >>> _number("3"), _number("1e-4"), _number("007"), _number("cosine")
    (3, 0.0001, '007', 'cosine')
    """
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else text
