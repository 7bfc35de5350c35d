"""Items from a file: a line, a row or a JSON value each."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

from daskmetrics.errors import ConfigError

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
