"""The tensors in a checkpoint's safetensors files, and reading them in the background."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor

from daskmetrics.checkpoints.folders import WEIGHTS as ADAPTER
from daskmetrics.checkpoints.locations import Location, folder_of
from daskmetrics.core.serialization import parse

Weights = Mapping[str, Tensor]

log = logging.getLogger(__name__)


def open_weights(location: Location) -> Weights | None:
    """All tensors by their names in the files, memory-mapped; None if there are no readable files."""
    from safetensors import safe_open

    weights: dict[str, Tensor] = {}
    try:
        for path in _files(location):
            with safe_open(path, framework="pt") as file:
                weights |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except Exception:  # foreign files; transformers loads them next and reports what is wrong
        return None
    return weights or None


def _files(location: Location) -> list[Path]:
    folder = folder_of(location)
    if folder is None:
        return []
    if location.base is not None:
        return [folder / ADAPTER]
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        return []
    names = set(parse(index.read_text("utf-8"))["weight_map"].values())
    return [folder / name for name in sorted(names)]


def pinned(tensor: Tensor) -> Tensor:
    """A copy in pinned (page-locked) memory, from which a GPU reads beside its work; in ordinary
    memory without any.
    """
    try:
        return tensor.pin_memory()
    except RuntimeError as error:
        _warn_once(" ".join(str(error).split()))
        return tensor.clone()


@cache
def _warn_once(reason: str) -> None:
    log.warning("Copies to the GPU wait for its work: no memory could be pinned (%s).", reason)


class Prefetch:
    """Reads the weights of one checkpoint into memory in the background; holds no more than one."""

    def __init__(self) -> None:
        self._location: Location | None = None
        self._weights: Weights | None = None
        self._thread: Thread | None = None

    def begin(
        self, location: Location, pin: bool = False, names: Collection[str] | None = None
    ) -> None:
        """Start to read, unless another checkpoint is being read; weights that were read and not
        taken are dropped.

        Tensors with other ``names``, such as those of a head, stay in the files. A GPU copies
        asynchronously from pinned (page-locked) memory.
        """
        if location == self._location or (self._thread is not None and self._thread.is_alive()):
            return
        self._location, self._weights = location, None
        self._thread = Thread(
            target=self._read, args=(location, pin, names), name="prefetch", daemon=True
        )
        self._thread.start()

    def take(self, location: Location) -> Weights | None:
        """The weights of this checkpoint, if they were read; waits for them if they are being read."""
        weights = None
        if location == self._location:
            if self._thread is not None:
                self._thread.join()
            weights = self._weights
        self._location = self._weights = None
        return weights

    def _read(self, location: Location, pin: bool, names: Collection[str] | None) -> None:
        mapped = open_weights(location)
        if mapped is None:
            return
        copy = pinned if pin else torch.clone
        weights = dict(mapped)
        for name, tensor in mapped.items():
            if names is None or name in names:
                weights[name] = copy(tensor)
        if location == self._location:
            self._weights = weights
