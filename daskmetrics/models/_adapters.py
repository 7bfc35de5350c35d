"""LoRA adapters: what they make of the weights of their base model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from daskmetrics.checkpoints.folders import Adapter
from daskmetrics.core.errors import DataError

_PREFIX = "base_model.model."  # of all names in the files
_FACTOR = re.compile(
    r"(?P<module>.+)\.lora_(?:embedding_)?(?P<factor>[AB])(?:\.(?P<of>weight|bias))?"
)


@dataclass
class Change:
    """What an adapter makes of one parameter of its base."""

    replaced: Tensor | None = None  # a parameter that was trained as a whole
    added: Tensor | None = None

    def of(self, base: Tensor) -> Tensor:
        if self.replaced is not None:
            base = self.replaced.to(base.device)
        return base if self.added is None else base + self.added


def changes(
    module: Any, weights: Mapping[str, Tensor], adapter: Adapter, path: str
) -> dict[str, Change]:
    """What an adapter makes of the parameters of a network, by their names.

    The product of the two matrices is scaled, then added, as ``merge_and_unload`` of peft does.
    Parameters of a head, or of a decoder of which only the encoder is loaded, are left out. An
    adapter of another network is a `DataError`.
    """
    parameters = dict(module.named_parameters())
    by_parameter: defaultdict[str, Change] = defaultdict(Change)
    for name, tensor in _replaced(weights).items():
        target = _target(name, module, parameters, path)
        if target:
            by_parameter[target].replaced = _fitting(tensor, parameters[target], name, path)
    for trained, factors in _factors(weights).items():
        for kind, delta in _added(trained, factors, adapter).items():
            target = _target(f"{trained}.{kind}", module, parameters, path)
            if not target:
                continue
            delta = delta.to(parameters[target].device)
            if kind == "weight" and _is_transposed(module, target):
                delta = delta.T
            by_parameter[target].added = _fitting(delta, parameters[target], trained, path)
    if not by_parameter:
        raise DataError(
            f"The adapter in '{path}' changes no parameter that a {type(module).__name__} has."
        )
    return by_parameter


def _replaced(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters that were trained as a whole, by their names in the model that was trained."""
    outside: dict[str, Tensor] = {}
    saved: dict[str, Tensor] = {}
    for name_in_file, tensor in weights.items():
        name = name_in_file.removeprefix(_PREFIX).replace(".base_layer.", ".")
        if ".lora_" in name:
            continue
        if ".modules_to_save." in name:
            saved[name.replace(".modules_to_save.", ".")] = tensor
        elif ".original_module." not in name:
            outside[name] = tensor
    return outside | saved


def _factors(weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """A (r, in), B (out, r) and perhaps the bias (out,) of each module, by its name in the model
    that was trained.
    """
    by_module: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in weights.items():
        match = _FACTOR.fullmatch(name.removeprefix(_PREFIX))
        if match:
            kind = "bias" if match["of"] == "bias" else match["factor"]
            by_module[match["module"]][kind] = tensor
    return by_module


def _added(name: str, factors: Mapping[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """What is added to the weight (out, in) and perhaps to the bias (out,) of a module."""
    down, up = factors["A"].float(), factors["B"].float()
    scale = adapter.scale(name, down.shape[0])
    added = {"weight": up @ down * scale}
    if "bias" in factors:
        added["bias"] = factors["bias"].float() * scale
    return added


def _target(name: str, module: Any, parameters: Mapping[str, Tensor], path: str) -> str | None:
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
            f"The adapter in '{path}' changes {name}, which a {type(module).__name__} does not have."
        )
    return None


def _is_transposed(module: Any, target: str) -> bool:
    """Whether a module keeps its weight as (in, out): embeddings do, and what GPT-2 has for linear
    layers.
    """
    from torch.nn import Embedding
    from transformers.pytorch_utils import Conv1D

    return isinstance(module.get_submodule(target.rpartition(".")[0]), Embedding | Conv1D)


def _fitting(tensor: Tensor, parameter: Tensor, name: str, path: str) -> Tensor:
    if tensor.shape != parameter.shape:
        wanted, actual = (" x ".join(map(str, shape)) for shape in (parameter.shape, tensor.shape))
        raise DataError(
            f"The adapter in '{path}' has {actual} numbers for {name}, and its base model {wanted}."
        )
    return tensor
