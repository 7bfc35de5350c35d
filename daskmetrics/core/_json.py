"""Results as one JSON document: what is not a number is null, and names of arms are text; and reading foreign ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Arm, Cell, Checkpoint


def as_json(value: Any) -> str:
    """A value as a JSON document.

    >>> print(as_json({"arm": Arm("tiny", "step8", 3), "score": math.nan, "tasks": ("order",)}))
    {
     "arm": "tiny@step8/3",
     "score": null,
     "tasks": [
      "order"
     ]
    }
    """
    return json.dumps(plain(value), indent=1, allow_nan=False)


def plain(value: Any) -> Any:
    """A value of JSON: data classes become objects, numbers that are not finite become None.

    >>> plain({1: {"a"}, "x": [math.inf, Path("runs")]})
    {'1': ['a'], 'x': [None, 'runs']}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case Enum():
            return plain(value.value)
        case Arm() | Cell() | Checkpoint() | Path():
            return str(value)
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(map(plain, value))
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _ if hasattr(value, "tolist"):  # numbers and arrays of numpy
            return plain(value.tolist())
        case Iterable():
            return [plain(each) for each in value]
    raise TypeError(f"Cannot write {type(value).__name__} as JSON.")


def parse(text: str | bytes) -> Any:
    """The value of a JSON document; raises ValueError, also if it is nested too deeply.

    >>> parse(b'{"layers": [0, 6]}')
    {'layers': [0, 6]}
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


@contextmanager
def readable(what: str, place: Path | str) -> Iterator[None]:
    """Turn what Python raises for content of another form into one `DataError` that names what is read, and where."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{what} cannot be read from '{place}': {type(error).__name__}: {text}") from None
