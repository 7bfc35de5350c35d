"""What a finished work unit gives: one frozen class for each kind of unit; and the status of a
value, which journal, store and report share.

A worker returns such a value, the journal holds it as a JSON object without the fields that are
None, and every reader gets it back in the class of its kind (`result_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from enum import IntEnum
from itertools import chain
from typing import Any, TypeAlias

from daskmetrics.core.keys import Key
from daskmetrics.core.serialization import build

Row: TypeAlias = tuple[float | None, ...]


@dataclass(frozen=True)
class Trained:
    """A checkpoint that was trained, and what that took."""

    loss: float
    tokens: float
    seconds: float


@dataclass(frozen=True)
class NetworkSize:
    """Numbers of weights: what reading a layer takes.

    There is one number for each of ``layers``.

    Attributes
    ----------
    parameters : tuple of int
        Of all that a layer needs, embeddings included and later blocks left out.
    computed : tuple of int
        Of the blocks that run for a layer; a block that runs twice counts twice.
    attention : int
        Width of the attention, all heads together; 0 without attention.
    whole : int
        Of the loaded network.
    """

    parameters: tuple[int, ...]
    computed: tuple[int, ...]
    attention: int
    whole: int
    layers: tuple[int, ...] | None = None  # None: those that were measured


@dataclass(frozen=True)
class Download:
    """What the download of a checkpoint took."""

    bytes: float
    seconds: float
    waited: float = 0.0  # seconds that a worker waited for it


@dataclass(frozen=True)
class Measured:
    """The metrics of a checkpoint: a row per layer, a column per metric.

    None where a metric is undefined.
    """

    layers: tuple[int, ...]
    names: tuple[str, ...]
    values: tuple[Row, ...]
    stderr: tuple[Row, ...]
    status: tuple[tuple[int, ...], ...]
    reasons: tuple[tuple[int, str, str], ...] = ()  # layer, metric and why it is undefined
    metrics: tuple[Key, ...] = ()  # keys of the metrics
    states: Key | None = None  # of the states from which they were computed
    size: NetworkSize | None = None
    download: Download | None = None
    copies: int | None = None  # prompts that do not count: another one has their tokens

    def __post_init__(self) -> None:
        for name in ("values", "stderr", "status"):
            if [len(self.names)] * len(self.layers) != list(map(len, getattr(self, name))):
                raise ValueError(f"{name} is no table of {self.layers} by {self.names}")
        if not set(chain.from_iterable(self.status)) <= set(Status):
            raise ValueError(f"status is {self.status}")


@dataclass(frozen=True)
class Reading:
    """The time in which a task's texts were read."""

    texts: int
    layer: int
    seconds: float


@dataclass(frozen=True)
class Outcomes:
    """What a score says of every item, packed (`domain.outcomes.pack`)."""

    items: Key  # names the items and their order
    n: int
    bits: str | None = None  # base64 of one bit for each item ...
    float16: str | None = None  # ... or of numbers, compressed
    centre: float | None = None  # an outcome is this number times the unit, beyond the centre
    unit: float | None = None


@dataclass(frozen=True)
class Scored:
    """The score of one task for one candidate."""

    score: float
    stderr: float
    n: int | None = None
    encode_seconds: float = 0.0
    encoded_on: str | None = None  # a worker
    bytes: int = 0  # of the embeddings of all layers
    dimensions: int | None = None
    tokens: float | None = None  # of a text, in the mean
    reading: Reading | None = None
    protocol: Key | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    size: NetworkSize | None = None
    detail: Mapping[str, Any] | None = None  # what the benchmark says beside the score
    outcomes: Outcomes | None = None


@dataclass(frozen=True)
class ItemOutcome:
    """The outcome of a function for one item: ok, nan, oom or error."""

    key: Key
    status: str
    value: Any = None
    reason: str | None = None
    traceback: str | None = None
    permanent: bool = False  # whether trying again cannot help
    seconds: float | None = None


@dataclass(frozen=True)
class Mapped:
    """The outcomes of a batch of items, in order."""

    items: tuple[ItemOutcome, ...]


Result: TypeAlias = Trained | Measured | Scored | Mapped

RESULTS: Mapping[str, type[Result]] = {
    "train": Trained,
    "measure": Measured,
    "score": Scored,
    "fresh": Scored,
    "batch": Mapped,
}
"""The class of the result of each kind of unit; others give any value of JSON."""


def result_of(kind: str, value: object) -> object:
    """The result of a unit from its JSON.

    It is a ValueError that names a wrong field.
    """
    if isinstance(value, Mapping) and kind in RESULTS:
        return build(RESULTS[kind], value)
    return value


def result_as_json(value: object) -> Any:
    """The inverse of `result_of`, without the fields that are None.

    >>> result_as_json(Mapped((ItemOutcome("a", "ok", 3),)))
    {'items': [{'key': 'a', 'status': 'ok', 'value': 3, 'permanent': False}]}
    """
    if is_dataclass(value):
        fields = vars(value).items()
        return {name: result_as_json(field) for name, field in fields if field is not None}
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return list(map(result_as_json, value))
    return value


EQUAL = 1e-6
"""Vectors are equal if no entry differs by more than this share of the largest; a layer of such has no numbers."""


class Status(IntEnum):
    """Status of a value in the Zarr arrays.

    A failure has a status and a reason, never a number. Records and tables have its name in lower
    case.
    """

    MISSING = 0
    OK = 1
    NAN = 2
    OOM = 3
    TIMEOUT = 4
    QUARANTINED = 5
    ERROR = 6
    NOT_APPLICABLE = 7


FLAGS = {
    "flag_values": [int(status) for status in Status],
    "flag_meanings": " ".join(status.name.lower() for status in Status),
}
"""Attributes that explain the numbers to a reader of the store (CF conventions, section 3.5)."""
