"""Results as one JSON document: what is not a number is null, and names of arms are text; and
reading foreign ones.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from zipfile import BadZipFile

from daskmetrics.core.errors import DataError

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def as_json(value: object) -> str:
    """A value as a JSON document.

    >>> print(as_json({"place": Path("runs"), "score": math.nan, "tasks": ("order",)}))
    {
     "place": "runs",
     "score": null,
     "tasks": [
      "order"
     ]
    }
    """
    return json.dumps(plain(value), indent=1, allow_nan=False)


def plain(value: object) -> Any:
    """A value as JSON: data classes are objects, infinite numbers None.

    >>> plain({1: {"a"}, "x": [math.inf, Path("runs")]})
    {'1': ['a'], 'x': [None, 'runs']}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return float(value)
            return None
        case Enum():
            return plain(value.value)
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(content) for key, content in value.items()}
        case set() | frozenset():
            return sorted(map(plain, value))
        case _ if is_dataclass(value) and "__str__" in vars(type(value)):  # a name
            return str(value)
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _ if hasattr(value, "tolist"):  # numbers and arrays of numpy
            return plain(value.tolist())
        case Iterable():
            return list(map(plain, value))
    raise TypeError(f"Cannot write {type(value).__name__} as JSON.")


def parse(text: str | bytes) -> Any:
    """The value of a JSON document; a ValueError if nested too deeply.

    >>> parse(b'{"layers": [0, 6]}')
    {'layers': [0, 6]}
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("the document is nested too deeply") from None


T = TypeVar("T")


def read_json(file: Path, kind: Callable[[Any], T]) -> T:
    """The content of a JSON file as a dict or list.

    It is a `DataError` if it is not one.
    """
    try:
        return kind(parse(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise DataError(f"'{file}' cannot be read as JSON: {error}") from None


def build(cls: Callable[..., T], values: Mapping[str, Any]) -> T:
    """A data class from the values of a JSON object.

    It is a ValueError that names the first field that is wrong.

    >>> from dataclasses import make_dataclass
    >>> build(make_dataclass("Worker", [("name", str), ("ends", float | None)]), {"name": "a", "ends": "soon"})
    Traceback (most recent call last):
        ...
    ValueError: the field 'ends' is 'soon' (Input should be a valid number, unable to parse string as a number)
    """
    from pydantic import ValidationError

    try:
        return cast("T", _adapter(cls).validate_python(values))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    field = ".".join(map(str, problem["loc"]))
    match problem["type"]:
        case "missing":
            raise ValueError(f"the field '{field}' is missing")
        case "unexpected_keyword_argument":
            raise ValueError(f"the field {field!r:.100} is not known")
    raise ValueError(f"the field '{field}' is {problem['input']!r:.100} ({problem['msg']})")


@cache
def _adapter(cls: Hashable) -> TypeAdapter[Any]:
    from pydantic import ConfigDict, TypeAdapter, with_config

    return TypeAdapter(with_config(ConfigDict(extra="forbid"))(cast("type[Any]", cls)))


MALFORMED = (
    *(LookupError, TypeError, ValueError, ArithmeticError, AttributeError),
    *(EOFError, MemoryError, RecursionError, BadZipFile, zlib.error),
)
"""What Python and its libraries raise for content of another form."""


@contextmanager
def readable(
    what: str, place: Path | str, kind: type[DataError] = DataError, remedy: str = ""
) -> Iterator[None]:
    """Turn what Python raises for other content into one error.

    It names what is read, and where.
    """
    try:
        yield
    except (*MALFORMED, RuntimeError, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise kind(
            f"{what} cannot be read from '{place}': {type(error).__name__}: {text}{remedy}"
        ) from None
