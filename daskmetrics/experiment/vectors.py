"""Vectors that exist, of any encoder: their layers, and the task that their labels make.

The text of an item is the number of its vector, so that a task on a file scores vectors as it
scores texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import ConfigError, foreign_errors, require_known
from daskmetrics.core.files import expanded
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.rows import PlacedRow
from daskmetrics.core.text import plural
from daskmetrics.domain.names import Suite, natural_order
from daskmetrics.experiment._arguments import table_rows
from daskmetrics.experiment._worker import Embeddings
from daskmetrics.tasks import Task
from daskmetrics.tasks.file import examples_key, read_table, task_of
from daskmetrics.tasks.table import UserTable, columns_of, table_of

if TYPE_CHECKING:
    import pandas

_FILES = (".npz", ".npy", ".zarr")
_OF_ZARR = ("zarr.json", ".zarray", ".zgroup")  # in the folder of an array or a group
_EMBEDDED = ("text", "layer", "dimension")  # dimensions of what `daskmetrics.embed` returns
_NUMBERED = ("first", "second", "query", "document")  # roles of columns of numbers of vectors

LayerVectors: TypeAlias = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Vectors:
    """Vectors of n items at the layers of a suite, read a layer at a time.

    Attributes
    ----------
    suite : Suite
        The layers, and the readouts that are compared.
    items : int
    nbytes : int
        Bytes of the vectors of all layers.
    read : callable
        From the number of a layer to its vectors (n, D).
    """

    suite: Suite
    items: int
    nbytes: int
    read: Callable[[int], LayerVectors]

    @property
    def key(self) -> Key:
        return content_key("vectors")

    def encode(self, task: Task) -> AbstractContextManager[Embeddings]:
        numbers = {_item(number): number for number in range(self.items)}
        return nullcontext(_Rows(self, np.array([numbers[text] for text in task.texts()])))

    def task(self, data: object, columns: Mapping[str, str]) -> Task:
        """The task of labels or grades, or of a table, in which row i is of vector i.

        In columns of pairs, queries and documents are numbers of vectors.

        Raises
        ------
        ConfigError
            If there are more or fewer rows than vectors, or there is no vector of a number.
        """
        options = {role: str(column) for role, column in columns.items()}
        path, rows, name = _rows_of(data, options.get("kind"))
        header = list(dict.fromkeys(chain.from_iterable(row for _, row in rows)))
        text = columns_of(path, header, options).get("text", "text")
        items = [(place, {**row, text: _item(i)}) for i, (place, row) in enumerate(rows)]
        table = table_of(path, items, options)
        if "text" in table.columns and len(rows) != self.items:
            raise ConfigError(
                f"Got {plural(len(rows), 'row')} of labels for {plural(self.items, 'vector')}. Give"
                " one row for each vector, in the same order."
            )
        for role in table.rows.columns.intersection([*_NUMBERED]):
            table = replace(table, rows=table.rows.assign(**{role: self._items(table, role)}))
        task = task_of(table, options, name)
        if "text" not in table.columns or text not in header:
            return task
        # a model that reads these texts is scored on the same folds
        examples = task.whole()
        text_of = {_item(i): str(row.get(text)) for i, (_, row) in enumerate(rows)}
        texts = tuple(text_of[item] for item in examples.texts)
        return replace(task, content=examples_key(replace(examples, texts=texts)))

    def _items(self, table: UserTable, role: str) -> pandas.Series[str]:
        items = {str(number): _item(number) for number in range(self.items)}
        if role == "query":  # which a document without a judgement has not
            items |= {"None": "", "": ""}

        def number(value: object) -> str:
            return str(value).removesuffix(".0")

        table.check(
            role,
            lambda value: number(value) in items,
            f"not the number of a vector. Write numbers from 0 to {self.items - 1}.",
        )
        return table.rows[role].map(lambda value: items[number(value)])


class _Rows(Embeddings):
    """The vectors of the items of a task."""

    def __init__(self, vectors: Vectors, numbers: NDArray[np.intp]) -> None:
        self.layers = vectors.suite.layers
        self.texts = vectors.items
        self._vectors = vectors
        self._numbers = numbers

    @property
    def nbytes(self) -> int:
        return self._vectors.nbytes

    def at(self, layer: int, pooling: str = "") -> LayerVectors:
        return self._vectors.read(layer)[self._numbers]


def _item(number: int) -> str:
    return f"vector {number}"


def _rows_of(data: object, kind: str | None) -> tuple[Path, list[PlacedRow], str]:
    """The path, the rows and the name of labels."""
    import pandas

    if isinstance(data, str | Path):
        path = expanded(data)
        return path, read_table(path), f"file:{path.name}"
    is_list = isinstance(data, list | tuple) and not isinstance(data[0], Mapping)
    if is_list or len(getattr(data, "shape", ())) == 1:
        labels = pandas.Series(data.tolist() if hasattr(data, "tolist") else data)
        if kind is None and pandas.api.types.is_float_dtype(labels):
            kind = "regression"
        data = pandas.DataFrame({"grade" if kind == "regression" else "label": labels})
    return Path("data"), table_rows(data), "data"


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
    name = "vectors"
    if isinstance(given, str | Path):
        path = expanded(given)
        if path.suffix not in _FILES and not any((path / file).is_file() for file in _OF_ZARR):
            return None
        name = path.stem
        given = _opened(path)
    labelled = _labelled(given)
    if labelled is None:
        return None
    labels, values = labelled
    numbers, names = _numbered(labels)
    position = {number: i for i, number in enumerate(numbers)}

    def read(number: int) -> LayerVectors:
        i = position[number]
        return _converted(lambda: values(i), f"Layer '{labels[i]}'")

    chosen = _chosen(layers, numbers, names)
    suite = Suite(name, ("main",), chosen, numbers[-1], readouts, names)
    shapes = {}
    nbytes = 0
    for number in chosen:
        vectors = read(number)
        called = f"Layer '{suite.layer_name(number)}'"
        _require_finite(vectors, called)
        shapes[number] = vectors.shape
        nbytes += vectors.nbytes
        items = shapes[chosen[0]][0]
        if len(vectors) != items:
            raise ConfigError(
                f"{called} has {len(vectors):,} vectors, but '{suite.layer_name(chosen[0])}' has"
                f" {items:,}. Row i of every layer must be of the same item."
            )
    for readout in suite.reads:
        if readout.pooling:
            raise ConfigError(
                f"Readout '{readout}' pools, and vectors are pooled already. Leave out 'pooling';"
                " 'dimensions' keeps the first so many."
            )
        readout.check(max(width for _, width in shapes.values()))
    return Vectors(suite, items, nbytes, read)


def _opened(path: Path) -> object:
    """The array of a file, or its arrays by name, which are read when they are needed."""
    remedy = " Give a .npz or .npy file, or a Zarr array or group, with arrays of numbers."
    with foreign_errors(f"Vectors cannot be read from '{path}'", ConfigError, remedy):
        if path.suffix in (".npz", ".npy"):
            arrays = np.load(path, mmap_mode="r")
        else:
            arrays = _opened_zarr(path)
        # a file names its arrays, also one of all layers
        if isinstance(arrays, Mapping) and len(arrays) == 1:
            (array,) = arrays.values()
            if array.ndim == 3:
                return array
        return arrays


def _opened_zarr(path: Path) -> object:
    import xarray
    import zarr

    opened = zarr.open(path, mode="r")
    if isinstance(opened, zarr.Array):
        return opened
    arrays = dict(opened.arrays())
    if "layer" in arrays and arrays["layer"].ndim == 1:  # as xarray writes a DataArray
        return xarray.open_dataarray(path, engine="zarr", chunks=None)
    return {name: arrays[name] for name in sorted(arrays, key=natural_order)}


def _labelled(given: Any) -> tuple[Sequence[object], Callable[[int], object]] | None:
    """What the layers are called, and how each is read by its position; None of no arrays."""
    if isinstance(given, Mapping):
        labels = list(given)
        return labels, lambda i: given[labels[i]]
    if {*getattr(given, "dims", ())} == {*_EMBEDDED}:
        stacked = given.transpose(*_EMBEDDED)
        return stacked["layer"].values.tolist(), lambda i: stacked[:, i]
    if not hasattr(given, "shape"):
        return None
    shape = tuple(given.shape)
    if len(shape) != 3:
        raise ConfigError(
            f"Got an array of shape {shape}; wanted (items, layers, dimensions), pooled over tokens"
            " or pixels. Arrays of single layers, of shape (items, dimensions), are named: {'NAME':"
            " array}."
        )
    return range(shape[1]), lambda i: given[:, i]


def _numbered(labels: Sequence[Any]) -> tuple[Sequence[int], tuple[str, ...]]:
    """The numbers of layers, and their names if they have others."""
    if not labels:
        raise ConfigError("Got vectors without a layer. Give an array for one layer at least.")
    are_numbers = all(isinstance(label, Integral) for label in labels)
    if are_numbers and labels[0] >= 0 and list(labels) == sorted({*labels}):
        return list(map(int, labels)), ()
    names = tuple(map(str, labels))
    if len({*names}) < len(names):
        raise ConfigError(f"Two layers have the same name: {', '.join(names)}. Rename one of them.")
    return range(len(names)), names


def _chosen(
    layers: str | Sequence[int | str], numbers: Sequence[int], names: Sequence[str]
) -> tuple[int, ...]:
    if isinstance(layers, str) and layers == "all":
        return tuple(numbers)
    number_of = {str(number): number for number in numbers}
    number_of |= dict(zip(names, numbers, strict=False))
    requested = np.atleast_1d(np.array(layers, dtype=object)).tolist()
    for layer in requested:
        require_known("layer of the vectors", str(layer), number_of)
    return tuple(sorted({number_of[str(layer)] for layer in requested}))


def _converted(read: Callable[[], Any], called: str) -> LayerVectors:
    """The vectors (n, D) of a layer as floating-point numbers, without loss."""
    remedy = " Give an array of numbers, of shape (items, dimensions)."
    with foreign_errors(f"{called} cannot be read", ConfigError, remedy):
        values = read()
        if hasattr(values, "detach"):  # a tensor, also of bfloat16, which NumPy has not
            values = values.detach().cpu().float()
        array = np.asarray(values)
    if not np.can_cast(array.dtype, np.float64):
        raise ConfigError(f"{called} has values of type {array.dtype}.{remedy}")
    if array.ndim != 2 or 0 in array.shape:
        raise ConfigError(
            f"{called} has the shape {array.shape}; wanted (items, dimensions), at least one of"
            " each. Pool tokens or pixels first, for instance: array.mean(axis=1)."
        )
    return array.astype(np.promote_types(array.dtype, np.float32), copy=False)


def _require_finite(vectors: LayerVectors, called: str) -> None:
    is_finite = np.isfinite(vectors).all(axis=1)
    if not is_finite.all():
        raise ConfigError(
            f"{called} has NaN or infinity in {(~is_finite).sum():,} of"
            f" {plural(len(vectors), 'vector')} (the first: {_item(int(is_finite.argmin()))}). Correct"
            " these, or leave out their items and labels."
        )
