"""What a LoRA adapter makes of the weights of its base model, as the library ``peft`` merges it."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from daskmetrics.checkpoints.adapters import require_peft
from daskmetrics.core.errors import DataError, foreign_errors
from daskmetrics.core.text import shortened

_PREFIX = "base_model.model."  # of all names in the files of an adapter
_MATRIX = ".lora_"  # in the names of the matrices whose product is added to a weight
_COPY = ".modules_to_save."  # of a module that was trained as a whole


def adapted(module: nn.Module, weights: Mapping[str, Tensor], path: str) -> dict[str, Tensor]:
    """The parameters that an adapter changes, by name.

    ``module`` has the weights of the base, which stay as they are. Parameters of a head, or of a
    decoder of which only the encoder is loaded, are left out. An adapter of another network is a
    `DataError`.
    """
    of_adapter = _of_network(module, weights)
    if not of_adapter:
        raise DataError(
            f"The adapter in '{path}' changes no parameter that a {type(module).__name__} has."
        )
    matrices = {}
    whole: dict[str, Tensor] = {}  # in place of the base's, such as a norm or a bias
    for name, tensor in of_adapter.items():
        name = name.replace(".base_layer.", ".")
        if _MATRIX in name:
            matrices[name] = tensor.float()
        elif _COPY in name:
            whole[name.replace(_COPY, ".")] = tensor
        elif ".original_module." not in name:
            whole.setdefault(name, tensor)
    copy = _copy_of(module)
    model = _as_trained(copy, of_adapter)
    _replace(model, whole, path)
    if matrices:
        _merge(model, matrices, path)
    before = dict(module.named_parameters())
    after = {name: copy.get_parameter(name).detach() for name in before}
    return {
        name: after[name] for name in before if after[name].data_ptr() != before[name].data_ptr()
    }


def _of_network(module: nn.Module, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    children = {name.partition(".")[0] for name, _ in module.named_parameters()}
    inside = {}
    for name_in_file, tensor in weights.items():
        name = name_in_file.removeprefix(_PREFIX)
        child, *_ = name.removeprefix(f"{module.base_model_prefix}.").split(".")
        if child in children:
            inside[name] = tensor
    return inside


def _copy_of(module: nn.Module) -> nn.Module:
    """A copy that shares the network's numbers until they are replaced."""
    shared: dict[int, object] = {id(buffer): buffer for buffer in module.buffers()}
    for parameter in module.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
    return deepcopy(module, shared)


def _as_trained(network: nn.Module, names: Mapping[str, Tensor]) -> nn.Module:
    """The network within a model that names its modules like these.

    The patterns of an adapter's configuration are those of the model that was trained.
    """
    prefix = str(network.base_model_prefix)
    if hasattr(network, prefix) or not any(name.startswith(f"{prefix}.") for name in names):
        return network
    model = nn.Module()
    model.add_module(prefix, network)
    return model


def _replace(model: nn.Module, tensors: Mapping[str, Tensor], path: str) -> None:
    parameters = dict(model.named_parameters())
    _require_known(tensors.keys() - parameters.keys(), path)
    for name, tensor in tensors.items():
        parameter = parameters[name]
        if tensor.shape != parameter.shape:
            actual, wanted = (" x ".join(map(str, t.shape)) for t in (tensor, parameter))
            raise DataError(
                f"The adapter in '{path}' has {actual} numbers for {name}, and its base model"
                f" {wanted}."
            )
        parameter.data = tensor.to(parameter)


def _merge(model: nn.Module, matrices: Mapping[str, Tensor], path: str) -> None:
    require_peft(path)
    from peft import LoraConfig, LoraModel, set_peft_model_state_dict

    modules = {name.partition(_MATRIX)[0] for name in matrices}
    _require_known(modules - {name for name, _ in model.named_modules()}, path)
    for module in map(model.get_submodule, modules):
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()  # the base keeps its numbers
    with (
        warnings.catch_warnings(),
        torch.random.fork_rng([]),  # matrices are random until they get the numbers of the file
        foreign_errors(f"The adapter in '{path}' cannot be merged into its base model", DataError),
    ):
        # of patterns and modules that the whole model has, and this part of it does not
        warnings.simplefilter("ignore")
        config = LoraConfig.from_pretrained(path)
        config.target_modules = modules  # which the file names, whatever they were chosen by
        config.exclude_modules = config.layers_to_transform = config.modules_to_save = None
        config.init_lora_weights = True
        lora = LoraModel(model, config, "default")
        for name, parameter in model.named_parameters():
            if _MATRIX in name:  # their product is rounded once, when it is added
                parameter.data = parameter.data.float()
        loaded: Any = set_peft_model_state_dict(model, dict(matrices))
        missing = [name for name in loaded.missing_keys if _MATRIX in name]
        if not missing and not loaded.unexpected_keys:
            lora.merge_and_unload()
    _require_known(loaded.unexpected_keys, path)
    if missing:
        raise DataError(
            f"The adapter in '{path}' lacks {shortened(missing)}: it has one of two matrices alone."
            " Save or download it again."
        )


def _require_known(unknown: Collection[str], path: str) -> None:
    if unknown:
        raise DataError(
            f"The adapter in '{path}' has {shortened(sorted(unknown))}, for which its base model has"
            " no place. Give the base model that it was trained on, or merge it into that with"
            " merge_and_unload() of peft."
        )
