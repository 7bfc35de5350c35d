"""One forward pass that hands out the states of each layer and stops after the deepest requested
one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor, nn

from daskmetrics.models._parts import TOKENS, NetworkParts, probe, states_given, states_returned
from daskmetrics.models._tokens import pad_batch

OnStates = Callable[[int, Tensor], None]
"""Receives a layer and its raw states (B, T, D), which are not kept."""


class _StopForward(Exception):
    """Ends the pass after the deepest requested layer."""


@torch.inference_mode()
def run(
    parts: NetworkParts, inputs: Mapping[str, Tensor], layers: Collection[int], on_states: OnStates
) -> None:
    """Call ``on_states`` with the states of each requested layer as its block returns them, before
    any final norm.

    Layer 0 is the input of the first block. Where the blocks are known, no states are kept and no
    block after the deepest requested layer runs; otherwise all states are kept until the pass ends.
    """
    if not parts.blocks:
        _by_outputs(parts, inputs, layers, on_states)
        return
    deepest = max(layers)
    layer = 0

    def show(states: Tensor) -> None:
        if layer in layers:
            on_states(layer, states)
        if layer == deepest:
            raise _StopForward

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if layer == 0:
            show(states_given(args, kwargs))

    def after(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        nonlocal layer
        layer += 1
        show(states_returned(output))

    with ExitStack() as hooks, suppress(_StopForward):
        hooks.callback(parts.blocks[0].register_forward_pre_hook(before, with_kwargs=True).remove)
        for block in dict.fromkeys(parts.blocks[:deepest]):
            hooks.callback(block.register_forward_hook(after).remove)
        parts.reader(**inputs, **parts.options)


def _by_outputs(
    parts: NetworkParts, inputs: Mapping[str, Tensor], layers: Collection[int], on_states: OnStates
) -> None:
    before_norm: list[Tensor] = []
    with ExitStack() as hooks:
        if parts.final_norm is not None:
            handle = parts.final_norm.register_forward_pre_hook(
                lambda _, args, kwargs: before_norm.append(states_given(args, kwargs)),
                with_kwargs=True,
            )
            hooks.callback(handle.remove)
        hidden = parts.reader(**inputs, output_hidden_states=True, **parts.options).hidden_states
    for layer in sorted(layers):
        states = hidden[layer]
        if before_norm and layer == parts.depth:
            # transformers has applied the final norm to the last layer only
            states = before_norm[0]
        on_states(layer, states)


def numbering(parts: NetworkParts, side: str) -> bool | None:
    """Whether positions are passed with padded texts; None if texts of different lengths must not
    share a batch.

    A short text is read alone, and beside a longer one: with positions if the padding is on the
    left, then without. The first way that gives the same states, up to rounding in their dtype, is
    used for all texts. A network whose states depend on the padding either way is read in batches
    of texts of equal length.
    """
    ids = probe(parts.reader, TOKENS).tolist()
    texts = [ids[:3], ids[3:]]
    pad = getattr(parts.reader.config, "pad_token_id", None) or 0
    device = next(parts.reader.parameters()).device

    def states(batch: list[list[int]], numbered: bool) -> dict[int, Tensor]:
        """States of the tokens of the first text at all layers."""
        padded, mask = (tensor.to(device) for tensor in pad_batch(batch, pad, side))
        by_layer: dict[int, Tensor] = {}
        inputs = parts.inputs(padded, mask, numbered)
        run(
            parts,
            inputs,
            range(parts.depth + 1),
            lambda layer, raw: by_layer.__setitem__(layer, raw[0, mask[0]]),
        )
        return by_layer

    alone = states(texts[:1], numbered=False)
    for numbered in (True, False):
        if numbered and (side != "left" or "position_ids" not in parts.takes):
            continue
        beside = states(texts, numbered)
        if all(_are_close(alone[layer], beside[layer]) for layer in alone):
            return numbered
    return None


def _are_close(a: Tensor, b: Tensor) -> bool:
    """Whether states are equal up to rounding in their dtype; half precision may overflow, in both
    or in none.
    """
    tolerance = 1e-4 if a.dtype.itemsize >= 4 else 8 * torch.finfo(a.dtype).eps
    finite = a.isfinite()
    if not torch.equal(finite, b.isfinite()):
        return False
    a, b = a[finite].float(), b[finite].float()
    return bool((a - b).norm() <= tolerance * a.norm())
