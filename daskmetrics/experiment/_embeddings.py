"""Vectors of a task's texts at all layers: in a worker's memory up to a budget of bytes, otherwise
in files.

A file holds one layer and pooling, with rows in the order of the batches; an index gives the row of
each text. Files are therefore only appended to, and scoring a layer reads the file of that layer
alone.
"""

from __future__ import annotations

import secrets
import shutil
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import DataError, room_for
from daskmetrics.core.names import Key
from daskmetrics.core.results import NetworkSize

MEMORY = 2**30  # bytes of vectors that a worker keeps; others go to the folder of the run
_LOCK = RLock()  # Dask unpickles the inputs of a unit in other threads while another unit runs


class LayerEmbeddings:
    """Vectors (layers, texts, D) of float32 by pooling, with the seconds, the worker and the tokens
    of their encoding.

    They are in memory if the process's budget allows it, after moving those that were unused for
    longest to files. Files outlive this object, since Dask may delete it and keep a copy; the
    driver removes them with `remove` when no unit can need them any more. The content key is part
    of their names.
    """

    def __init__(
        self,
        layers: Sequence[int],
        texts: int,
        widths: int | Mapping[str, int],
        budget: MemoryBudget,
        key: Key,
    ) -> None:
        self.layers, self.texts, self.key = tuple(layers), texts, key
        self.widths = {"": widths} if isinstance(widths, int) else dict(widths)
        self.seconds = 0.0
        self.read_seconds = 0.0  # of these, without loading the model
        self.worker: str | None = None
        self.tokens: float | None = None  # read per text of the task, in the mean
        self.size: NetworkSize | None = None  # of the network
        self.places: NDArray[np.intp] | None = (
            None  # of the task's texts among these, if some share a vector
        )
        self.corpus: Path | None = (
            None  # file of the corpus's vectors, if readouts are fitted on them
        )
        self._budget = budget
        self._vectors: list[NDArray[np.float32]] | None = None  # by pooling
        self._folder: Path | None = None
        self._rows = np.full(texts, -1, dtype=np.int64)
        if budget.admits(self):
            self._vectors = [
                np.empty((len(self.layers), texts, w), dtype=np.float32)
                for w in self.widths.values()
            ]
        else:
            self._make_folder()

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors, in memory or in files."""
        return 4 * len(self.layers) * self.texts * sum(self.widths.values())

    @property
    def in_memory(self) -> int:
        return sum(vectors.nbytes for vectors in self._vectors or ())

    def put(self, texts: NDArray[np.intp], pooled: Sequence[NDArray[np.float32]]) -> None:
        """Add the vectors (layers, B, D) of B texts, by pooling, replacing earlier ones of these
        texts.
        """
        with _LOCK:
            if self._vectors is not None:
                for kept, vectors in zip(self._vectors, pooled, strict=True):
                    kept[:, texts] = vectors
                return
            with room_for(f"embeddings in '{self._folder}'"):
                for (pooling, width), vectors in zip(self.widths.items(), pooled, strict=True):
                    for layer, block in zip(self.layers, vectors, strict=True):
                        with self._file(layer, pooling).open("ab") as file:
                            start = file.tell() // (4 * width)
                            file.write(np.ascontiguousarray(block, dtype=np.float32).tobytes())
            self._rows[texts] = start + np.arange(len(texts))

    def at(self, layer: int, pooling: str = "") -> NDArray[np.float32]:
        """The vectors of a layer, shape (texts, D), by `places`; `DataError` if their file cannot
        be read.
        """
        with _LOCK:
            self._budget.mark_used(self)
            if self._vectors is not None:
                kept = np.asarray(
                    self._vectors[[*self.widths].index(pooling)][self.layers.index(layer)]
                )
                return kept if self.places is None else kept[self.places]
        path = self._file(layer, pooling)
        try:
            vectors = np.fromfile(path, dtype=np.float32).reshape(-1, self.widths[pooling])
        except OSError as error:
            raise DataError(f"Cannot read the embeddings in '{path}': {error}") from None
        return np.asarray(vectors[self._rows if self.places is None else self._rows[self.places]])

    def spill(self) -> None:
        """Move the vectors from memory to files."""
        with _LOCK:
            vectors, self._vectors = self._vectors, None
            if vectors is not None:
                self._make_folder()
                self.put(np.arange(self.texts), vectors)

    def _make_folder(self) -> None:
        self._folder = self._budget.folder / f"{self.key}-{secrets.token_hex(4)}"
        with room_for(f"embeddings in '{self._folder}'"):
            self._folder.mkdir(parents=True)

    def _file(self, layer: int, pooling: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{layer}{pooling}.f32"

    def __sizeof__(self) -> int:
        return self.in_memory  # for Dask's estimate of the cost of a transfer

    def __getstate__(self) -> dict[str, Any]:
        with _LOCK:
            return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy counts against the budget of its process, and is moved to files if the budget is
        exceeded.
        """
        self.__dict__.update(state)
        self._budget = memory_budget(self._budget.folder, self._budget.limit)
        if self._vectors is not None and not self._budget.admits(self):
            self.spill()


class MemoryBudget:
    """The ``limit`` bytes that all embeddings of one process share; others go to a folder that all
    workers share.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._admitted: dict[int, weakref.ref[LayerEmbeddings]] = {}  # longest unused first

    def admits(self, new: LayerEmbeddings) -> bool:
        """Whether embeddings may be in memory; others are moved to files to make room."""
        if new.nbytes > self.limit:
            return False
        with _LOCK:
            while self.in_memory + new.nbytes > self.limit:
                others = (other for other in self._living() if other is not new)
                next(other for other in others if other.in_memory).spill()
            self._admitted[id(new)] = weakref.ref(new)
        return True

    def mark_used(self, used: LayerEmbeddings) -> None:
        """Move embeddings to the end of the order in which they leave memory."""
        if reference := self._admitted.pop(id(used), None):
            self._admitted[id(used)] = reference

    @property
    def in_memory(self) -> int:
        return sum(embeddings.in_memory for embeddings in self._living())

    def _living(self) -> list[LayerEmbeddings]:
        living = []
        for number, reference in list(self._admitted.items()):
            embeddings = reference()
            if embeddings is None:
                del self._admitted[number]
            else:
                living.append(embeddings)
        return living

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "limit": self.limit, "_admitted": {}}


def remove(folder: Path, key: Key) -> None:
    """Remove all files of the embeddings of this key."""
    for path in folder.glob(f"{key}-*"):
        shutil.rmtree(path, ignore_errors=True)


_BUDGETS: dict[tuple[Path, int], MemoryBudget] = {}


def memory_budget(folder: Path, limit: int) -> MemoryBudget:
    """This process's budget of ``limit`` bytes, with its folder."""
    return _BUDGETS.setdefault((folder, limit), MemoryBudget(folder, limit))
