"""Vectors of a task's texts at all layers: in a worker's memory up to a budget of bytes, beyond it in files.

A file holds one layer, rows in the order in which batches came; an index says where each text's row is. So nothing is
written twice or in place, and who scores a layer reads that layer alone.
"""

from __future__ import annotations

import secrets
import shutil
import weakref
from collections.abc import Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.core.errors import DataError, room_for
from daskmetrics.core.names import Key

_LOCK = RLock()  # Dask unpickles what a unit needs in threads of its own, while another unit runs


class Embeddings:
    """Vectors (layers, texts, D) of float32 and what it took to make them.

    What fits beside its likes of this process is kept in memory; if it does not, the longest unused are moved to files
    first. Files do not end with the object that made them, since Dask may drop that and keep a copy: who gives
    out the work knows when nobody can ask for them any more, and removes them (`remove`).

    Parameters
    ----------
    layers : sequence of int
    texts, width : int
    shelf : Shelf
        Where the bytes go.
    key : str
        Names the files.

    Attributes
    ----------
    seconds : float
        That encoding took.
    worker : str or None
        Name of the worker that encoded.
    """

    def __init__(self, layers: Sequence[int], texts: int, width: int, shelf: Shelf, key: Key) -> None:
        self.layers, self.shape, self.key = tuple(layers), (texts, width), key
        self.seconds = 0.0
        self.worker: str | None = None
        self._shelf = shelf
        self._vectors: NDArray[np.float32] | None = None
        self._folder: Path | None = None
        self._where = np.full(texts, -1, dtype=np.int64)
        if shelf.takes(self):
            self._vectors = np.empty((len(self.layers), *self.shape), dtype=np.float32)
        else:
            self._make_folder()

    @property
    def nbytes(self) -> int:
        """Of the vectors, wherever they are."""
        return 4 * len(self.layers) * self.shape[0] * self.shape[1]

    @property
    def in_memory(self) -> int:
        """Bytes of them that are in memory."""
        return 0 if self._vectors is None else self._vectors.nbytes

    def put(self, rows: NDArray[np.intp], vectors: NDArray[np.float32]) -> None:
        """Take in the vectors of some texts at all layers; those that came before are replaced.

        Parameters
        ----------
        rows : ndarray of int, shape (B,)
        vectors : ndarray, shape (layers, B, D)

        Raises
        ------
        DiskFullError
            If they go into files and there is no room.
        """
        with _LOCK:
            if self._vectors is not None:
                self._vectors[:, rows] = vectors
            else:
                self._append(rows, vectors)

    def at(self, layer: int) -> NDArray[np.float32]:
        """The vectors of a layer, (texts, D).

        Raises
        ------
        DataError
            If their file is gone.
        """
        with _LOCK:
            self._shelf.touch(self)
            if self._vectors is not None:
                return np.asarray(self._vectors[self.layers.index(layer)])
        try:
            rows = np.fromfile(self._file(layer), dtype=np.float32).reshape(-1, self.shape[1])
        except OSError as error:
            raise DataError(f"The embeddings in '{self._file(layer)}' are gone: {error}") from None
        return np.asarray(rows[self._where])

    def spill(self) -> None:
        """Move the vectors from memory to files."""
        with _LOCK:
            vectors, self._vectors = self._vectors, None
            if vectors is not None:
                self._make_folder()
                self.put(np.arange(self.shape[0]), vectors)

    def _append(self, rows: NDArray[np.intp], vectors: NDArray[np.float32]) -> None:
        with room_for(f"embeddings in '{self._folder}'"):
            for layer, block in zip(self.layers, vectors, strict=True):
                with self._file(layer).open("ab") as file:
                    at = file.tell() // (4 * self.shape[1])
                    file.write(np.ascontiguousarray(block, dtype=np.float32).tobytes())
        self._where[rows] = at + np.arange(len(rows))

    def _make_folder(self) -> None:
        self._folder = self._shelf.folder / f"{self.key}-{secrets.token_hex(4)}"
        with room_for(f"embeddings in '{self._folder}'"):
            self._folder.mkdir(parents=True)

    def _file(self, layer: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{layer}.f32"

    def __sizeof__(self) -> int:
        return self.in_memory  # Dask asks, to know what moving it costs

    def __getstate__(self) -> dict[str, Any]:
        with _LOCK:
            return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy in another process counts against the budget of that process, and moves on if it has no room."""
        self.__dict__.update(state)
        self._shelf = SHELVES.setdefault((self._shelf.folder, self._shelf.budget), self._shelf)
        if self._vectors is not None and not self._shelf.takes(self):
            self.spill()


class Shelf:
    """What embeddings of one process may hold in memory together.

    Parameters
    ----------
    folder : Path
        For the rest; every worker must see it.
    budget : int
        Bytes.
    """

    def __init__(self, folder: Path, budget: int) -> None:
        self.folder, self.budget = folder, budget
        self._held: dict[int, weakref.ref[Embeddings]] = {}  # longest unused first

    def takes(self, new: Embeddings) -> bool:
        """Whether it may be in memory; older ones are moved to files for it."""
        if new.nbytes > self.budget:
            return False
        with _LOCK:
            while self.in_memory + new.nbytes > self.budget:
                next(each for each in self._living() if each.in_memory and each is not new).spill()
            self._held[id(new)] = weakref.ref(new)
        return True

    def touch(self, used: Embeddings) -> None:
        """It was used just now."""
        if held := self._held.pop(id(used), None):
            self._held[id(used)] = held

    @property
    def in_memory(self) -> int:
        """Bytes that are in memory now."""
        return sum(each.in_memory for each in self._living())

    def _living(self) -> list[Embeddings]:
        living = {place: each for place, ref in self._held.items() if (each := ref()) is not None}
        self._held = {place: self._held[place] for place in living}
        return list(living.values())

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "budget": self.budget, "_held": {}}


def remove(folder: Path, key: Key) -> None:
    """Remove all files of the embeddings of this key."""
    for path in folder.glob(f"{key}-*"):
        shutil.rmtree(path, ignore_errors=True)


#: The shelves of this process, by folder and budget.
SHELVES: dict[tuple[Path, int], Shelf] = {}


def shelf(folder: Path, budget: int) -> Shelf:
    """This process's shelf for a folder and a budget."""
    return SHELVES.setdefault((folder, budget), Shelf(folder, budget))
