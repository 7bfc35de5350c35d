"""The chunk of each checkpoint, from the records of the units that fill it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from daskmetrics.domain.names import Cell, Checkpoint
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Measured, Scored, Status


@dataclass(frozen=True)
class Block:
    """Values of one checkpoint along one axis, arrays (layers, names).

    With readouts, they are (layers and readouts, names).
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
        """The cells (layers, names) whose bits differ; NaN equals NaN."""
        different: np.ndarray = self.status != other.status
        for numbers, others in ((self.values, other.values), (self.stderr, other.stderr)):
            different |= ~np.isclose(numbers, others, rtol=0, atol=0, equal_nan=True)
        return different

    def equals(self, other: Block) -> bool:
        """Whether both are equal bit for bit; NaN equals NaN."""
        return self.values.shape == other.values.shape and not self.differs(other).any()


def metric_blocks(plan: Plan, records: Iterable[Record]) -> dict[Checkpoint, Block]:
    """The metrics of every checkpoint that has a record.

    A failed one has its status and no numbers.
    """
    names = len(plan.metrics)
    if not names:
        return {}
    by_key = {record.key: record for record in records if record.kind == "measure"}
    blocks = {}
    for checkpoint, key in plan.measure_keys.items():
        record = by_key.get(key)
        if record is None:
            continue
        if isinstance(record.value, Measured):
            blocks[checkpoint] = Block.of(record.value)
        else:
            layers = len(plan.by_model[checkpoint.model].layers)
            blocks[checkpoint] = Block.empty(layers, names, Status[record.status.upper()])
    return blocks


def score_blocks(plan: Plan, records: Iterable[Record]) -> dict[Checkpoint, Block]:
    """The scores of every checkpoint with a record of a cell."""
    blocks: dict[Checkpoint, Block] = {}
    for record in plan.records(records):
        if record.kind == "score":
            add_score(blocks, plan, record)
    return blocks


def add_score(blocks: dict[Checkpoint, Block], plan: Plan, record: Record) -> None:
    """Enter a score, or why there is none, into its checkpoint's block."""
    cell = Cell.parse(record.name)
    arm = cell.arm
    if str(arm.checkpoint) not in plan.encodings:  # deleted since
        return
    tasks = list(plan.kinds)
    rows = plan.by_model[arm.model].rows
    block = blocks.setdefault(arm.checkpoint, Block.empty(len(rows), len(tasks)))
    position = rows.index((arm.layer, arm.readout)), tasks.index(cell.task)
    block.status[position] = Status[record.status.upper()]
    if isinstance(record.value, Scored):
        block.values[position] = record.value.score
        block.stderr[position] = record.value.stderr
