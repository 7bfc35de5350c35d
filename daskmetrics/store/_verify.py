"""The store compared with the journal, and made equal to it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from daskmetrics.core.errors import DataError
from daskmetrics.core.names import Checkpoint, Suite
from daskmetrics.core.status import Status
from daskmetrics.store._template import Block, Plan, Result
from daskmetrics.store._zarr import PARTS, Reader, files_of, finish, lay_out, restore, stale_copies

AXES = ("metrics", "scores")


class Kind(Enum):
    """What is the matter with a part of the store."""

    METADATA = "metadata"  # or coordinates: what says which number is which
    CHUNK = "chunk"  # it cannot be read, or holds other numbers than the journal
    UNVOUCHED = "unvouched"  # numbers of which the journal knows nothing: their unit was not committed
    PENDING = "pending"  # not written yet: scores are, once the run ends

    @property
    def is_damage(self) -> bool:
        return self in (Kind.METADATA, Kind.CHUNK)


@dataclass(frozen=True)
class Damage:
    """A part of the store that differs from what the journal vouches for.

    Attributes
    ----------
    kind : Kind
    where : str
        The checkpoint and the array, or a file of the store.
    what : str
        How it differs.
    checkpoint : Checkpoint or None
    """

    kind: Kind
    where: str
    what: str
    checkpoint: Checkpoint | None = None


def verify(path: Path, plan: Plan, records: Iterable[Result], finished: bool) -> list[Damage]:
    """Compare every file and every cell of a store with the journal.

    Parameters
    ----------
    path : Path
        The store.
    plan : Plan
        What it is to hold.
    records : iterable of Result
        All that the journal holds.
    finished : bool
        Whether the run has ended, so that nothing may be lacking.
    """
    if not path.is_dir():
        return [Damage(Kind.METADATA, str(path), "it is not there")]
    metadata = list(check_files(path, plan.files))
    records = list(records)
    blocks = {"metrics": plan.metric_blocks(records), "scores": plan.score_blocks(records)}
    for suite in plan.template.suites:
        metadata += _suite(path, suite, plan, blocks, finished)
    return metadata


def _suite(
    path: Path, suite: Suite, plan: Plan, blocks: Mapping[str, Mapping[Checkpoint, Block]], finished: bool
) -> list[Damage]:
    try:
        reader = Reader(path, suite.model)
    except DataError as error:
        return [Damage(Kind.METADATA, suite.model, str(error))]
    return [
        damage
        for what in _axes(plan)
        for checkpoint in suite.checkpoints()
        for damage in _chunk(reader, what, checkpoint, blocks[what].get(checkpoint), finished)
    ]


def repair(path: Path, plan: Plan, records: Iterable[Result], finished: bool) -> tuple[list[Damage], Plan]:
    """Make a store equal to what the journal vouches for.

    Returns
    -------
    list of Damage
        What was put right.
    Plan
        With the digests of metadata and coordinates as they are now.
    """
    records = list(records)
    found = verify(path, plan, records, finished)
    if any(damage.kind is Kind.METADATA for damage in found):
        lay_out(path, plan.template)
    else:
        _remove_unvouched(path, plan, found, records)
    for what in _axes(plan):
        restore(path, what, plan.metric_blocks(records) if what == "metrics" else plan.score_blocks(records))
    if finished:
        finish(path, {})
    return found, dataclasses.replace(plan, files=files_of(path))


def _axes(plan: Plan) -> tuple[str, ...]:
    return AXES if plan.template.tasks.names else AXES[:1]


def check_files(path: Path, files: Mapping[str, str]) -> Iterator[Damage]:
    """Compare metadata and coordinates with the digests of what was laid out."""
    there = files_of(path)
    for name, digest in files.items():
        if name not in there:
            yield Damage(Kind.METADATA, name, "it is not there")
        elif there[name] != digest:
            yield Damage(Kind.METADATA, name, "it is not what was laid out")
    for name in there.keys() - files.keys():
        yield Damage(Kind.METADATA, name, "it was not laid out by this run")
    for name in stale_copies(path):
        yield Damage(Kind.METADATA, name, "its consolidated metadata is not what the members say")


def _chunk(
    reader: Reader, what: str, checkpoint: Checkpoint, expected: Block | None, finished: bool
) -> Iterator[Damage]:
    where = f"{checkpoint} {what}"
    try:
        missing = [file for file in reader.files(what, checkpoint) if not file.is_file()]
        if len(missing) == len(PARTS):
            if expected is not None:
                yield _absent(where, checkpoint, what, expected, finished)
            return
        found = reader.block(what, checkpoint)
    except DataError as error:
        yield Damage(Kind.CHUNK, where, str(error), checkpoint)
        return
    if expected is None:
        if missing or (found.status != Status.MISSING).any():
            yield Damage(Kind.UNVOUCHED, where, "the journal has no record of it", checkpoint)
    elif missing:
        yield Damage(Kind.CHUNK, where, f"its file {missing[0]} is not there", checkpoint)
    elif found.values.shape != expected.values.shape:
        yield Damage(Kind.CHUNK, where, f"shape {found.values.shape}, not {expected.values.shape}", checkpoint)
    else:
        yield from _cells(where, checkpoint, found, expected, may_lack=what == "scores" and not finished)


def _cells(where: str, checkpoint: Checkpoint, found: Block, expected: Block, may_lack: bool) -> Iterator[Damage]:
    lacking = (found.status == Status.MISSING) & np.isnan(found.values) & np.isnan(found.stderr) & may_lack
    wrong = found.differs(expected)
    if n := int((wrong & ~lacking).sum()):
        yield Damage(Kind.CHUNK, where, f"{n} of {wrong.size} cells differ from the journal", checkpoint)
    elif wrong.any():
        yield Damage(Kind.PENDING, where, f"{int(wrong.sum())} cells are written when the run ends", checkpoint)


def _absent(where: str, checkpoint: Checkpoint, what: str, expected: Block, finished: bool) -> Damage:
    # a worker writes metrics before they are committed; a failure and the scores are written at the end
    written_at_once = what == "metrics" and np.isin(expected.status, (Status.OK, Status.NAN)).any()
    if finished or written_at_once:
        return Damage(Kind.CHUNK, where, "it is not there", checkpoint)
    return Damage(Kind.PENDING, where, "it is written when the run ends", checkpoint)


def _remove_unvouched(path: Path, plan: Plan, found: Iterable[Damage], records: Iterable[Result]) -> None:
    """A chunk that no record vouches for does not count, be it sound or not."""
    vouched = {"metrics": plan.metric_blocks(records), "scores": plan.score_blocks(records)}
    for damage in found:
        what = damage.where.rpartition(" ")[2]
        if damage.checkpoint is not None and damage.checkpoint not in vouched[what]:
            for file in Reader(path, damage.checkpoint.model).files(what, damage.checkpoint):
                file.unlink(missing_ok=True)
