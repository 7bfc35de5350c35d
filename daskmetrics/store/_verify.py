"""Compare the store with the journal, and repair it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from daskmetrics.core.errors import DataError
from daskmetrics.core.events import Record
from daskmetrics.core.names import Checkpoint
from daskmetrics.core.status import Status
from daskmetrics.store._template import Block, StorePlan
from daskmetrics.store._zarr import PARTS, Reader, files_of, finish, lay_out, restore, stale_copies


class DamageKind(Enum):
    """The kind of difference between a part of the store and the journal."""

    METADATA = "metadata"  # or coordinates, which name the numbers
    CHUNK = "chunk"  # unreadable, or with other numbers than the journal
    UNVOUCHED = "unvouched"  # numbers without a record: their unit was not committed
    FILE = "file"  # the configuration or the prompts, which lie beside the store
    PENDING = "pending"  # not written yet: scores are written when the run ends

    @property
    def is_damage(self) -> bool:
        return self in (DamageKind.METADATA, DamageKind.CHUNK, DamageKind.FILE)


@dataclass(frozen=True)
class Damage:
    """A part of the store that differs from the journal.

    Attributes
    ----------
    kind : DamageKind
    where : str
        The checkpoint and the array, or a file of the store.
    what : str
        How it differs.
    checkpoint : Checkpoint or None
    """

    kind: DamageKind
    where: str
    what: str
    checkpoint: Checkpoint | None = None


def verify(path: Path, plan: StorePlan, records: Iterable[Record], finished: bool) -> list[Damage]:
    """Compare every file and every cell of a store with the journal.

    Parameters
    ----------
    path : Path
        The store.
    plan : StorePlan
        The plan of the store.
    records : iterable of Record
        The records of the journal.
    finished : bool
        Whether the run is finished, so that nothing may be missing.
    """
    if not path.is_dir():
        return [Damage(DamageKind.METADATA, str(path), "it is missing")]
    damages = list(check_files(path, plan.files))
    blocks = _blocks(plan, list(records))
    for suite in plan.template.suites:
        try:
            reader = Reader(path, suite.model)
        except DataError as error:
            damages.append(Damage(DamageKind.METADATA, suite.model, str(error)))
            continue
        for array, expected in blocks.items():
            for checkpoint in suite.checkpoints():
                damages += _chunk(reader, array, checkpoint, expected.get(checkpoint), finished)
    return damages


def _blocks(plan: StorePlan, records: Iterable[Record]) -> dict[str, dict[Checkpoint, Block]]:
    """What the journal holds of each checkpoint, for each axis that the store has."""
    blocks = {}
    if plan.template.metrics.names:
        blocks["metrics"] = plan.metric_blocks(records)
    if plan.template.tasks.names:
        blocks["scores"] = plan.score_blocks(records)
    return blocks


def repair(
    path: Path, plan: StorePlan, records: Iterable[Record], finished: bool
) -> tuple[list[Damage], StorePlan]:
    """Make a store equal to the journal.

    Returns
    -------
    list of Damage
        The differences that were repaired.
    StorePlan
        The plan with the new digests of metadata and coordinates.
    """
    records = list(records)
    damages = verify(path, plan, records, finished)
    blocks = _blocks(plan, records)
    if any(damage.kind is DamageKind.METADATA for damage in damages):
        lay_out(path, plan.template)
    else:  # remove the chunks that have no record, damaged or not
        for damage in damages:
            array = damage.where.rpartition(" ")[2]
            if damage.checkpoint is not None and damage.checkpoint not in blocks[array]:
                for file in Reader(path, damage.checkpoint.model).files(array, damage.checkpoint):
                    file.unlink(missing_ok=True)
    for array, recorded in blocks.items():
        restore(path, array, recorded)
    if finished:
        finish(path, {})
    return damages, dataclasses.replace(plan, files=files_of(path))


def check_files(path: Path, files: Mapping[str, str]) -> Iterator[Damage]:
    """Compare metadata and coordinates with the digests of what was laid out."""
    digests = files_of(path)
    for name, digest in files.items():
        if name not in digests:
            yield Damage(DamageKind.METADATA, name, "it is missing")
        elif digests[name] != digest:
            yield Damage(DamageKind.METADATA, name, "it was changed")
    for name in digests.keys() - files.keys():
        yield Damage(DamageKind.METADATA, name, "it is not part of this store")
    for name in stale_copies(path):
        yield Damage(
            DamageKind.METADATA, name, "its consolidated metadata differs from its members"
        )


def _chunk(
    reader: Reader, array: str, checkpoint: Checkpoint, expected: Block | None, finished: bool
) -> Iterator[Damage]:
    where = f"{checkpoint} {array}"
    try:
        missing = [file for file in reader.files(array, checkpoint) if not file.is_file()]
        if len(missing) == len(PARTS):
            if expected is not None:
                yield _absent(where, checkpoint, array, expected, finished)
            return
        block = reader.block(array, checkpoint)
    except DataError as error:
        yield Damage(DamageKind.CHUNK, where, str(error), checkpoint)
        return
    if expected is None:
        if missing or (block.status != Status.MISSING).any():
            yield Damage(DamageKind.UNVOUCHED, where, "the journal has no record of it", checkpoint)
    elif missing:
        yield Damage(DamageKind.CHUNK, where, f"its file {missing[0]} is missing", checkpoint)
    elif block.values.shape != expected.values.shape:
        yield Damage(
            DamageKind.CHUNK,
            where,
            f"shape {block.values.shape}, not {expected.values.shape}",
            checkpoint,
        )
    else:
        yield from _cells(
            where, checkpoint, block, expected, may_miss=array == "scores" and not finished
        )


def _cells(
    where: str, checkpoint: Checkpoint, found: Block, expected: Block, may_miss: bool
) -> Iterator[Damage]:
    pending = (
        (found.status == Status.MISSING)
        & np.isnan(found.values)
        & np.isnan(found.stderr)
        & may_miss
    )
    wrong = found.differs(expected)
    if n := int((wrong & ~pending).sum()):
        yield Damage(
            DamageKind.CHUNK,
            where,
            f"{n} of {wrong.size} cells differ from the journal",
            checkpoint,
        )
    elif wrong.any():
        yield Damage(
            DamageKind.PENDING,
            where,
            f"{int(wrong.sum())} cells are written when the run ends",
            checkpoint,
        )


def _absent(
    where: str, checkpoint: Checkpoint, array: str, expected: Block, finished: bool
) -> Damage:
    # a worker writes metrics before they are committed; a failure and the scores are written at the
    # end
    written_at_once = array == "metrics" and np.isin(expected.status, (Status.OK, Status.NAN)).any()
    if finished or written_at_once:
        return Damage(DamageKind.CHUNK, where, "it is missing", checkpoint)
    return Damage(DamageKind.PENDING, where, "it is written when the run ends", checkpoint)
