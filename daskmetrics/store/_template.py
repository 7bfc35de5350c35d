"""The plan of a store: its shape, the keys of the units that fill it, and the chunk of each
checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np

from daskmetrics.core.events import Event, Record, StorePlanned, latest
from daskmetrics.core.names import (
    Arm,
    Cell,
    Checkpoint,
    Key,
    Suite,
    content_key,
    grid,
    without_default,
)
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Measured, Scored
from daskmetrics.core.serialization import build
from daskmetrics.core.status import Status


@dataclass(frozen=True)
class Axis:
    """The names along one dimension, with the unit and description of each."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    descriptions: tuple[str, ...]


@dataclass(frozen=True)
class Template:
    """The shape and meaning of a store.

    Attributes
    ----------
    suites : tuple of Suite
    metrics, tasks : Axis
    meaning : str
        Key of everything that decides the numbers: weights, prompts, protocol, tasks, seed.
    attributes : mapping
        Protocol, versions and the like; kept at the root of the store.
    """

    suites: tuple[Suite, ...]
    metrics: Axis
    tasks: Axis
    meaning: Key
    attributes: Mapping[str, Any]

    @property
    def key(self) -> Key:
        """Names shape and meaning of the store: numbers of different keys must not be in one
        store.
        """
        # a suite of default readouts has the key that it had before there were others
        suites = [[*asdict(s, dict_factory=without_default).values()] for s in self.suites]
        return content_key("store", 1, suites, self.metrics.names, self.tasks.names, self.meaning)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self, dict_factory=without_default), "attributes": dict(self.attributes)}


@dataclass(frozen=True)
class Block:
    """Values of one checkpoint along one axis: arrays (layers, names), with readouts (layers and
    readouts, names).
    """

    values: np.ndarray
    stderr: np.ndarray
    status: np.ndarray

    @classmethod
    def of(cls, measured: Measured) -> Block:
        """The metrics of a checkpoint; an undefined number becomes NaN."""
        return cls(
            np.array(measured.values, dtype=float),
            np.array(measured.stderr, dtype=float),
            np.array(measured.status, dtype=np.uint8),
        )

    @classmethod
    def empty(cls, layers: int, names: int, status: Status = Status.MISSING) -> Block:
        """A block without values."""
        nan = np.full((layers, names), np.nan)
        return cls(nan, nan.copy(), np.full((layers, names), status, np.uint8))

    def differs(self, other: Block) -> np.ndarray:
        """The cells (layers, names) that are not equal bit for bit; NaN equals NaN."""
        different: np.ndarray = self.status != other.status
        for a, b in ((self.values, other.values), (self.stderr, other.stderr)):
            different |= (a != b) & ~(np.isnan(a) & np.isnan(b))
        return different

    def equals(self, other: Block) -> bool:
        """Whether both are equal bit for bit; NaN equals NaN."""
        return self.values.shape == other.values.shape and not self.differs(other).any()


@dataclass(frozen=True)
class StorePlan:
    """A template and the keys of the units that fill it: enough to build the store from the journal
    alone.

    Attributes
    ----------
    template : Template
    version : int
        Of the computation.
    seed : int
        The run's.
    measure : mapping of str to Key
        Of each checkpoint.
    encode : mapping of str to tuple of Key
        Of each checkpoint, one for each task.
    files : mapping of str to str
        Digests of the metadata and coordinate files (`files_of`).
    """

    template: Template
    version: int
    seed: int
    measure: Mapping[str, Key]
    encode: Mapping[str, tuple[Key, ...]]
    files: Mapping[str, str] = field(default_factory=dict)

    def metric_blocks(self, records: Iterable[Record]) -> dict[Checkpoint, Block]:
        """The metrics of every checkpoint that has a record; a failed one has its status and no
        numbers.
        """
        names = len(self.template.metrics.names)
        if not names:
            return {}
        by_key = {record.key: record for record in records if record.kind == "measure"}
        blocks = {}
        for suite in self.template.suites:
            for checkpoint in suite.checkpoints():
                record = by_key.get(self.measure[str(checkpoint)])
                if record is None:
                    continue
                if isinstance(record.value, Measured):
                    blocks[checkpoint] = Block.of(record.value)
                else:
                    status = Status.of(record.status)
                    blocks[checkpoint] = Block.empty(len(suite.layers), names, status)
        return blocks

    def score_blocks(self, records: Iterable[Record]) -> dict[Checkpoint, Block]:
        """The scores of every checkpoint of which at least one cell has a record."""
        by_key = {record.key: record for record in records if record.kind == "score"}
        suites, tasks = self.template.suites, self.template.tasks.names
        cells = {}
        for arm, task in product(grid(suites), tasks) if by_key else ():
            record = by_key.get(self.key_of(Cell(arm, task)) or "")
            if record is None:
                continue
            cells[arm, task] = math.nan, math.nan, Status.of(record.status)
            if isinstance(record.value, Scored):
                cells[arm, task] = record.value.score, record.value.stderr, Status.OK
        return blocks_of_cells(suites, tasks, cells)

    def key_of(self, cell: Cell) -> Key | None:
        """The key of the unit that scores a cell; None if the plan has no such cell."""
        tasks = self.template.tasks.names
        encode = self.encode.get(str(cell.arm.checkpoint))
        if encode is None or cell.task not in tasks:
            return None
        corpus = self.template.attributes.get("corpus", {}).get("key", "")
        return score_key(self.version, encode[tasks.index(cell.task)], cell.arm, self.seed, corpus)

    def event(self) -> StorePlanned:
        """Its entry in the journal."""
        return StorePlanned(**{**vars(self), "template": self.template.as_json()})

    @classmethod
    def latest(cls, entries: Iterable[Event]) -> StorePlan | None:
        """The plan that a journal holds last, or None."""
        entry = latest(list(entries), StorePlanned)
        if entry:
            return cls.of(entry)
        return None

    @classmethod
    def of(cls, entry: StorePlanned) -> StorePlan:
        """From its entry in the journal."""
        return build(cls, vars(entry))


def score_key(version: int, encode: Key, arm: Arm, seed: int, corpus: Key = "") -> Key:
    """Names everything that decides the score of an arm, given what encodes its checkpoint for the
    task.

    The corpus is part of it only if the arm's readout is fitted on it.
    """
    fitted = []
    if Readout.parse(arm.readout).principal:
        fitted = [corpus]
    return content_key("score", version, encode, str(arm), arm.layer, seed, *fitted)


def blocks_of_cells(
    suites: Sequence[Suite],
    tasks: Sequence[str],
    cells: Mapping[tuple[Arm, str], tuple[float, float, Status]],
) -> dict[Checkpoint, Block]:
    """The score chunks of all checkpoints that have a cell; ``cells`` maps (arm, task)."""
    blocks: dict[Checkpoint, Block] = {}
    rows = {suite.model: suite.rows for suite in suites}
    for (arm, task), cell in cells.items():
        suite_rows = rows[arm.model]
        block = blocks.setdefault(arm.checkpoint, Block.empty(len(suite_rows), len(tasks)))
        at = suite_rows.index((arm.layer, arm.readout)), tasks.index(task)
        block.values[at], block.stderr[at], block.status[at] = cell
    return blocks
