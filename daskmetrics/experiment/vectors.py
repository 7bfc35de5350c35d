"""Vectors that exist, of any encoder: their layers, and the task that their labels make.

The text of an item is the number of its vector, so that a task scores vectors as it scores texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, foreign_errors, require_known
from daskmetrics.core.files import expanded
from daskmetrics.core.progress import tell
from daskmetrics.core.rows import PlacedRow
from daskmetrics.domain.names import Suite, natural_order
from daskmetrics.experiment._arguments import table_rows
from daskmetrics.experiment._worker import Embeddings, EncodeSpec
from daskmetrics.tasks import Task
from daskmetrics.tasks.file import examples_key, read_table, table_task
from daskmetrics.tasks.table import columns_of

_FILES = (".npz", ".npy", ".zarr")
_OF_ZARR = ("zarr.json", ".zarray", ".zgroup")  # in the folder of an array or a group
_EMBEDDED = ("text", "layer", "dimension")  # the dimensions of what `daskmetrics.embed` returns
_NUMBERED = ("first", "second", "query", "document")  # roles of columns of numbers of vectors
_WANTED = (
    "Give numbers of shape (items, dimensions) for each layer, as {'NAME': array} or as one array"
    " of shape (items, layers, dimensions), pooled over tokens or pixels."
)


@dataclass(frozen=True)
class Vectors:
    """Vectors of items at the layers of a suite, read a layer at a time.

    Attributes
    ----------
    suite : Suite
        The layers, and the readouts that are compared.
    numbers : mapping of str to int
        The number of each item's vector, by the text that stands for the item.
    read : callable
        From the number of a layer to its vectors (n, D).
    """

    suite: Suite
    numbers: Mapping[str, int]
    read: Callable[[int], NDArray[Any]]

    def encode(self, spec: EncodeSpec) -> Embeddings:
        rows = np.array([self.numbers[text] for text in spec.task.texts()])
        tell(1.0)
        return _Rows(self.suite.layers, rows, self.read)

    def task(self, data: object, options: Mapping[str, str]) -> Task:
        """The task of labels or grades, or of a table, in which row i is of vector i.

        In its columns of pairs, queries and documents are numbers of vectors.

        Raises
        ------
        ConfigError
            If there are more or fewer rows than vectors, or there is no vector of a number.
        """
        import pandas

        path, rows, name = _rows_of(data, options.get("kind"))
        frame = pandas.DataFrame.from_dict(dict(rows), orient="index", dtype=object)
        roles = columns_of(path, frame.columns.tolist(), options)
        numbered = [roles[role] for role in _NUMBERED if role in roles]
        frame[numbered] = frame[numbered].map(_item, na_action="ignore")
        text = roles.get("text", "text")
        texts = dict(zip(self.numbers, frame.get(text, ()), strict=False))
        if len(frame) == len(self.numbers):
            frame[text] = [*self.numbers]
        elif not numbered:
            raise ConfigError(
                f"Got {len(frame):,} labels for {len(self.numbers):,} vectors. Give one for each"
                " vector, in the same order."
            )
        items: Any = frame.to_dict("index")
        task = table_task(path, items.items(), options, name)
        for item in task.texts():
            if item not in self.numbers:
                raise ConfigError(
                    f"'{path}': got '{item}'; wanted numbers of vectors, 0 to"
                    f" {len(self.numbers) - 1}, in the columns {', '.join(numbered)}. Correct it."
                )
        # on the folds of a model that reads these texts
        examples = task.whole()
        real = tuple(str(texts.get(item, item)) for item in examples.texts)
        return replace(task, content=examples_key(replace(examples, texts=real)))


@dataclass
class _Rows(Embeddings):
    layers: tuple[int, ...]
    numbers: NDArray[np.intp]
    read: Callable[[int], NDArray[Any]]

    def at(self, layer: int, pooling: str = "") -> NDArray[Any]:
        return self.read(layer)[self.numbers]


def _item(number: object) -> str:
    """The text that stands for a vector, or for none in a table."""
    return f"vector {number}".removesuffix(".0") if number != "" else ""


def _rows_of(data: Any, kind: str | None) -> tuple[Path, list[PlacedRow], str]:
    """The path, the rows and the name of labels."""
    import pandas

    if isinstance(data, str | Path):
        path = expanded(data)
        return path, read_table(path), path.stem
    if len(getattr(data, "shape", (0,))) == 1:  # also a list
        labels = pandas.Series(data)
        if not labels.map(lambda label: isinstance(label, Mapping)).all():
            if kind is None and pandas.api.types.is_float_dtype(labels):
                kind = "regression"
            data = pandas.DataFrame({"grade" if kind == "regression" else "label": labels})
    return Path("data"), table_rows(data), "data"


def is_of_vectors(path: Path) -> bool:
    """Whether a file is named as one of vectors, or a folder holds a Zarr."""
    return path.suffix in _FILES or any((path / file).is_file() for file in _OF_ZARR)


def vectors_of(
    given: object, layers: str | Sequence[int | str], readouts: tuple[str, ...]
) -> Vectors | None:
    """The vectors that a user gives, checked; None if these are no arrays.

    Parameters
    ----------
    given : array, mapping of arrays, DataArray, str or Path
        An array of shape (n, L, D), arrays of shape (n, D) by the names of their layers, what
        `daskmetrics.embed` returns, or a file of one of these.
    layers : "all" or a sequence
        Numbers or names of layers.
    readouts : tuple of str
        Names of readouts, which have no pooling.

    Raises
    ------
    ConfigError
        If the arrays are no finite numbers or have other shapes, or there is no such layer or
        readout.
    """
    model = "vectors"
    if isinstance(given, str | Path):
        path = expanded(given)
        if not is_of_vectors(path):
            return None
        model = path.stem
        given = _opened(path)
    arrays = _by_layer(given)
    if arrays is None:
        return None
    suite = suite_of(model, ("main",), [*arrays], layers, readouts)
    reads = [*arrays.values()]

    def read(layer: int) -> NDArray[Any]:
        return _converted(reads[layer], str(suite.layer_name(layer)))

    counts, widths = zip(*(read(layer).shape for layer in suite.layers), strict=True)
    if len({*counts}) > 1:
        named = ", ".join(
            f"'{suite.layer_name(layer)}' has {count:,}"
            for layer, count in zip(suite.layers, counts, strict=True)
        )
        raise ConfigError(
            f"The layers have other numbers of vectors: {named}. Row i of each must be of the same"
            " item."
        )
    check_pooled(suite, max(widths))
    return Vectors(suite, {_item(number): number for number in range(counts[0])}, read)


def suite_of(
    model: str,
    revisions: tuple[str, ...],
    called: Sequence[object],
    layers: str | Sequence[int | str],
    readouts: tuple[str, ...],
) -> Suite:
    """The suite of a model whose layers are called so, by numbers or names; the layers are checked."""
    names = tuple(map(str, called))
    chosen = names if str(layers) == "all" else [*map(str, np.atleast_1d(layers))]
    for layer in chosen:
        require_known(f"layer of '{model}'", layer, names)
    compared = tuple(sorted({*map(names.index, chosen)}))
    are_numbered = [*called] == [*range(len(names))]
    return Suite(
        model, revisions, compared, len(names) - 1, readouts, () if are_numbered else names
    )


def check_pooled(suite: Suite, width: int) -> None:
    """Check that the readouts of a suite fit vectors that are pooled already."""
    for readout in suite.reads:
        if readout.pooling:
            raise ConfigError(
                f"Readout '{readout}' pools, and vectors are pooled already. Leave out 'pooling';"
                " 'dimensions' keeps the first so many."
            )
        readout.check(width)


def _opened(path: Path) -> object:
    """The array of a file, or its arrays by name, which are read when they are needed."""
    import xarray
    import zarr

    if not path.exists():
        raise ConfigError(f"The vectors '{path}' do not exist.")
    with foreign_errors(f"'{path}' cannot be read", ConfigError, f" {_WANTED}"):
        if path.suffix in (".npz", ".npy"):
            arrays = np.load(path, mmap_mode="r")
        else:
            arrays = zarr.open(path, mode="r")
        if isinstance(arrays, zarr.Group):
            names = sorted(arrays.array_keys(), key=natural_order)
            if "layer" in names:  # as xarray writes what `daskmetrics.embed` returns
                return xarray.open_dataarray(path, engine="zarr", chunks=None, consolidated=False)
            arrays = {name: arrays[name] for name in names}
        # a file names its arrays, also one of all layers
        if isinstance(arrays, Mapping) and len(arrays) == 1:
            (array,) = arrays.values()
            if array.ndim == 3:
                return array
        return arrays


def _by_layer(given: Any) -> dict[Any, Callable[[], Any]] | None:
    """How each layer is read, by its name or number; None of no arrays."""
    if isinstance(given, list | tuple) and given and all(hasattr(x, "shape") for x in given):
        given = dict(enumerate(given))
    if isinstance(given, Mapping):
        arrays: dict[Any, Callable[[], Any]] = {
            name: partial(given.__getitem__, name) for name in given
        }
    elif hasattr(given, "shape"):
        labels = range(given.shape[1] if len(given.shape) == 3 else 0)
        if {*getattr(given, "dims", ())} == {*_EMBEDDED}:
            given = given.transpose(*_EMBEDDED)
            labels = given["layer"].values.tolist()
        arrays = {
            label: partial(given.__getitem__, (slice(None), i)) for i, label in enumerate(labels)
        }
    else:
        return None
    if not arrays:
        shape = getattr(given, "shape", 0)
        raise ConfigError(f"Got a {type(given).__name__} of shape {shape}. {_WANTED}")
    if len({*map(str, arrays)}) < len(arrays):
        raise ConfigError(f"Two layers have one name: {[*arrays]}. Rename one of them.")
    return arrays


def _converted(read: Callable[[], Any], layer: str) -> NDArray[Any]:
    """The vectors (n, D) of a layer as floating-point numbers, without loss."""
    with foreign_errors(f"Layer '{layer}' cannot be read", ConfigError, f" {_WANTED}"):
        values = read()
        if hasattr(values, "detach"):  # a tensor, also of bfloat16, which NumPy has not
            values = values.detach().cpu().float()
        array = np.asarray(values)
    if array.ndim != 2 or not array.size or not np.can_cast(array.dtype, np.float64):
        raise ConfigError(
            f"Layer '{layer}' has the shape {array.shape} and type {array.dtype}. {_WANTED}"
        )
    array = array.astype(np.promote_types(array.dtype, np.float32), copy=False)
    is_finite = np.isfinite(array).all(axis=1)
    if not is_finite.all():
        raise ConfigError(
            f"Layer '{layer}' has NaN or infinity in {(~is_finite).sum():,} of {len(array):,}"
            f" vectors (the first: {is_finite.argmin()}). Correct them, or leave out their items."
        )
    return array
