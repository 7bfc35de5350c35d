"""Texts as token ids: once per tokenizer and set of texts, and no more than a few sets kept."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

import numpy as np

from daskmetrics.config._checkpoints import Location
from daskmetrics.core._corpus import digest
from daskmetrics.core.errors import DataError
from daskmetrics.models._weights import folder_of

_CHUNK = 1024  # texts that the tokenizer is given at once: what it returns is ten times as large as the ids
_FILES = (
    "config.json",  # may name the tokenizer's class
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)

V = TypeVar("V")


class Recent(Generic[V]):
    """The last few values that were made, by key.

    Examples
    --------
    >>> squares = Recent(1)
    >>> squares.get(3, lambda: 9), squares.get(3, lambda: 0)
    (9, 9)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of this key, made now if it is not kept."""
        value = self._kept.pop(key) if key in self._kept else make()
        self._kept[key] = value
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
        return value


@dataclass(frozen=True)
class Tokens:
    """Token ids of N texts, end to end.

    Attributes
    ----------
    ids : ndarray (sum of lengths,) of int32
    lengths : tuple of int
        Tokens of each text, at least one.
    starts : ndarray (N,) of int64
    """

    ids: np.ndarray
    lengths: tuple[int, ...]
    starts: np.ndarray

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.starts[row] : self.starts[row] + self.lengths[row]]


_TOKENIZERS: Recent[Any] = Recent(4)
_TOKENS: Recent[Tokens] = Recent(8)


class Tokenizer:
    """A checkpoint's tokenizer; checkpoints with equal tokenizer files share one, and what it has read.

    Raises
    ------
    DataError
        If it cannot be loaded.
    """

    def __init__(self, location: Location) -> None:
        self._key = _content(location)
        self._tokenizer = _TOKENIZERS.get(self._key, lambda: _load(location))

    @property
    def pad(self) -> int:
        """A token to pad with; some tokenizers have none of that name."""
        tokenizer = self._tokenizer
        candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0)
        return next(int(token) for token in candidates if token is not None)

    def __call__(self, texts: Sequence[str], max_length: int) -> Tokens:
        """The first ``max_length`` tokens of each text."""
        key = (self._key, digest(texts), max_length)
        return _TOKENS.get(key, lambda: self._read(list(texts), max_length))

    def _read(self, texts: list[str], max_length: int) -> Tokens:
        rows: list[np.ndarray] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            read = self._tokenizer(chunk, truncation=True, max_length=max_length, padding=False)["input_ids"]
            # a text without any token stands for itself as one padding token, so that it has a vector
            rows += [np.array(row or [self.pad], np.int32) for row in read]
        lengths = tuple(map(len, rows))
        starts = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
        return Tokens(np.concatenate(rows) if rows else np.empty(0, np.int32), lengths, starts)


def _content(location: Location) -> Hashable:
    """What the tokenizer's files hold; where they are not here, where they come from."""
    folder = folder_of(location)
    if folder is None:
        return location.path, location.revision
    there = [folder / name for name in _FILES if (folder / name).is_file()]
    return tuple((path.name, sha256(path.read_bytes()).hexdigest()) for path in there)


def _load(location: Location) -> Any:
    try:
        return transformers().AutoTokenizer.from_pretrained(
            location.path, revision=location.revision or "main", trust_remote_code=False
        )
    except Exception as error:
        raise DataError(f"Cannot load the tokenizer in '{location.path}': {error}") from error


def transformers() -> Any:
    """The library, silenced."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would fight with the other workers'
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers
