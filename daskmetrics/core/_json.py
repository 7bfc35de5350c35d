"""Results as one JSON document: what is not a number is null, and names of arms are text; and reading foreign ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

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


T = TypeVar("T")


def build(cls: Callable[..., T], values: Mapping[str, Any]) -> T:
    """A data class from the values of a JSON object; raises ValueError that names the field of a wrong type.

    >>> from dataclasses import make_dataclass
    >>> build(make_dataclass("Worker", [("name", str), ("ends", float | None)]), {"name": "a", "ends": "soon"})
    Traceback (most recent call last):
        ...
    ValueError: the field 'ends' is 'soon' (wanted: float | None)
    """
    accepts = _fields(cls)
    for name, value in values.items():
        if name not in accepts:
            raise ValueError(f"the field {name!r:.100} is not known")
        if not accepts[name][0](value):
            raise ValueError(f"the field '{name}' is {value!r:.100} (wanted: {accepts[name][1]})")
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"fields are missing: {str(error).partition(': ')[2]}") from None


@cache
def _fields(cls: Callable[..., Any]) -> dict[str, tuple[Callable[[Any], bool], str]]:
    """Of each field of a data class: whether it accepts a value, and its type."""
    return {
        name: (_accepting(hint), hint.__name__ if isinstance(hint, type) else re.sub(r"\w+\.", "", str(hint)))
        for name, hint in get_type_hints(cls).items()
    }


def _accepting(hint: Any) -> Callable[[Any], bool]:
    """Whether a type has a value; all values of JSON for ``Any``."""
    inner = [_accepting(each) for each in get_args(hint)]
    if hint is Any:
        return lambda value: True
    if hint is float:
        return lambda value: isinstance(value, float | int)
    if isinstance(hint, UnionType):
        return lambda value: any(accepts(value) for accepts in inner)
    if get_origin(hint) is Mapping:
        key, held = inner
        return lambda value: isinstance(value, Mapping) and all(key(k) and held(v) for k, v in value.items())
    if get_origin(hint) is Sequence:
        return lambda value: isinstance(value, list | tuple) and all(map(inner[0], value))
    return lambda value: isinstance(value, hint)


@contextmanager
def readable(what: str, place: Path | str) -> Iterator[None]:
    """Turn what Python raises for content of another form into one `DataError` that names what is read, and where."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError, OSError) as error:
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{what} cannot be read from '{place}': {type(error).__name__}: {text}") from None
