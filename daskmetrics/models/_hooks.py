"""Any network, read by forward hooks on some of its modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from daskmetrics.core.errors import DataError
from daskmetrics.models._model import OnBatch
from daskmetrics.models._parts import states_returned

BATCH = 32  #: items of one forward pass

Prepare = Callable[[list[Any]], object]
"""From a list of items to what the network is called with: a tensor, a tuple of arguments, or a mapping of keywords."""


class HookedModel:
    """Any network, whose layers are modules of it; what a module returns is its states, (B, T, D)
    or (B, D).

    If a module is called several times, its last call counts. An ``attention_mask`` (B, T) among
    the keywords that ``prepare`` makes says which tokens count; otherwise all do. By default items
    are tensors of one shape, which are stacked.
    """

    def __init__(
        self, network: nn.Module, layers: Mapping[str, nn.Module], prepare: Prepare | None
    ) -> None:
        self._network = network
        self._prepare = prepare or _stacked
        self._names = tuple(layers)
        self._modules = tuple(layers.values())
        tensor = next(chain(network.parameters(), network.buffers()), torch.empty(0, device="cpu"))
        self.device = tensor.device

    @torch.inference_mode()
    def read(self, items: Sequence[object], layers: Sequence[int], on_batch: OnBatch) -> None:
        """Call ``on_batch`` with the states of each layer, by its place among the layers, of each
        batch of items.
        """
        for start in range(0, len(items), BATCH):
            batch = list(items[start : start + BATCH])
            rows = torch.arange(start, start + len(batch), device=self.device)
            given = _moved(self._prepare(batch), self.device)
            returned = self._call(given, layers)
            for layer in layers:
                states = self._states(layer, returned.get(layer), len(batch))
                on_batch(layer, rows, states, _mask(given, states))

    def _call(self, given: object, layers: Sequence[int]) -> dict[int, object]:
        """What the modules of these layers return in one forward pass."""
        returned: dict[int, object] = {}

        def keep(layer: int) -> Callable[[nn.Module, object, object], None]:
            return lambda _, __, output: returned.__setitem__(layer, states_returned(output))

        with ExitStack() as hooks:
            for layer in layers:
                hooks.callback(self._modules[layer].register_forward_hook(keep(layer)).remove)
            if isinstance(given, Mapping):
                self._network(**given)
            elif isinstance(given, tuple):
                self._network(*given)
            else:
                self._network(given)
        return returned

    def _states(self, layer: int, states: object, items: int) -> Tensor:
        """The states (B, T, D) that a module returned."""
        name = self._names[layer]
        if not isinstance(states, Tensor):
            fault = f"returned a {type(states).__name__}"
            if states is None:
                fault = "was not called"
            raise DataError(
                f"The module of layer '{name}' {fault} in the forward pass; it must return a"
                " tensor."
            )
        if states.dim() not in (2, 3) or len(states) != items:
            raise DataError(
                f"The module of layer '{name}' returned a tensor of shape {tuple(states.shape)} for"
                f" {items} items; ({items}, tokens, dimensions) or ({items}, dimensions) is needed."
                " Name a module that returns this."
            )
        if states.dim() == 2:
            return states[:, None]
        return states


def _stacked(items: list[object]) -> Tensor:
    try:
        return torch.stack([torch.as_tensor(item) for item in items])
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"Items such as {str(items[0])[:50]!r} cannot be stacked into one tensor: {error}. Give"
            " `tokenizer=`, a callable that takes a list of items and returns what the network is"
            " called with."
        ) from None


def _moved(given: object, device: torch.device) -> object:
    """The same arguments, with their tensors on the device."""
    if isinstance(given, Mapping):
        return {name: _moved(value, device) for name, value in given.items()}
    if isinstance(given, tuple):
        return tuple(_moved(value, device) for value in given)
    if isinstance(given, Tensor):
        return given.to(device)
    return given


def _mask(given: object, states: Tensor) -> Tensor:
    """Which of the tokens (B, T) of the states count."""
    if isinstance(given, Mapping):
        mask = given.get("attention_mask")
        if isinstance(mask, Tensor) and mask.shape == states.shape[:2]:
            return mask.bool()
    return torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
