"""One forward pass, whose states are handed out as they appear and end at the deepest wanted layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from daskmetrics.core.errors import DataError

See = Callable[[int, Tensor], None]
"""Takes a layer and its raw states (B, T, D), which are read and not kept."""


class _DeepEnough(Exception):
    """Nothing below is wanted."""


@torch.inference_mode()
def run(network: Any, anatomy: Anatomy, inputs: Mapping[str, Tensor], layers: Collection[int], see: See) -> None:
    """Call ``see`` with the states of each wanted layer as the blocks leave them, before any final norm.

    Parameters
    ----------
    network : transformers.PreTrainedModel
        As ``AutoModel`` loads it.
    anatomy : Anatomy
        With known blocks nothing is kept, and no block below the deepest wanted layer runs; else all states are
        kept until the pass is over.
    inputs : mapping
        ``input_ids`` and ``attention_mask``.
    layers : collection of int
        0 is the input of the first block.
    see : callable

    Raises
    ------
    DataError
        If an unknown architecture does not return one state per layer.
    """
    if anatomy.blocks:
        _by_hooks(network, anatomy.blocks, inputs, layers, see)
    else:
        _by_outputs(network, anatomy.final_norm, inputs, layers, see)


def _by_hooks(
    network: Any, blocks: tuple[nn.Module, ...], inputs: Mapping[str, Tensor], layers: Collection[int], see: See
) -> None:
    deepest = max(layers)

    def show(layer: int, states: Tensor) -> None:
        see(layer, states)
        if layer == deepest:
            raise _DeepEnough

    with ExitStack() as hooks, suppress(_DeepEnough):
        for layer in layers:
            hooks.enter_context(_hooked(blocks, layer, show))
        network(**inputs, use_cache=False, return_dict=True)


@contextmanager
def _hooked(blocks: tuple[nn.Module, ...], layer: int, show: See) -> Iterator[None]:
    def before(_: nn.Module, args: tuple[Any, ...]) -> None:
        show(0, args[0])

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        show(layer, output[0] if isinstance(output, tuple) else output)

    block = blocks[max(layer - 1, 0)]
    handle = block.register_forward_hook(after) if layer else block.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


def _by_outputs(
    network: Any, final_norm: nn.Module | None, inputs: Mapping[str, Tensor], layers: Collection[int], see: See
) -> None:
    before_norm: list[Tensor] = []
    with ExitStack() as hooks:
        if final_norm is not None:
            handle = final_norm.register_forward_pre_hook(lambda _, args: before_norm.append(args[0]))
            hooks.callback(handle.remove)
        hidden = network(**inputs, output_hidden_states=True, use_cache=False, return_dict=True).hidden_states
    depth = int(network.config.num_hidden_layers)
    if len(hidden) != depth + 1:
        raise DataError(
            f"A {network.config.model_type} of {depth} blocks returned {len(hidden)} hidden states where {depth + 1} "
            "were expected. Add the architecture to daskmetrics.models._forward.FAMILIES."
        )
    for layer in sorted(layers):
        # transformers has applied the final norm to the last one only
        see(layer, before_norm[0] if before_norm and layer == depth else hidden[layer])


@dataclass(frozen=True)
class Family:
    """Names of the parts of a network, as ``AutoModel`` builds it.

    Attributes
    ----------
    blocks : str
        The list of blocks; its entry k takes layer k and gives layer k + 1.
    final_norm : str or None
        The norm after the last block, if there is one: encoders such as BERT have it inside each block.
    """

    blocks: str
    final_norm: str | None


_LLAMA = Family("layers", "norm")
_BERT = Family("encoder.layer", None)
_MAMBA = Family("layers", "norm_f")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "gpt_neox": Family("layers", "final_layer_norm"),
        "gpt2": Family("h", "ln_f"),
        "gpt_neo": Family("h", "ln_f"),
        **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "olmo2", "phi3"), _LLAMA),
        **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra"), _BERT),
        # transformers leaves the embeddings out of a Mamba's hidden_states and shifts the rest by one
        **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), _MAMBA),
    }
)
"""The architectures whose states are read block by block, by ``model_type``."""

_FINAL_NORMS = ("final_layer_norm", "ln_f", "norm", "norm_f", "final_norm")
"""Where the final norm is in architectures that are not in the table."""


@dataclass(frozen=True)
class Anatomy:
    """The parts of one network. Without blocks, ``output_hidden_states`` is what can be had."""

    blocks: tuple[nn.Module, ...]
    final_norm: nn.Module | None


def anatomy_of(network: Any) -> Anatomy:
    """Find the blocks and the final norm of a network."""
    family = FAMILIES.get(network.config.model_type)
    if family is None:
        found = (getattr(network, name, None) for name in _FINAL_NORMS)
        return Anatomy((), next((module for module in found if isinstance(module, nn.Module)), None))
    blocks = tuple(attrgetter(family.blocks)(network))
    return Anatomy(blocks, getattr(network, family.final_norm) if family.final_norm else None)
