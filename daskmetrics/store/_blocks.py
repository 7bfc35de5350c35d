"""The chunk of each checkpoint, from the records of the units that fill it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from daskmetrics.core.events import Record, StorePlan
from daskmetrics.core.names import Arm, Cell, Checkpoint, Key, content_key, grid
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Measured, Scored, Status


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
        shape = layers, names
        values = np.full(shape, np.nan)
        return cls(values, values.copy(), np.full(shape, status, np.uint8))

    def differs(self, other: Block) -> np.ndarray:
        """The cells (layers, names) that are not equal bit for bit; NaN equals NaN."""
        different: np.ndarray = self.status != other.status
        for numbers, others in ((self.values, other.values), (self.stderr, other.stderr)):
            different |= ~np.isclose(numbers, others, rtol=0, atol=0, equal_nan=True)
        return different

    def equals(self, other: Block) -> bool:
        """Whether both are equal bit for bit; NaN equals NaN."""
        return self.values.shape == other.values.shape and not self.differs(other).any()


def metric_blocks(plan: StorePlan, records: Iterable[Record]) -> dict[Checkpoint, Block]:
    """The metrics of every checkpoint that has a record; a failed one has its status and no
    numbers.
    """
    names = len(plan.template.metrics.names)
    if not names:
        return {}
    by_key = {record.key: record for record in records if record.kind == "measure"}
    blocks = {}
    for suite in plan.template.suites:
        for checkpoint in suite.checkpoints():
            record = by_key.get(plan.measure[str(checkpoint)])
            if record is None:
                continue
            if isinstance(record.value, Measured):
                blocks[checkpoint] = Block.of(record.value)
            else:
                status = Status[record.status.upper()]
                blocks[checkpoint] = Block.empty(len(suite.layers), names, status)
    return blocks


def score_blocks(plan: StorePlan, records: Iterable[Record]) -> dict[Checkpoint, Block]:
    """The scores of every checkpoint of which at least one cell has a record."""
    by_key = {record.key: record for record in records if record.kind == "score"}
    blocks: dict[Checkpoint, Block] = {}
    if not by_key:
        return blocks
    for arm, task in product(grid(plan.template.suites), plan.template.tasks.names):
        cell = Cell(arm, task)
        if record := by_key.get(key_of(plan, cell) or ""):
            add_score(blocks, plan, cell, record)
    return blocks


def add_score(blocks: dict[Checkpoint, Block], plan: StorePlan, cell: Cell, record: Record) -> None:
    """Enter the score of a cell, or why there is none, into the block of its checkpoint."""
    arm = cell.arm
    tasks = plan.template.tasks.names
    rows = next(suite.rows for suite in plan.template.suites if suite.model == arm.model)
    block = blocks.setdefault(arm.checkpoint, Block.empty(len(rows), len(tasks)))
    position = rows.index((arm.layer, arm.readout)), tasks.index(cell.task)
    block.status[position] = Status[record.status.upper()]
    if isinstance(record.value, Scored):
        block.values[position] = record.value.score
        block.stderr[position] = record.value.stderr


def key_of(plan: StorePlan, cell: Cell) -> Key | None:
    """The key of the unit that scores a cell; None if the plan has no such cell."""
    tasks = plan.template.tasks.names
    encodings = plan.encode.get(str(cell.arm.checkpoint))
    if encodings is None or cell.task not in tasks:
        return None
    encode = encodings[tasks.index(cell.task)]
    corpus = plan.template.attributes.get("corpus", {}).get("key", "")
    return score_key(plan.version, encode, cell.arm, plan.seed, corpus)


def score_key(version: int, encode: Key, arm: Arm, seed: int, corpus: Key = "") -> Key:
    """Names everything that decides the score of an arm, given what encodes its checkpoint for the
    task.

    The corpus is part of it only if the arm's readout is fitted on it.
    """
    fitted = []
    if Readout.parse(arm.readout).principal:
        fitted = [corpus]
    return content_key("score", version, encode, str(arm), arm.layer, seed, *fitted)
