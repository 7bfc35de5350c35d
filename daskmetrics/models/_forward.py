"""One forward pass that hands out the states of each layer and stops after the deepest requested one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from daskmetrics.core.errors import DataError

OnStates = Callable[[int, Tensor], None]
"""Receives a layer and its raw states (B, T, D), which are not kept."""


class _StopForward(Exception):
    """Ends the pass after the deepest requested layer."""


@torch.inference_mode()
def run(
    network: Any, parts: NetworkParts, inputs: Mapping[str, Tensor], layers: Collection[int], on_states: OnStates
) -> None:
    """Call ``on_states`` with the states of each requested layer as its block returns them, before any final norm.

    Layer 0 is the input of the first block. Where the blocks are known, no states are kept and no block after the
    deepest requested layer runs; otherwise all states are kept until the pass ends.
    """
    if not parts.blocks:
        _by_outputs(network, parts.final_norm, inputs, layers, on_states)
        return
    deepest = max(layers)

    def show(layer: int, states: Tensor) -> None:
        on_states(layer, states)
        if layer == deepest:
            raise _StopForward

    with ExitStack() as hooks, suppress(_StopForward):
        for layer in layers:
            hooks.callback(_hook(parts.blocks, layer, show).remove)
        network(**inputs, use_cache=False, return_dict=True)


def _hook(blocks: tuple[nn.Module, ...], layer: int, show: OnStates) -> RemovableHandle:
    def before(_: nn.Module, args: tuple[Any, ...]) -> None:
        show(0, args[0])

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        show(layer, output[0] if isinstance(output, tuple) else output)

    block = blocks[max(layer - 1, 0)]
    return block.register_forward_hook(after) if layer else block.register_forward_pre_hook(before)


def _by_outputs(
    network: Any, norm: nn.Module | None, inputs: Mapping[str, Tensor], layers: Collection[int], on_states: OnStates
) -> None:
    before_norm: list[Tensor] = []
    with ExitStack() as hooks:
        if norm is not None:
            handle = norm.register_forward_pre_hook(lambda _, args: before_norm.append(args[0]))
            hooks.callback(handle.remove)
        hidden = network(**inputs, output_hidden_states=True, use_cache=False, return_dict=True).hidden_states
    depth = int(network.config.num_hidden_layers)
    if len(hidden) != depth + 1:
        raise DataError(
            f"A {network.config.model_type} of {depth} blocks returned {len(hidden)} hidden states where {depth + 1} "
            "were expected. Add the architecture to daskmetrics.models._forward.ARCHITECTURES."
        )
    for layer in sorted(layers):
        # transformers has applied the final norm to the last layer only
        on_states(layer, before_norm[0] if before_norm and layer == depth else hidden[layer])


@dataclass(frozen=True)
class Architecture:
    """Names of the parts of a network, as ``AutoModel`` builds it."""

    blocks: str  # the list of blocks; block k reads layer k and returns layer k + 1
    final_norm: str | None  # after the last block; encoders such as BERT have it inside each block


ARCHITECTURES: Mapping[str, Architecture] = {
    "gpt_neox": Architecture("layers", "final_layer_norm"),
    "gpt2": Architecture("h", "ln_f"),
    "gpt_neo": Architecture("h", "ln_f"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "olmo2", "phi3"), Architecture("layers", "norm")),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra"), Architecture("encoder.layer", None)),
    # transformers leaves the embeddings out of a Mamba's hidden_states and shifts the rest by one
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), Architecture("layers", "norm_f")),
}
"""The architectures whose states are read block by block, by ``model_type``."""

_FINAL_NORMS = ("final_layer_norm", "ln_f", "norm", "norm_f", "final_norm")
"""Names of the final norm in architectures that are not in the table."""


@dataclass(frozen=True)
class NetworkParts:
    """The parts of one network. If its blocks are unknown, states come from ``output_hidden_states``."""

    blocks: tuple[nn.Module, ...]
    final_norm: nn.Module | None


def parts_of(network: Any) -> NetworkParts:
    """Find the blocks and the final norm of a network."""
    architecture = ARCHITECTURES.get(network.config.model_type)
    if architecture is None:
        norms = (getattr(network, name, None) for name in _FINAL_NORMS)
        return NetworkParts((), next((module for module in norms if isinstance(module, nn.Module)), None))
    blocks = tuple(attrgetter(architecture.blocks)(network))
    return NetworkParts(blocks, getattr(network, architecture.final_norm) if architecture.final_norm else None)
