"""Compare the store with the journal, and repair it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path

import numpy as np

from daskmetrics.core.errors import DataError
from daskmetrics.domain.names import Checkpoint
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.record import Record
from daskmetrics.domain.results import Status
from daskmetrics.store._blocks import Block, metric_blocks, score_blocks
from daskmetrics.store._zarr import COPY, PARTS, Reader, create, files_of, restore

# seconds before each reading of the chunks that differ while their run goes on; the three files of
# one are written one after the other
PAUSES = (0.0, 0.1, 0.4)


class DamageKind(Enum):
    """How a part of the store differs from the journal."""

    METADATA = "metadata"  # or coordinates, which name the numbers
    CHUNK = "chunk"  # unreadable, or with other numbers than the journal
    UNVOUCHED = "unvouched"  # numbers without a record: their unit was not committed
    FILE = "file"  # the configuration or the prompts, which lie beside the store

    @property
    def is_damage(self) -> bool:
        return self is not DamageKind.UNVOUCHED


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


def verify(
    path: Path, plan: Plan, files: Mapping[str, str], records: Iterable[Record], finished: bool
) -> list[Damage]:
    """Compare every file and cell of a store with the journal.

    Parameters
    ----------
    path : Path
        The store.
    plan : Plan
    files : mapping of str to str
        Digests of the metadata and coordinates, as the journal has them.
    records : iterable of Record
        The records of the journal.
    finished : bool
        Whether the run is finished, so that nothing may be missing.
    """
    if not path.is_dir():
        return [Damage(DamageKind.METADATA, str(path), "it is missing")]
    damages = list(check_files(path, files))
    blocks = _blocks(plan, list(records))
    readers = {}
    for suite in plan.suites:
        try:
            readers[suite.model] = Reader(path, suite.model)
        except DataError as error:
            damages.append(Damage(DamageKind.METADATA, suite.model, str(error)))
    chunk_damages: dict[tuple[str, Checkpoint], list[Damage]] = {}
    chunks = [(array, c) for array in blocks for c in plan.checkpoints if c.model in readers]
    for pause in PAUSES:
        if not chunks:
            break
        time.sleep(pause)
        for array, checkpoint in chunks:
            expected = blocks[array].get(checkpoint)
            reader = readers[checkpoint.model]
            chunk_damages[array, checkpoint] = list(
                _chunk(reader, array, checkpoint, expected, finished)
            )
        chunks = [
            chunk
            for chunk in chunks
            if not finished and any(damage.kind.is_damage for damage in chunk_damages[chunk])
        ]
    return damages + list(chain.from_iterable(chunk_damages.values()))


def _blocks(plan: Plan, records: Iterable[Record]) -> dict[str, dict[Checkpoint, Block]]:
    blocks = {}
    if plan.metrics:
        blocks["metrics"] = metric_blocks(plan, records)
    if plan.tasks:
        blocks["scores"] = score_blocks(plan, records)
    return blocks


def repair(
    path: Path,
    plan: Plan,
    files: Mapping[str, str],
    records: Iterable[Record],
    finished: bool,
    environment: Mapping[str, str],
) -> list[Damage]:
    """Make a store equal to the journal; return the repaired differences.

    The parameters are those of `verify`; a store that is laid out again names the ``environment``.
    """
    records = list(records)
    damages = verify(path, plan, files, records, finished)
    blocks = _blocks(plan, records)
    if any(damage.kind is DamageKind.METADATA for damage in damages):
        create(path, plan, environment)
    else:  # remove the chunks that have no record, damaged or not
        for damage in damages:
            array = damage.where.rpartition(" ")[2]
            if damage.checkpoint is not None and damage.checkpoint not in blocks[array]:
                for file in Reader(path, damage.checkpoint.model).files(array, damage.checkpoint):
                    file.unlink(missing_ok=True)
    for array, recorded in blocks.items():
        restore(path, array, recorded)
    return damages


def check_files(path: Path, files: Mapping[str, str]) -> Iterator[Damage]:
    """Compare metadata and coordinates with their digests."""
    digests = files_of(path)
    for name, digest in files.items():
        if name not in digests:
            yield Damage(DamageKind.METADATA, name, "it is missing")
        elif digests[name] != digest:
            yield Damage(DamageKind.METADATA, name, "it was changed")
    for name in digests.keys() - files.keys():
        if not name.endswith(COPY):  # any tool may consolidate
            yield Damage(DamageKind.METADATA, name, "it is not part of this store")


def _chunk(
    reader: Reader, array: str, checkpoint: Checkpoint, expected: Block | None, finished: bool
) -> Iterator[Damage]:
    def damage(kind: DamageKind, what: str) -> Damage:
        return Damage(kind, f"{checkpoint} {array}", what, checkpoint)

    try:
        missing = [file for file in reader.files(array, checkpoint) if not file.is_file()]
        block = reader.block(array, checkpoint)
    except DataError as error:
        yield damage(DamageKind.CHUNK, str(error))
        return
    if expected is None:
        has_values = (block.status != Status.MISSING).any()
        if len(missing) < len(PARTS) and (missing or has_values):
            yield damage(DamageKind.UNVOUCHED, "the journal has no record of it")
        return
    # a worker writes metrics before they are committed; a failed measurement is written at the end,
    # and scores soon after they are committed
    is_early = array == "metrics" and np.isin(expected.status, (Status.OK, Status.NAN)).any()
    may_wait = not finished and not is_early
    if missing and not (may_wait and len(missing) == len(PARTS)):
        yield damage(DamageKind.CHUNK, f"its file {missing[0]} is missing")
    elif block.values.shape != expected.values.shape:
        yield damage(DamageKind.CHUNK, f"shape {block.values.shape}, not {expected.values.shape}")
    else:
        wrong = block.differs(expected)
        # a missing chunk is empty, too
        damaged = wrong
        if may_wait:
            damaged = wrong & block.differs(Block.empty(*block.values.shape))
            # the journal was read first, and a driver may go on
            later = damaged & (expected.status == Status.MISSING)
            damaged &= ~later
            if later.any():
                unknown = f"the journal has no record of {later.sum()} of {wrong.size} cells"
                yield damage(DamageKind.UNVOUCHED, unknown)
        if damaged.any():
            difference = f"{damaged.sum()} of {wrong.size} cells differ from the journal"
            yield damage(DamageKind.CHUNK, difference)
