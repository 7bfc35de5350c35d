"""What a function is applied to: items with keys from their content, and seeds from their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from daskmetrics.arms import Key, content_key, seed_of
from daskmetrics.errors import ConfigError

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
