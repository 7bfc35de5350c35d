"""The Zarr store: created at once, then written chunk by chunk, each by the worker that computed
it.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import uuid
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.core.errors import OTHER_VERSION, DamageError, DataError, room_for
from daskmetrics.core.files import private, require_regular
from daskmetrics.core.serialization import parse, readable
from daskmetrics.domain.names import Checkpoint, Suite
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.results import FLAGS
from daskmetrics.store._blocks import Block

if TYPE_CHECKING:
    import zarr

PARTS = {"": "values", "_stderr": "stderr", "_status": "status"}
"""The three arrays of ``metrics`` and of ``scores``: the suffix of the name, and the part of a block."""

#: what follows the name of a file in `files_of` for the digest of its consolidated metadata
COPY = " (consolidated)"

MOST_CELLS = 10**7  #: of a row of an array, and rows

#: of the store, kept in its root attributes; docs/faults.md says which formats a version reads
FORMAT = 1


def create(path: Path, plan: Plan, environment: Mapping[str, str]) -> None:
    """Lay out an empty store, replacing an existing one.

    Its attributes name the versions of the environment. Nothing is lost by replacing: the journal
    holds every value, and `restore` writes them again.

    Raises
    ------
    DataError
        If a newer version of daskmetrics wrote the existing store.
    """
    import zarr  # a dry run does not need it

    _require_format(path)
    building = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with private():
            attributes = {**_attributes(plan), "environment": dict(environment)}
            root = zarr.open_group(building, mode="w", attributes=attributes)
            for suite in plan.suites:
                _create_group(root, suite, plan)
            # a reader needs one request of the metadata, which never change
            with warnings.catch_warnings():
                # not yet part of the Zarr specification, but xarray uses it
                warnings.filterwarnings("ignore", "Consolidated metadata is currently not part")
                for suite in plan.suites:
                    zarr.consolidate_metadata(building, path=suite.model)
                zarr.consolidate_metadata(building)
        if path.exists():
            shutil.rmtree(path)
        building.rename(path)
    except OSError:
        shutil.rmtree(building, ignore_errors=True)  # otherwise it would stay on a full disk
        raise


def _attributes(plan: Plan) -> dict[str, Any]:
    """What the store itself says of its numbers."""
    return {
        "name": plan.name,
        "protocol": plan.config["protocol"],
        "protocols": dict(plan.protocols),
        "corpus": {**plan.config["corpus"], "key": plan.prompts},
        "seed": plan.seed,
        "plan": plan.store_key,
        "format": FORMAT,
    }


def _create_group(root: zarr.Group, suite: Suite, plan: Plan) -> None:
    from zarr.codecs import Crc32cCodec, ZstdCodec

    # the checksum of every byte detects any flipped bit, before zstd takes the memory that damaged
    # bytes ask for
    compressors = ZstdCodec(level=3), Crc32cCodec()
    group = root.create_group(suite.model, attributes={"depth": suite.depth})
    text = np.dtypes.StringDType()
    steps = [
        -1 if checkpoint.step is None else checkpoint.step for checkpoint in suite.checkpoints()
    ]

    def coordinate(name: str, dimension: str, values: np.ndarray, **attributes: object) -> None:
        group.create_array(
            name,
            data=values,
            dimension_names=(dimension,),
            attributes=attributes,
            compressors=compressors,
        )

    coordinate("checkpoint", "checkpoint", np.array(suite.revisions, text))
    coordinate(
        "step",
        "checkpoint",
        np.array(steps, np.int64),
        description="training step; -1 if the revision names none",
    )
    coordinate(
        "layer",
        "layer",
        np.array(suite.layers, np.int64),
        description="0 is the embedding output, 1...n the transformer blocks",
    )
    if suite.has_readouts:
        layers, readouts = zip(*suite.rows, strict=True)
        coordinate(
            "arm_layer",
            "arm",
            np.array(layers, np.int64),
            description="the deepest that is read",
        )
        coordinate(
            "readout",
            "arm",
            np.array(readouts, text),
            description="how vectors are read; empty: as the protocol says",
        )
    metrics = [(about.name, about.units, about.description) for about in plan.metrics]
    tasks = [(about.name, about.main_score, about.description) for about in plan.tasks]
    for dimension, array_name, axis in (("metric", "metrics", metrics), ("task", "scores", tasks)):
        if not axis:
            continue
        about_axis = {
            "units": {name: units for name, units, _ in axis},
            "descriptions": {name: description for name, _, description in axis},
        }
        names = [name for name, *_ in axis]
        coordinate(dimension, dimension, np.array(names, text), **about_axis)
        rows = "layer"
        row_count = len(suite.layers)
        coordinates = "step"
        if array_name == "scores" and suite.has_readouts:
            rows = "arm"
            row_count = len(suite.rows)
            coordinates = "step arm_layer readout"
        shape = (len(suite.revisions), row_count, len(axis))
        kinds: tuple[tuple[str, str, float, Mapping[str, object]], ...] = (
            ("", "float64", float("nan"), about_axis),
            ("_stderr", "float64", float("nan"), {"description": "standard error"}),
            ("_status", "uint8", 0, FLAGS),
        )
        for suffix, dtype, fill, attributes in kinds:
            group.create_array(
                array_name + suffix,
                shape=shape,
                chunks=(1, *shape[1:]),
                dtype=dtype,
                fill_value=fill,
                dimension_names=("checkpoint", rows, dimension),
                attributes={"coordinates": coordinates, **attributes},
                compressors=compressors,
            )


def write(path: Path, what: str, checkpoint: Checkpoint, block: Block) -> None:
    """Write one checkpoint's own chunk of ``metrics`` or ``scores``.

    The status comes last, as the commit mark.

    Raises
    ------
    DamageError
        If the store cannot be read, does not plan this checkpoint, or the block is not exactly its
        chunk.
    StorageError
        If there is no room, or the place cannot be written.
    """
    import zarr

    # otherwise an all-NaN chunk is not written, and its loss would not be visible; arrays do not
    # store this setting
    write_all = zarr.config.set({"array.write_empty_chunks": True})
    with private(), _intact("The store", path), room_for(f"the store '{path}'"), write_all:
        group = _open_group(path, checkpoint.model)
        revisions = list(group["checkpoint"][:])
        if checkpoint.revision not in revisions:
            raise DamageError(
                f"'{path}' does not plan {checkpoint}; it plans {', '.join(revisions)}."
            )
        row = revisions.index(checkpoint.revision)
        for suffix, name in PARTS.items():
            array = group[what + suffix]
            values = getattr(block, name)
            if values.shape != array.chunks[1:]:
                raise DamageError(
                    f"{checkpoint}: {what}{suffix} has shape {values.shape}, its chunk "
                    f"{array.chunks[1:]}."
                )
            if values.dtype.kind == "f":
                # one of the many NaN values, so that equal values give equal files
                values = np.where(np.isnan(values), np.nan, values)
            array[row] = values


class Reader:
    """The chunks of one model's group, opened once.

    Raises `DataError` if the group cannot be opened, a newer version of daskmetrics wrote the
    store, or a chunk cannot be decoded.
    """

    def __init__(self, path: Path, model: str) -> None:
        _require_store(path)
        require_regular(path / model, below=True)
        self._folder = path / model
        with _intact(model, path):
            self._group = _open_group(path, model)
            self._array = cache(lambda name: _small(self._group[name]))
            self._rows = {str(name): row for row, name in enumerate(self._array("checkpoint")[:])}

    def block(self, what: str, checkpoint: Checkpoint) -> Block:
        """The block of a checkpoint; a missing chunk reads as empty."""
        with _intact(f"{checkpoint}: {what}", self._folder.parent):
            row = self._rows[checkpoint.revision]
            # the writer ends with the status: where that is new, the values are
            rows = [self._array(what + suffix)[row] for suffix in reversed(PARTS)]
            status, stderr, values = rows
            return Block(values, stderr, status)

    def files(self, what: str, checkpoint: Checkpoint) -> list[Path]:
        """Files of a checkpoint's values, errors and status, perhaps missing."""
        with _intact(f"{checkpoint}: {what}", self._folder.parent):
            chunk = (self._rows[checkpoint.revision], 0, 0)
            names = [what + suffix for suffix in PARTS]
            return [
                self._folder / name / self._array(name).metadata.encode_chunk_key(chunk)
                for name in names
            ]

    def holds(self, what: str, checkpoint: Checkpoint, block: Block) -> bool:
        """Whether the store holds exactly this block, with its files.

        A missing chunk would read as NaN.
        """
        try:
            same = self.block(what, checkpoint).equals(block)
            return same and all(file.is_file() for file in self.files(what, checkpoint))
        except DataError:
            return False


