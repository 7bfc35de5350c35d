"""Texts as token ids, cached by tokenizer and texts; and how the library that reads them is imported."""

from __future__ import annotations

import os
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from daskmetrics.checkpoints.layout import beside_weights, names_of
from daskmetrics.checkpoints.locations import Location, fetched, tokenizer_of
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DataError, foreign_errors

IDS = "input_ids"
_CHUNK = 1024  # texts per call of the tokenizer: what it returns is ten times as large as the ids
_SANE = (8, 1_000_000)  # other lengths stand for no limit
_ORDINARY = 2  # tokens that are not special, at least; a tokenizer without vocabulary has none
_LOST = 0.1  # share of texts that may have the tokens of another text

V = TypeVar("V")


class LRUCache:
    """The values used last, by key.

    >>> squares = LRUCache(1)
    >>> squares.get(3, lambda: 9), squares.get(3, lambda: 0)
    (9, 9)
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """The value of this key, made unless it is cached."""
        value: V = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return value


def import_transformers() -> Any:
    """The transformers library, without its progress bars and log lines."""
    # its threads would compete with those of other workers
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


Tokens: TypeAlias = NDArray[np.int32]
"""Token ids of a text, at least one."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """A network of transformers and its tokenizer in memory.

    It stands in place of the location of a checkpoint.
    """

    module: Any
    tokenizer: Any
    path: str  # its name, in messages
    revision: ClassVar[None] = None


_TOKENIZERS = LRUCache(4)
_TOKENS = LRUCache(8)


class Tokenizer:
    """A checkpoint's tokenizer.

    Checkpoints with equal tokenizer files share it and its cache.
    """

    def __init__(self, location: Location | InMemory) -> None:
        if isinstance(location, InMemory):
            self._key: Hashable = object()  # not the location, which the cache would keep in memory
            self.of_transformers = location.tokenizer
            _check_vocabulary(self.of_transformers, f"of {location.path}")
        else:
            self._key = _content_key(location)
            self.of_transformers = _TOKENIZERS.get(self._key, lambda: _load(location))
        tokenizer = self.of_transformers
        candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0)
        # some tokenizers have no padding token
        self.pad = next(int(token) for token in candidates if token is not None)
        # tokens of the longest text that it was made for, if it states such a number
        self.limit: int | None = None
        if _SANE[0] <= tokenizer.model_max_length <= _SANE[1]:
            self.limit = int(tokenizer.model_max_length)

    def __call__(self, texts: Sequence[str], max_length: int) -> list[Tokens]:
        """The first ``max_length`` tokens of each text."""
        return self.inputs(texts, max_length)[IDS]

    def inputs(self, texts: Sequence[str], max_length: int) -> dict[str, list[Tokens]]:
        """What the tokenizer gives for the first ``max_length`` tokens.

        By argument, such as ``token_type_ids``: the tokenizer's own ``model_input_names``, without
        the mask.
        """
        key = (self._key, tuple(self.of_transformers.model_input_names), digest(texts), max_length)
        return _TOKENS.get(key, lambda: self._tokenize(list(texts), max_length))

    def prompt_length(self, prompt: str) -> int:
        """Tokens of a prompt at the beginning of a text.

        A special token at its end, such as ``[SEP]``, is not one of them.
        """
        if not prompt:
            return 0
        ids = self.of_transformers(prompt)["input_ids"]
        ends_special = bool(ids) and ids[-1] in self.of_transformers.all_special_ids
        return len(ids) - ends_special

    def _tokenize(self, texts: list[str], max_length: int) -> dict[str, list[Tokens]]:
        inputs: dict[str, list[Tokens]] = {IDS: []}
        for start in range(0, len(texts), _CHUNK):
            chunk = texts[start : start + _CHUNK]
            encoded = self.of_transformers(
                chunk, truncation=True, max_length=max_length, padding=False
            )
            for name in encoded.keys() - {"attention_mask"}:
                # a text without tokens becomes one padding token, so that it has a vector
                empty = self.pad if name == IDS else 0
                kept = inputs.setdefault(name, [])
                kept += [np.array(row or [empty], np.int32) for row in encoded[name]]
        _check_distinct(texts, inputs[IDS], max_length)
        return inputs


def _content_key(location: Location) -> Hashable:
    network = fetched(location.base or location)
    # the configuration of the network may name the class
    folders = dict.fromkeys((tokenizer_of(location) or network, network))
    files = [
        folder / name for folder in folders for name in sorted(beside_weights(names_of(folder)))
    ]
    return tuple((path.name, sha256(path.read_bytes()).hexdigest()) for path in files)


def _load(location: Location) -> Any:
    options: dict[str, Any] = {"trust_remote_code": False}
    with foreign_errors(f"Cannot load the tokenizer in '{location.path}'", DataError):
        network = fetched(location.base or location)
        folder = tokenizer_of(location) or network
        transformers = import_transformers()
        if folder != network:  # no configuration beside it may say which class it is
            options["config"] = transformers.AutoConfig.from_pretrained(str(network), **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **options)
    _check_vocabulary(tokenizer, f"in '{location.path}'")
    return tokenizer


def _check_vocabulary(tokenizer: Any, which: str) -> None:
    special = set(tokenizer.all_special_ids)
    if len(tokenizer) - len(special) < _ORDINARY:
        raise DataError(
            f"The tokenizer {which} has no vocabulary ({len(tokenizer)} tokens, nearly all"
            " special): all texts would be the same to the model. Copy tokenizer.json and"
            " tokenizer_config.json of the base model into the folder, or write them with the"
            " save_pretrained of its tokenizer."
        )


def _check_distinct(texts: Sequence[str], rows: Sequence[Tokens], max_length: int) -> None:
    """Check that distinct texts become distinct tokens.

    Otherwise it is a `DataError` that names two of them. Two texts are distinct if they differ in
    more than what tokenizers drop: case, accents, white space and control characters. Of texts that
    were cut at ``max_length`` tokens, only the beginning counts that the tokens cover even when
    each is a quarter of a character, as bytes are. It is an error if more than one text and a tenth
    of the distinct texts have the tokens of another one, or if all have the same tokens. A few
    coincidences are healthy: a vocabulary without emoji makes the same unknown token of each.
    """
    by_tokens: dict[bytes, dict[str, int]] = {}
    for text, row in zip(texts, rows, strict=True):
        by_tokens.setdefault(row.tobytes(), {})[text] = len(row)
    distinct = [list(group) for group in by_tokens.values()]
    for number, group in enumerate(by_tokens.values()):
        if len(group) == 1:
            continue
        cut = length = None
        if max(group.values()) >= max_length:
            # up to four tokens are special, and up to four are one character
            cut = max(0, max_length - 4) // 4
        plain = {_plain(text[:cut]): text for text in group}
        if cut is not None:
            length = min(map(len, plain))
        by_form = {form[:length]: text for form, text in plain.items()}
        distinct[number] = list(by_form.values())
    total = sum(map(len, distinct))
    lost = total - len(distinct)
    if lost and (len(distinct) == 1 or lost > max(1, _LOST * total)):
        text, other, *_ = max(distinct, key=len)
        raise DataError(
            f"{lost} of {total} distinct texts become the same tokens as another text, such as"
            f" {text[:50]!r} and {other[:50]!r}. The tokenizer does not know their characters or is"
            " not the one of this model: copy tokenizer.json and tokenizer_config.json of the base"
            " model, or choose texts in a language that it reads."
        )


def _plain(text: str) -> str:
    """A text without what tokenizers drop."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(char for char in folded if unicodedata.category(char)[0] not in "MZC")
