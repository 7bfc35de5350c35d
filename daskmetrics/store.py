"""The arrays of a run: one Zarr group per model, one chunk per checkpoint, readable by xarray without this package.

Layout of ``store.zarr``::

    <model>/metrics          (checkpoint, layer, metric)  float64, NaN where there is no value
    <model>/metrics_stderr   (checkpoint, layer, metric)  float64, standard error over prompts
    <model>/metrics_status   (checkpoint, layer, metric)  uint8, see ``flag_meanings``
    <model>/scores           (checkpoint, layer, task)    float64
    <model>/scores_stderr    (checkpoint, layer, task)    float64
    <model>/scores_status    (checkpoint, layer, task)    uint8
    <model>/checkpoint, step, layer, metric, task         coordinates

All planned checkpoints are allocated at once; a worker writes exactly its own chunk, the status last.
"""

from __future__ import annotations

import json
import shutil
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from daskmetrics.arms import Checkpoint, Key, Suite, content_key
from daskmetrics.errors import DataError
from daskmetrics.status import FLAGS, Status


@dataclass(frozen=True)
class Axis:
    """The names along one dimension, with the unit and description of each."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    descriptions: tuple[str, ...]


@dataclass(frozen=True)
class Template:
    """Everything that a store is planned to hold.

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
        """Names the shape and the meaning of the store: numbers of two different keys must not stand in one store."""
        suites = [[s.model, s.revisions, s.layers, s.depth] for s in self.suites]
        return content_key("store", 1, suites, self.metrics.names, self.tasks.names, self.meaning)


@dataclass(frozen=True)
class Block:
    """Values of one checkpoint along one axis: arrays (layers, names)."""

    values: np.ndarray
    stderr: np.ndarray
    status: np.ndarray

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Block:
        """From the journal's JSON, in which an undefined number is null."""
        numbers = {name: np.array(value[name], dtype=float) for name in ("values", "stderr")}
        return cls(**numbers, status=np.array(value["status"], dtype=np.uint8))

    def as_json(self) -> dict[str, Any]:
        return {name: _nullable(getattr(self, name)) for name in ("values", "stderr", "status")}

    def equals(self, other: Block) -> bool:
        """Bit for bit, NaN equal to NaN."""
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("values", "stderr", "status"))
        return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _nullable(array: np.ndarray) -> list[list[float | int | None]]:
    return [[None if value != value else value for value in row] for row in array.tolist()]


def create(path: Path, template: Template) -> None:
    """Lay out an empty store; an existing one of the same template is kept, one of another is replaced.

    Nothing is lost by replacing: the journal holds every value, and `restore` writes them again.
    """
    if path.exists() and _attributes(path).get("template") == template.key:
        return
    building = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    root = zarr.open_group(building, mode="w", attributes={**template.attributes, "template": template.key})
    for suite in template.suites:
        _create_group(root, suite, template)
    if path.exists():
        shutil.rmtree(path)
    building.rename(path)


def _create_group(root: zarr.Group, suite: Suite, template: Template) -> None:
    group = root.create_group(suite.model, attributes={"depth": suite.depth})
    steps = [-1 if checkpoint.step is None else checkpoint.step for checkpoint in suite.checkpoints()]
    _coordinate(group, "checkpoint", "checkpoint", np.array(suite.revisions, np.dtypes.StringDType()), {})
    about_step = {"description": "training step; -1 if the revision names none"}
    _coordinate(group, "step", "checkpoint", np.array(steps, np.int64), about_step)
    about_layer = {"description": "0 is the embedding output, 1...n the transformer blocks"}
    _coordinate(group, "layer", "layer", np.array(suite.layers, np.int64), about_layer)
    for dimension, what, axis in (("metric", "metrics", template.metrics), ("task", "scores", template.tasks)):
        _create_axis(group, suite, dimension, what, axis)


def _create_axis(group: zarr.Group, suite: Suite, dimension: str, what: str, axis: Axis) -> None:
    if not axis.names:
        return
    about = {"units": dict(zip(axis.names, axis.units, strict=True))}
    about["descriptions"] = dict(zip(axis.names, axis.descriptions, strict=True))
    _coordinate(group, dimension, dimension, np.array(axis.names, np.dtypes.StringDType()), about)
    shape = (len(suite.revisions), len(suite.layers), len(axis.names))
    kinds: tuple[tuple[str, str, Any, dict[str, Any]], ...] = (
        ("", "float64", float("nan"), about),
        ("_stderr", "float64", float("nan"), {"description": "standard error"}),
        ("_status", "uint8", 0, dict(FLAGS)),
    )
    for suffix, dtype, fill, attributes in kinds:
        group.create_array(
            what + suffix,
            shape=shape,
            chunks=(1, *shape[1:]),
            dtype=dtype,
            fill_value=fill,
            dimension_names=("checkpoint", "layer", dimension),
            attributes={"coordinates": "step", **attributes},
            compressors=zarr.codecs.ZstdCodec(level=3, checksum=True),  # without it a flipped bit goes unnoticed
            config={"write_empty_chunks": True},
        )