def restore(path: Path, what: str, blocks: Mapping[Checkpoint, Block]) -> list[Checkpoint]:
    """Write the blocks that the store lacks; return their checkpoints."""
    reader = cache(lambda model: Reader(path, model))
    wrong = [c for c, block in blocks.items() if not reader(c.model).holds(what, c, block)]
    for checkpoint in wrong:
        write(path, what, checkpoint, blocks[checkpoint])
    return wrong


def files_of(path: Path) -> dict[str, str]:
    """A digest of every file of metadata and coordinates.

    No record describes these. The copies that consolidate metadata have one more each (`COPY`).
    """
    values = {name + suffix for name, suffix in product(("metrics", "scores"), PARTS)}
    digests = {}
    for file in sorted(path.rglob("*")):
        _, *inside = file.relative_to(path).parts
        is_chunk = len(inside) > 1 and inside[0] in values and inside[1] == "c"
        # a killed writer leaves such files
        if file.is_file() and not is_chunk and file.suffix != ".partial":
            name = str(file.relative_to(path))
            content = file.read_bytes()
            if file.name == "zarr.json":
                # damaged: use the digest of its bytes, which differs
                with suppress(ValueError, AttributeError):
                    metadata = parse(content)
                    if copy := metadata.pop("consolidated_metadata", None):
                        plain = json.dumps(copy, sort_keys=True)
                        digests[name + COPY] = _digest(plain.encode())
                    content = json.dumps(metadata, sort_keys=True).encode()
            digests[name] = _digest(content)
    return digests


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def open_tree(path: Path) -> Any:
    """The whole store as an `xarray.DataTree`, one node per model.

    Raises
    ------
    DataError
        If there is no store, it is damaged, or a newer version of daskmetrics wrote it.
    """
    import xarray

    _require_store(path)
    require_regular(path, below=True)
    with _intact("The store", path):
        return xarray.open_datatree(path, engine="zarr", consolidated=False, chunks=None)


