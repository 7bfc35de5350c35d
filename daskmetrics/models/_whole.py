"""Whether a network holds every tensor of the files of its weights, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from daskmetrics.checkpoints.checks import WRAPPER, unwrapped
from daskmetrics.core.errors import DataError
from daskmetrics.core.text import plural, shortened

_NUMBER = re.compile(r"(?:^|\.)(\d+)\.")  # of a block
# numbers of a mask or of positions, which a network computes itself
_COUNTS = (torch.bool, torch.uint8, torch.int64)
_MASKED = -1e4  # and what a mask adds, where it is stored as one number


def require_whole(
    module: Any, info: Mapping[str, Any], weights: Mapping[str, Tensor], path: str
) -> None:
    """Check that a network has every tensor of the files.

    It is a `DataError` if one is missing or left over. A head or a pooler may be missing or left
    over: what stands beside the modules of the network, and not within one. Frozen parameters, such
    as the sine waves of positions, follow from the configuration. ``info`` is what the loader says.
    """
    _require_one_set(module, weights, path)
    missing = sorted(name for name in info["missing_keys"] if not _is_of_pooler(name))
    if missing:
        frozen = _frozen(module)
        missing = [name for name in missing if name not in frozen]
    if missing:  # the loader draws them at random
        raise DataError(
            f"The weights in '{path}' lack {plural(len(missing), 'parameter')}, such as"
            f" {missing[0]}{_remedy(missing, weights)}."
        )
    dropped = _left_out(
        module, {*info["unexpected_keys"], *_without_place(module, weights)}, weights
    )
    if dropped:
        raise DataError(
            f"A {type(module).__name__}, as the config.json in '{path}' describes it, has no place"
            f" for {plural(len(dropped), 'tensor')} of the files: {shortened(dropped)}. Copy the"
            " config.json and the weights of one model, or merge an adapter with"
            " merge_and_unload() of peft."
        )


def require_one_architecture(config: Any, transformers: Any, path: str) -> None:
    """Check that the named class is of the configuration's type.

    Classes whose parameters have equal names and shapes, as those of BERT and RoBERTa, compute
    different numbers.
    """
    for name in config.architectures or ():
        of_class = getattr(getattr(transformers, name, None), "config_class", None)
        if of_class is not None and of_class.model_type != config.model_type:
            raise DataError(
                f"The config.json in '{path}' names two architectures: model_type"
                f" '{config.model_type}', and the class {name}, which is of the type"
                f" '{of_class.model_type}'. Correct the one that is wrong."
            )


def _require_one_set(module: Any, weights: Mapping[str, Tensor], path: str) -> None:
    own = f"{module.base_model_prefix}."
    twice = sorted(name for name in weights if own + name in weights)
    if twice:
        raise DataError(
            f"'{path}' has two sets of weights: '{twice[0]}' and '{own}{twice[0]}' are one parameter"
            f" of a {type(module).__name__}. Remove the one that is not meant, and save it again."
        )


def _is_of_pooler(name: str) -> bool:
    """Whether a parameter is of a pooler, which no layer reads."""
    return "pooler" in name and _NUMBER.search(name) is None


def _frozen(module: Any) -> set[str]:
    """Names of the parameters that a new network freezes.

    The loader thaws some.
    """
    with torch.device("meta"):
        network = type(module)(module.config)
    return {name for name, tensor in network.named_parameters() if not tensor.requires_grad}


def _without_place(module: Any, weights: Mapping[str, Tensor]) -> Iterator[str]:
    """Names in the files that no parameter has.

    Only where the others are those of the parameters. The loader renames some and then takes one of
    two, and of those that it ignores it compares parts of names: ``attn.bias`` is in
    ``c_attn.bias``.
    """
    names = {name.removeprefix(f"{module.base_model_prefix}.") for name in weights}
    parameters = {name for name, _ in module.named_parameters() if not _is_of_pooler(name)}
    if not parameters <= names:
        return
    patterns = "|".join(module._keys_to_ignore_on_load_unexpected or ["$."])
    ignored = re.compile(rf"(?:^|(?<=\.)|(?=\.))(?:{patterns})")
    for name in names - module.state_dict().keys():
        if not ignored.search(name):
            yield name


def _remedy(missing: Sequence[str], names: Collection[str]) -> str:
    prefix = _prefix(missing[0], names)
    if prefix and all(prefix + name in names for name in missing):
        return f". The names in the files begin with '{prefix}': {unwrapped(prefix)}"
    if any(".base_layer." in name for name in names):
        return ". An adapter was not merged: save what merge_and_unload() of peft returns"
    return ""


def _prefix(parameter: str, names: Iterable[str]) -> str:
    prefixes = (name.removesuffix(parameter) for name in names if name.endswith(f".{parameter}"))
    return next((prefix for prefix in prefixes if not _NUMBER.search(prefix)), "")


def _left_out(module: Any, names: Iterable[str], weights: Mapping[str, Tensor]) -> list[str]:
    """The tensors without a place within a module of the network.

    Blocks behind the last one that predict further tokens, and the buffers that a network computes
    itself, are none of them.
    """
    own = f"{module.base_model_prefix}."
    by_name = {name.removeprefix(own): tensor for name, tensor in weights.items()}
    modules = {name for name, _ in module.named_children()}
    inside = set()
    for full_name in (WRAPPER.sub("", name) for name in names):
        name = full_name.removeprefix(own)
        first, dot, _ = name.partition(".")
        is_within = name != full_name or (dot and first in modules)
        if is_within and not _is_of_pooler(name) and not _predicts_further(module.config, name):
            inside.add(name)
    computed = _computed(module)
    return sorted(
        name for name in inside if _last(name) not in computed and not _is_mask(by_name.get(name))
    )


def _computed(module: Any) -> set[str]:
    """Last parts of names of buffers alone, such as inv_freq."""
    buffers = {_last(name) for name, _ in module.named_buffers()}
    return buffers - {_last(name) for name, _ in module.named_parameters()}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_mask(tensor: Tensor | None) -> bool:
    if tensor is None:
        return False
    return tensor.dtype in _COUNTS or (tensor.dim() == 0 and tensor.item() <= _MASKED)


def _predicts_further(config: Any, name: str) -> bool:
    further = getattr(config, "num_nextn_predict_layers", None) or 0
    number = _NUMBER.search(name)
    depth = getattr(config, "num_hidden_layers", 0)
    return number is not None and depth <= int(number[1]) < depth + further
