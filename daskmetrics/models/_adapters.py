"""What a LoRA adapter makes of the weights of its base model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from torch import Tensor, nn

from daskmetrics.checkpoints.folders import Adapter
from daskmetrics.core.errors import DataError

_PREFIX = "base_model.model."  # of all names in the files of an adapter
_FACTOR = re.compile(
    r"(?P<module>.+)\.lora_(?:embedding_)?(?P<factor>[AB])(?:\.(?P<of>weight|bias))?"
)


def adapted(
    module: nn.Module, weights: Mapping[str, Tensor], adapter: Adapter, path: str
) -> dict[str, Tensor]:
    """What an adapter makes of the parameters of a network, which has the weights of its base, by
    their names.

    The product of the two matrices is scaled, then added, as ``merge_and_unload`` of peft does.
    Parameters of a head, or of a decoder of which only the encoder is loaded, are left out. An
    adapter of another network is a `DataError`.
    """
    from transformers.pytorch_utils import Conv1D

    parameters = dict(module.named_parameters())
    changed: dict[str, Tensor] = {}
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
        elif ".lora_" in name:
            raise DataError(
                f"The adapter in '{path}' has '{name}', which is no matrix of plain LoRA. Merge it"
                " into its base with merge_and_unload() of peft."
            )
        elif ".original_module." not in name:
            replacements.setdefault(name.replace(".base_layer.", "."), tensor)

    def trained() -> Iterator[tuple[str, Tensor, bool]]:
        """Tensors by name, and whether they are added; a product is as large as the weights."""
        for name, tensor in replacements.items():
            yield name, tensor, False
        for name, factors in factors_of.items():
            if not factors.keys() >= {"A", "B"}:
                raise DataError(
                    f"The adapter in '{path}' has one of the two matrices of {name} alone. Save or"
                    " download it again."
                )
            down = factors["A"].float()
            up = factors["B"].float()
            scale = adapter.scale(name, down.shape[0])
            yield f"{name}.weight", up @ down * scale, True
            if "bias" in factors:
                yield f"{name}.bias", factors["bias"].float() * scale, True

    for name, tensor, is_added in trained():
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
        tensor = tensor.to(parameter.device)
        if is_added:
            tensor = changed.get(target, parameter) + tensor
        changed[target] = tensor
    if not changed:
        raise DataError(
            f"The adapter in '{path}' changes no parameter that a {type(module).__name__} has."
        )
    return changed


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
    modules = {parameter.partition(".")[0] for parameter in parameters}
    if inner.partition(".")[0] in modules:
        raise DataError(
            f"The adapter in '{path}' changes {name}, which a {type(module).__name__} does not"
            " have."
        )
    return None
