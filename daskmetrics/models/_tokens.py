"""Texts as token ids, cached by tokenizer and texts, and as batches under a token budget."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from daskmetrics.config._checkpoints import Location, folder_of
from daskmetrics.core._corpus import digest
from daskmetrics.core.errors import DataError

_CHUNK = 1024  # texts per call of the tokenizer: what it returns is ten times as large as the ids
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


class LRUCache(Generic[V]):
    """The values used last, by key.

    >>> squares = LRUCache(1)
    >>> squares.get(3, lambda: 9), squares.get(3, lambda: 0)
    (9, 9)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of this key, made if it is not cached."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return value


@dataclass(frozen=True)
class Tokens:
    """Token ids of N texts, end to end; each text has at least one."""

    ids: np.ndarray  # (sum of lengths,) of int32
    lengths: tuple[int, ...]
    starts: np.ndarray  # (N,) of int64

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.starts[row] : self.starts[row] + self.lengths[row]]


_TOKENIZERS: LRUCache[Any] = LRUCache(4)
_TOKENS: LRUCache[Tokens] = LRUCache(8)


class Tokenizer:
    """A checkpoint's tokenizer; checkpoints with equal tokenizer files share it and its cache."""

    def __init__(self, location: Location) -> None:
        self._key = _content_key(location)
        self._tokenizer = _TOKENIZERS.get(self._key, lambda: _load(location))

    @property
    def pad(self) -> int:
        """The token id to pad with; some tokenizers have no padding token."""
        tokenizer = self._tokenizer
        candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0)
        return next(int(token) for token in candidates if token is not None)

    def __call__(self, texts: Sequence[str], max_length: int) -> Tokens:
        """The first ``max_length`` tokens of each text."""
        key = (self._key, digest(texts), max_length)
        return _TOKENS.get(key, lambda: self._tokenize(list(texts), max_length))

    def prompt_length(self, prompt: str) -> int:
        """Tokens of a prompt at the beginning of a text: without a special token at its end, such as ``[SEP]``."""
        ids = self._tokenizer(prompt)["input_ids"] if prompt else []
        return len(ids) - (bool(ids) and ids[-1] in self._tokenizer.all_special_ids)

    def _tokenize(self, texts: list[str], max_length: int) -> Tokens:
        rows: list[np.ndarray] = []
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            encoded = self._tokenizer(chunk, truncation=True, max_length=max_length, padding=False)["input_ids"]
            # a text without tokens becomes one padding token, so that it has a vector
            rows += [np.array(row or [self.pad], np.int32) for row in encoded]
        lengths = tuple(map(len, rows))
        starts = np.cumsum([0, *lengths], dtype=np.int64)[:-1]
        return Tokens(np.concatenate(rows) if rows else np.empty(0, np.int32), lengths, starts)


def _content_key(location: Location) -> Hashable:
    """Digests of the tokenizer's files, or the hub id and revision if they are not on this machine."""
    folder = folder_of(location)
    if folder is None:
        return location.path, location.revision
    files = [folder / name for name in _FILES if (folder / name).is_file()]
    return tuple((path.name, sha256(path.read_bytes()).hexdigest()) for path in files)


def _load(location: Location) -> Any:
    try:
        return import_transformers().AutoTokenizer.from_pretrained(
            location.path, revision=location.revision or "main", trust_remote_code=False
        )
    except Exception as error:
        raise DataError(f"Cannot load the tokenizer in '{location.path}': {error}") from error


def import_transformers() -> Any:
    """The transformers library, without its progress bars and log lines."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would compete with those of other workers
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def plan_batches(lengths: Sequence[int], budget: int, rows: Iterable[int] | None = None) -> list[list[int]]:
    """Rows of texts, sorted by length and cut into batches of at most ``budget`` padded tokens.

    A text longer than the budget has a batch of its own.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each text.
    budget : int
        Padded tokens per batch.
    rows : iterable of int, optional
        Texts to plan; by default all.

    Examples
    --------
    >>> plan_batches([5, 1, 3, 2], budget=6)
    [[1, 3], [2], [0]]
    """
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)) if rows is None else rows, key=lambda row: (lengths[row], row)):
        if batches and (len(batches[-1]) + 1) * lengths[row] <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def reduced_budget(batch: Sequence[int], lengths: Sequence[int], budget: int) -> int:
    """The token budget to try after a batch ran out of memory: half of the budget or of the batch, the smaller one.

    >>> reduced_budget([0, 1, 2], lengths=[10, 10, 20], budget=64)
    30
    """
    padded = len(batch) * max(lengths[row] for row in batch)
    return max(1, min(budget, padded) // 2)


def pad_batch(tokens: Sequence[Any], pad: int, side: str) -> tuple[Tensor, Tensor]:
    """Token ids (B, T) and mask (B, T), padded on the right or on the left.

    Parameters
    ----------
    tokens : sequence of sequences of int, or of integer arrays
    pad : int
    side : {"left", "right"}

    Examples
    --------
    >>> pad_batch([[5, 6], [7]], pad=0, side="left")[0].tolist()
    [[5, 6], [0, 7]]
    """
    width = max(len(row) for row in tokens)
    ids = torch.full((len(tokens), width), pad)
    mask = torch.zeros((len(tokens), width), dtype=torch.bool)
    for i, row in enumerate(tokens):
        span = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, span] = torch.as_tensor(row)
        mask[i, span] = True
    return ids, mask


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector per text, (B, D), from states (B, T, D) and mask (B, T).

    ``mean`` over real tokens, the ``last`` real token, or the first (``cls``).

    Examples
    --------
    >>> pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]), "mean")
    tensor([[2.]])
    """
    if pooling not in ("mean", "last", "cls"):
        raise ValueError(f"Unknown pooling '{pooling}': mean, last or cls is expected.")
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(torch.float32)
        return (states.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
    positions = torch.arange(mask.shape[1], device=mask.device)
    index = torch.where(mask, positions, -1).argmax(1) if pooling == "last" else mask.float().argmax(1)
    return states[torch.arange(states.shape[0], device=states.device), index]