def _coordinate(group: zarr.Group, name: str, dimension: str, values: np.ndarray, attributes: dict[str, Any]) -> None:
    array = group.create_array(
        name, shape=values.shape, dtype=values.dtype, dimension_names=(dimension,), attributes=attributes
    )
    array[:] = values


def write(path: Path, what: str, checkpoint: Checkpoint, block: Block) -> None:
    """Write one checkpoint's own chunk of ``metrics`` or ``scores``; the status comes last, as the commit mark.

    Raises
    ------
    DataError
        If the store does not plan this checkpoint, or the block is not exactly its chunk.
    """
    group = _group(path, checkpoint.model)
    revisions = list(group["checkpoint"][:])
    if checkpoint.revision not in revisions:
        raise DataError(f"'{path}' does not plan {checkpoint}; it plans {', '.join(revisions)}.")
    row = revisions.index(checkpoint.revision)
    for suffix, values in (("", block.values), ("_stderr", block.stderr), ("_status", block.status)):
        array = group[what + suffix]
        if values.shape != array.chunks[1:]:
            raise DataError(f"{checkpoint}: {what}{suffix} has shape {values.shape}, its chunk {array.chunks[1:]}.")
        array[row] = values


def read_block(path: Path, what: str, checkpoint: Checkpoint) -> Block:
    """What the store holds of one checkpoint.

    Raises
    ------
    DataError
        If the chunk cannot be decoded or the store does not plan it.
    """
    try:
        group = _group(path, checkpoint.model)
        row = list(group["checkpoint"][:]).index(checkpoint.revision)
        return Block(*(group[what + suffix][row] for suffix in ("", "_stderr", "_status")))
    except (KeyError, ValueError, RuntimeError, OSError) as error:
        raise DataError(f"{checkpoint}: {what} cannot be read from '{path}': {error}") from None


def restore(path: Path, what: str, blocks: Mapping[Checkpoint, Block]) -> list[Checkpoint]:
    """Make the store agree with what the journal vouches for; the checkpoints whose chunk had to be written again."""
    wrong = [checkpoint for checkpoint, block in blocks.items() if not _holds(path, what, checkpoint, block)]
    for checkpoint in wrong:
        write(path, what, checkpoint, blocks[checkpoint])
    return wrong


def _holds(path: Path, what: str, checkpoint: Checkpoint, block: Block) -> bool:
    try:
        return read_block(path, what, checkpoint).equals(block)
    except DataError:
        return False


def score_blocks(
    suites: Sequence[Suite],
    tasks: Sequence[str],
    cells: Mapping[tuple[str, str, int, str], tuple[float, float, Status]],
) -> dict[Checkpoint, Block]:
    """The score chunks of all checkpoints that have a cell; ``cells`` maps (model, revision, layer, task)."""
    blocks: dict[Checkpoint, Block] = {}
    by_suite = {suite.model: suite for suite in suites}
    columns = {task: i for i, task in enumerate(tasks)}
    for (model, revision, layer, task), (value, stderr, status) in cells.items():
        suite = by_suite.get(model)
        if suite is None or task not in columns or layer not in suite.layers or revision not in suite.revisions:
            continue  # of an earlier configuration of this run
        block = blocks.setdefault(Checkpoint(model, revision), _empty(len(suite.layers), len(tasks)))
        at = suite.layers.index(layer), columns[task]
        block.values[at], block.stderr[at], block.status[at] = value, stderr, status
    return blocks


def _empty(layers: int, names: int) -> Block:
    nan = np.full((layers, names), np.nan)
    return Block(nan, nan.copy(), np.zeros((layers, names), np.uint8))


def finish(path: Path, attributes: Mapping[str, Any]) -> None:
    """Add attributes and consolidate the metadata, so that a reader needs one request; at the end of a run only."""
    root = zarr.open_group(path, mode="r+", use_consolidated=False)
    root.attrs.update(attributes)
    with warnings.catch_warnings():
        # not yet in the format's specification, but what xarray looks for
        warnings.filterwarnings("ignore", message="Consolidated metadata is currently not part")
        for model in root.group_keys():
            zarr.consolidate_metadata(path, path=model)
        zarr.consolidate_metadata(path)


def open_tree(path: Path) -> Any:
    """The whole store as an `xarray.DataTree`, one node per model.

    Raises
    ------
    DataError
        If there is no store.
    """
    import xarray

    if not path.exists():
        raise DataError(f"There is no store at '{path}'.")
    return xarray.open_datatree(path, engine="zarr", consolidated=False, chunks=None)


def _group(path: Path, model: str) -> zarr.Group:
    return zarr.open_group(path, path=model, mode="r+", use_consolidated=False)


def _attributes(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((path / "zarr.json").read_text())["attributes"])
    except (OSError, ValueError, KeyError):
        return {}
