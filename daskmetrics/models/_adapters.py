"""LoRA adapters: what they make of the weights of their base model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from daskmetrics.checkpoints.adapters import Adapter
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
        start = base if self.replaced is None else self.replaced.to(base.device)
        return start if self.added is None else start + self.added


def changes(
    module: Any, weights: Mapping[str, Tensor], adapter: Adapter, place: str
) -> dict[str, Change]:
    """What an adapter makes of the parameters of a network, by their names.

    The product of the two matrices is scaled, then added, as ``merge_and_unload`` of peft does.
    Parameters of a head, or of a decoder of which only the encoder is loaded, are left out. An
    adapter of another network is a `DataError`.
    """
    parameters = dict(module.named_parameters())
    made: dict[str, Change] = {}
    for name, tensor in _replaced(weights).items():
        if target := _target(name, module, parameters, place):
            made.setdefault(target, Change()).replaced = _fitting(
                tensor, parameters[target], name, place
            )
    for trained, factors in _factors(weights).items():
        for kind, delta in _added(trained, factors, adapter).items():
            if target := _target(f"{trained}.{kind}", module, parameters, place):
                delta = delta.to(parameters[target].device)
                turned = delta.T if kind == "weight" and _is_transposed(module, target) else delta
                made.setdefault(target, Change()).added = _fitting(
                    turned, parameters[target], trained, place
                )
    if not made:
        raise DataError(
            f"The adapter in '{place}' changes no parameter that a {type(module).__name__} has."
        )
    return made


def _replaced(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters that were trained as a whole, by their names in the model that was trained."""
    names = {name.removeprefix(_PREFIX): name for name in weights}
    found = {
        name.replace(".base_layer.", "."): weights[own]
        for name, own in names.items()
        if ".lora_" not in name
    }
    saved = {
        n.replace(".modules_to_save.", "."): t for n, t in found.items() if ".modules_to_save." in n
    }
    rest = {
        n: t
        for n, t in found.items()
        if ".modules_to_save." not in n and ".original_module." not in n
    }
    return rest | saved


def _factors(weights: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """A (r, in), B (out, r) and perhaps the bias (out,) of each module, by its name in the model
    that was trained.
    """
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        if match := _FACTOR.fullmatch(name.removeprefix(_PREFIX)):
            found.setdefault(match["module"], {})[
                "bias" if match["of"] == "bias" else match["factor"]
            ] = tensor
    return found


def _added(name: str, factors: Mapping[str, Tensor], adapter: Adapter) -> dict[str, Tensor]:
    """What is added to the weight (out, in) and perhaps to the bias (out,) of a module."""
    first, second = factors["A"].float(), factors["B"].float()
    scale = adapter.scale(name, first.shape[0])
    bias = {"bias": factors["bias"].float() * scale} if "bias" in factors else {}
    return {"weight": second @ first * scale, **bias}


def _target(name: str, module: Any, parameters: Mapping[str, Tensor], place: str) -> str | None:
    """The name of a parameter in the network without its head; None if it is not of this part of
    the model.
    """
    inner = name.removeprefix(f"{module.base_model_prefix}.")
    if target := next((each for each in (name, inner) if each in parameters), None):
        return target
    if inner.partition(".")[0] in {each.partition(".")[0] for each in parameters}:
        raise DataError(
            f"The adapter in '{place}' changes {name}, which a {type(module).__name__} does not have."
        )
    return None


def _is_transposed(module: Any, target: str) -> bool:
    """Whether a module keeps its weight as (in, out): embeddings do, and what GPT-2 has for linear
    layers.
    """
    from torch.nn import Embedding
    from transformers.pytorch_utils import Conv1D

    return isinstance(module.get_submodule(target.rpartition(".")[0]), Embedding | Conv1D)


def _fitting(tensor: Tensor, parameter: Tensor, name: str, place: str) -> Tensor:
    if tensor.shape != parameter.shape:
        wanted, got = (" x ".join(map(str, each.shape)) for each in (parameter, tensor))
        raise DataError(
            f"The adapter in '{place}' has {got} numbers for {name}, and its base model {wanted}."
        )
    return tensor
