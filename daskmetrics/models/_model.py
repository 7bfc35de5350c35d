"""A loaded checkpoint that reads texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from daskmetrics.checkpoints.locations import Location
from daskmetrics.config import Protocol
from daskmetrics.core.errors import is_out_of_memory
from daskmetrics.core.results import NetworkSize
from daskmetrics.models import _parts as forward
from daskmetrics.models._networks import NETWORKS, Network
from daskmetrics.models._tokens import (
    InMemory,
    Tokenizer,
    Tokens,
    pad_batch,
    plan_batches,
    pool,
    reduced_budget,
    tokens_that_fit,
)
from daskmetrics.models._weights import pinned

OnBatch = Callable[[int, Tensor, Tensor, Tensor], None]
"""Receives a layer, rows (B,), states (B, T, D) and mask (B, T); the states are valid during the call only."""

_BUDGETS: dict[str, int] = {}
"""Padded tokens per batch that fitted into memory, by architecture, dtype and device."""


@contextmanager
def _whole_float32() -> Iterator[None]:
    """Multiply float32 in float32 on a GPU, where an environment or a program may allow
    TensorFloat-32.
    """
    matmul = torch.backends.cuda.matmul
    name: str = "allow_tf32"
    exact: bool | str = False
    if hasattr(matmul, "fp32_precision"):
        name, exact = "fp32_precision", "ieee"
    before = getattr(matmul, name)
    setattr(matmul, name, exact)
    try:
        yield
    finally:
        setattr(matmul, name, before)


class LoadedModel:
    """A loaded checkpoint that reads texts; `DataError` if its weights or its tokenizer cannot be
    loaded.

    As a context manager, it returns its network for the next checkpoint of the same architecture.
    """

    def __init__(
        self,
        location: Location | InMemory,
        protocol: Protocol,
        # by default the GPU, if there is one; that of a network in memory is its own
        device: str | None = None,
        # will probably be loaded next: its weights are read in the background
        following: Location | None = None,
    ) -> None:
        self.protocol = protocol
        if isinstance(location, InMemory):
            device = str(location.module.device)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._location = location
        self.tokenizer = Tokenizer(location)
        self._networks = {self._dtype: NETWORKS.borrow(location, self._dtype, self.device)}
        config = self.network.module.config
        self.depth, self.width = int(config.num_hidden_layers), int(config.hidden_size)
        if following is not None:
            names = self.network.names if following.base is None else None
            NETWORKS.prefetch.begin(following, self._on_gpu, names and names.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for network in self._networks.values():
            NETWORKS.give_back(network)
        self._networks.clear()

    @property
    def network(self) -> Network:
        """The network in the protocol's dtype."""
        return self._networks[self._dtype]

    @property
    def max_length(self) -> int:
        """Tokens of a text that are read: the smallest limit of protocol, model and tokenizer."""
        # a folder of sentence-transformers states its own length, in place of that of its tokenizer
        stated = None
        if self.protocol.pooling != "as_shipped":
            stated = self.tokenizer.limit
        return min(
            x
            for x in (self.protocol.max_length, self.network.parts.positions, stated)
            if x is not None
        )

    def size(self, layers: Sequence[int]) -> NetworkSize | None:
        """Numbers of weights: what reading a layer takes; None if the blocks are not known."""
        total = sum(weights.numel() for weights in self.network.module.parameters())
        return self.network.parts.size(layers, total)

    def read(self, texts: Sequence[str], layers: Sequence[int], on_batch: OnBatch) -> None:
        """Run one forward pass over all texts, in batches of texts of similar length, up to the
        deepest layer.

        ``on_batch`` is called with each layer of each batch. Rows may come again: a batch that runs
        out of memory is repeated in halves, and one that overflows in half precision is repeated in
        float32. It is a `DataError` if the final norm that the protocol asks for is not known, or
        distinct texts become the same tokens.
        """
        if not texts or not layers:
            return
        self.network.parts.check(self.protocol.state_norm, layers)
        tokens = self.tokenizer(texts, self.max_length)
        with _whole_float32():
            overflow = self._pass(self.network, tokens, None, layers, on_batch)
            if overflow:
                if torch.float32 not in self._networks:
                    self._networks[torch.float32] = NETWORKS.borrow(
                        self._location, torch.float32, self.device, read_ahead=False
                    )
                self._pass(self._networks[torch.float32], tokens, overflow, layers, on_batch)

    def encode(self, texts: Sequence[str], layers: Sequence[int], pooling: str) -> np.ndarray:
        """Vectors of all texts at these layers: an array (len(layers), len(texts), D) of float32."""
        vectors = torch.empty((len(layers), len(texts), self.width), device=self.device)
        layer_index = {layer: i for i, layer in enumerate(layers)}

        def on_batch(layer: int, rows: Tensor, states: Tensor, mask: Tensor) -> None:
            vectors[layer_index[layer], rows] = pool(states, mask, pooling).float()

        self.read(texts, layers, on_batch)
        return vectors.cpu().numpy()

    def _pass(
        self,
        network: Network,
        tokens: Tokens,
        rows: Iterable[int] | None,
        layers: Sequence[int],
        on_batch: OnBatch,
    ) -> list[int]:
        """Read some rows; returns the rows of batches that overflowed in half precision."""
        budget = self._batch_tokens(network, max(tokens.lengths), len(layers))
        budget = min(_BUDGETS.get(network.key, budget), budget)
        numbered = network.numbering(self.protocol.padding, self.tokenizer.pad)
        equal = numbered is None
        waiting = deque(plan_batches(tokens.lengths, budget, rows, equal))
        read: list[tuple[list[int], Tensor]] = []
        while waiting:
            batch = waiting[0]
            try:
                finite = self._forward(network, batch, tokens, bool(numbered), layers, on_batch)
            except (MemoryError, RuntimeError) as error:
                if len(batch) == 1 or not is_out_of_memory(error):
                    raise
                budget = _BUDGETS[network.key] = reduced_budget(batch, tokens.lengths, budget)
                waiting = deque(
                    plan_batches(tokens.lengths, budget, chain.from_iterable(waiting), equal)
                )
            else:
                read.append((waiting.popleft(), finite))
        # read at the end, so that the loop does not wait for the device
        return list(chain.from_iterable(batch for batch, finite in read if not finite))

    def _forward(
        self,
        network: Network,
        rows: list[int],
        tokens: Tokens,
        numbered: bool,
        layers: Sequence[int],
        on_batch: OnBatch,
    ) -> Tensor:
        """Read one batch; returns whether its states are finite, which is checked in half precision
        only.
        """
        ids, mask = pad_batch(
            [tokens[row] for row in rows], self.tokenizer.pad, self.protocol.padding
        )
        ids, mask, index = map(self._to_device, (ids, mask, torch.tensor(rows)))
        deepest = None
        if network.dtype.itemsize < 4:
            deepest = max(layers)
        finite = torch.tensor(True)

        def on_states(layer: int, raw: Tensor) -> None:
            nonlocal finite
            if layer == deepest:  # an overflow in an earlier layer stays in the residual stream
                finite = (raw.abs().amax(-1).isfinite() | ~mask).all()
            on_batch(layer, index, self._normed(network, layer, raw), mask)

        forward.run(network.parts, network.parts.inputs(ids, mask, numbered), layers, on_states)
        return finite

    def _normed(self, network: Network, layer: int, raw: Tensor) -> Tensor:
        """States with the final norm applied where the protocol asks for it."""
        mode, norm = self.protocol.state_norm, network.parts.final_norm
        applies = mode == "final_ln" or (mode == "hidden_states" and layer == self.depth)
        if applies and norm is not None:
            return cast(Tensor, norm(raw))
        return raw

    def _batch_tokens(self, network: Network, longest: int, layers: int) -> int:
        """Padded tokens per batch: those of the protocol, and on a GPU as many as its memory holds."""
        if self.device.type != "cuda":
            return self.protocol.batch_tokens
        free, _ = torch.cuda.mem_get_info(self.device)
        free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        fitting = tokens_that_fit(free, network.dtype.itemsize, self.width, layers, longest)
        return max(self.protocol.batch_tokens, fitting)

    def _to_device(self, tensor: Tensor) -> Tensor:
        if self._on_gpu:
            return pinned(tensor).to(self.device, non_blocking=True)
        return tensor

    @property
    def _dtype(self) -> torch.dtype:
        return cast(torch.dtype, getattr(torch, self.protocol.dtype))

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"