def _open_group(path: Path, model: str) -> zarr.Group:
    import zarr

    return zarr.open_group(path, path=model, mode="r+", use_consolidated=False)


def _intact(what: str, path: Path) -> AbstractContextManager[None]:
    repair = f". It is written again from the journal by: daskmetrics runs repair {path.parent}"
    return readable(what, path, DamageError, repair)


def _small(array: zarr.Array) -> zarr.Array:
    """An array to read a row of; refused if it would need much memory.

    Damaged metadata can ask for any.
    """
    rows, *row = array.shape
    largest = max(rows, math.prod(row), math.prod(array.chunks))
    if largest > MOST_CELLS:
        raise ValueError(f"{array.name} has the shape {array.shape} and chunks {array.chunks}")
    return array


def _require_store(path: Path) -> None:
    if not path.exists():
        raise DataError(
            f"There is no store at '{path}'. Put it back if it was moved; else"
            f" 'daskmetrics runs repair {path.parent}' writes it again from the journal."
        )
    _require_format(path)


def _require_format(path: Path) -> None:
    require_regular(path)
    number = FORMAT
    # a store that is missing or damaged has no number
    with suppress(OSError, ValueError, KeyError, TypeError):
        number = dict(parse((path / "zarr.json").read_text())["attributes"]).get("format", FORMAT)
    if number != FORMAT:
        raise DataError(
            f"'{path}' is written in format {number}, and this version of daskmetrics reads format "
            f"{FORMAT}. {OTHER_VERSION}"
        )
