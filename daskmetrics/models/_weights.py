"""The tensors in a checkpoint's safetensors files, read in the background if wanted; and what a
LoRA adapter makes of those of its base model.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor, nn

from daskmetrics.checkpoints.folders import WEIGHTS as ADAPTER
from daskmetrics.checkpoints.folders import Adapter
from daskmetrics.checkpoints.locations import Location, folder_of
from daskmetrics.core.errors import DataError
from daskmetrics.core.serialization import parse

Weights = Mapping[str, Tensor]

log = logging.getLogger(__name__)

_PREFIX = "base_model.model."  # of all names in the files of an adapter
_FACTOR = re.compile(
    r"(?P<module>.+)\.lora_(?:embedding_)?(?P<factor>[AB])(?:\.(?P<of>weight|bias))?"
)


@contextmanager
def loading(what: str, path: str) -> Iterator[None]:
    """Turn whatever foreign files raise, which can be anything, into a `DataError`."""
    try:
        yield
    except Exception as error:
        raise DataError(f"Cannot load {what} in '{path}': {error}") from error


def open_weights(location: Location) -> Weights | None:
    """All tensors by their names in the files, memory-mapped; None if there are no readable
    files.
    """
    from safetensors import safe_open

    weights: dict[str, Tensor] = {}
    try:
        with loading("the weights", location.path):
            for path in _files(location):
                with safe_open(path, framework="pt") as file:
                    weights |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except DataError:  # transformers loads them next and reports what is wrong
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
        self._location = location
        self._weights = None
        self._thread = Thread(
            target=self._read, args=(location, pin, names), name="prefetch", daemon=True
        )
        self._thread.start()

    def take(self, location: Location) -> Weights | None:
        """The weights of this checkpoint, if they were read; waits for them if they are being
        read.
        """
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


@dataclass
class Change:
    """What an adapter makes of one parameter of its base."""

    replaced: Tensor | None = None  # a parameter that was trained as a whole
    added: Tensor | None = None

    def of(self, base: Tensor) -> Tensor:
        if self.replaced is not None:
            base = self.replaced.to(base.device)
        if self.added is None:
            return base
        return base + self.added


def changes(
    module: nn.Module, weights: Mapping[str, Tensor], adapter: Adapter, path: str
) -> dict[str, Change]:
    """What an adapter makes of the parameters of a network, by their names.

    The product of the two matrices is scaled, then added, as ``merge_and_unload`` of peft does.
    Parameters of a head, or of a decoder of which only the encoder is loaded, are left out. An
    adapter of another network is a `DataError`.
    """
    from transformers.pytorch_utils import Conv1D

    parameters = dict(module.named_parameters())
    by_parameter: defaultdict[str, Change] = defaultdict(Change)
    replacements: dict[str, Tensor] = {}  # trained as a whole, by their names in the trained model
    # A (r, in), B (out, r) and perhaps the bias (out,) of each module
    factors_of: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for name_in_file, tensor in weights.items():
        name = name_in_file.removeprefix(_PREFIX)
        if match := _FACTOR.fullmatch(name):
            kind = "bias" if match["of"] == "bias" else match["factor"]
            factors_of[match["module"]][kind] = tensor
        elif ".modules_to_save." in name:
            name = name.replace(".base_layer.", ".")
            replacements[name.replace(".modules_to_save.", ".")] = tensor
        elif ".lora_" not in name and ".original_module." not in name:
            replacements.setdefault(name.replace(".base_layer.", "."), tensor)
    trained = [(name, tensor, False) for name, tensor in replacements.items()]
    for name, factors in factors_of.items():
        down = factors["A"].float()
        up = factors["B"].float()
        scale = adapter.scale(name, down.shape[0])
        trained.append((f"{name}.weight", up @ down * scale, True))
        if "bias" in factors:
            trained.append((f"{name}.bias", factors["bias"].float() * scale, True))
    for name, tensor, is_added in trained:
        target = _target(name, module, parameters, path)
        if target is None:
            continue
        layer = module.get_submodule(target.rpartition(".")[0])
        parameter = parameters[target]
        # embeddings keep weights as (in, out), and what GPT-2 has for linear layers
        if is_added and tensor.dim() > 1 and isinstance(layer, nn.Embedding | Conv1D):
            tensor = tensor.T
        if tensor.shape != parameter.shape:
            actual, wanted = (" x ".join(map(str, t.shape)) for t in (tensor, parameter))
            raise DataError(
                f"The adapter in '{path}' has {actual} numbers for {name}, and its base model"
                f" {wanted}."
            )
        if is_added:
            by_parameter[target].added = tensor.to(parameter.device)
        else:
            by_parameter[target].replaced = tensor
    if not by_parameter:
        raise DataError(
            f"The adapter in '{path}' changes no parameter that a {type(module).__name__} has."
        )
    return by_parameter


def _target(
    name: str, module: nn.Module, parameters: Mapping[str, Tensor], path: str
) -> str | None:
    """The name of a parameter in the network without its head; None if it is not of this part of
    the model.
    """
    inner = name.removeprefix(f"{module.base_model_prefix}.")
    if name in parameters:
        return name
    if inner in parameters:
        return inner
    if inner.partition(".")[0] in {parameter.partition(".")[0] for parameter in parameters}:
        raise DataError(
            f"The adapter in '{path}' changes {name}, which a {type(module).__name__} does not"
            " have."
        )
    return None
