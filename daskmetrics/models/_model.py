"""A loaded checkpoint that reads texts, in batches under a token budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Self, cast

import torch
from torch import Tensor

from daskmetrics.checkpoints.locations import Location, require_unchanged
from daskmetrics.checkpoints.shipped import refuse_selection
from daskmetrics.config import Protocol
from daskmetrics.core.errors import DataError, is_out_of_memory
from daskmetrics.core.progress import tell
from daskmetrics.domain.results import NetworkSize
from daskmetrics.models._networks import NETWORKS, Network, pinned
from daskmetrics.models._parts import pad_batch
from daskmetrics.models._tokens import IDS, InMemory, Tokenizer, Tokens

OnBatch = Callable[[int, Tensor, Tensor, Tensor], None]
"""Receives a layer, rows (B,), states (B, T, D) and mask (B, T); the states are valid during the call only."""

_BUDGETS: dict[str, int] = {}
"""Padded tokens per batch that fitted into memory, by architecture, dtype and device."""


@contextmanager
def _whole_float32() -> Iterator[None]:
    """Multiply float32 on a GPU without TensorFloat-32.

    An environment or a program may allow it.
    """
    matmul = torch.backends.cuda.matmul
    name: str = "allow_tf32"
    exact: bool | str = False
    if hasattr(matmul, "fp32_precision"):
        name = "fp32_precision"
        exact = "ieee"
    before = getattr(matmul, name)
    setattr(matmul, name, exact)
    try:
        yield
    finally:
        setattr(matmul, name, before)


class LoadedModel:
    """A loaded checkpoint that reads texts.

    It is a `DataError` if its weights or its tokenizer cannot be loaded. As a context manager, it
    returns its network for the next checkpoint of the same architecture. A block that read files
    which were replaced since their content was identified ends with a `DataError`.
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
        self._location = location
        if isinstance(location, InMemory):
            device = str(location.module.device)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.tokenizer = Tokenizer(location)
        dtype = cast(torch.dtype, getattr(torch, protocol.dtype))
        self._network: Network | None = NETWORKS.borrow(location, dtype, self.device)
        config = self.network.module.config
        self.depth = int(config.num_hidden_layers)
        self.width = int(config.hidden_size)
        if following is not None:
            names = self.network.names if following.base is None else None
            NETWORKS.prefetch.begin(following, self._on_gpu, names and names.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        network = self._network
        self._network = None
        if error is None and isinstance(self._location, Location):
            require_unchanged(self._location)
        if network:
            NETWORKS.give_back(network)

    @property
    def network(self) -> Network:
        """The network with the weights of the checkpoint.

        It is a `DataError` once it was given back, since it may have those of another one.
        """
        if self._network is None:
            raise DataError("This model was closed: load it again.")
        return self._network

    @property
    def max_length(self) -> int:
        """Tokens of a text that are read.

        The smallest limit of protocol, model and tokenizer.
        """
        limits = [self.protocol.max_length, self.network.parts.positions]
        # a folder of sentence-transformers states its own length, in place of that of its tokenizer
        if self.protocol.pooling != "as_shipped":
            limits.append(self.tokenizer.limit)
        return min(filter(None, limits))

    def size(self, layers: Sequence[int]) -> NetworkSize | None:
        """Numbers of weights; None if the blocks are not known."""
        total = sum(weights.numel() for weights in self.network.module.parameters())
        return self.network.parts.size(layers, total)

    @_whole_float32()
    def read(self, texts: Sequence[str], layers: Sequence[int], on_batch: OnBatch) -> None:
        """Run one forward pass over all texts.

        Batches have texts of similar length; the pass ends at the deepest layer. ``on_batch`` is
        called with each layer of each batch. Rows may come again: a batch that runs out of memory
        is repeated in halves. It is a `DataError` if the final norm that the protocol asks for is
        not known, or distinct texts become the same tokens.
        """
        if not texts or not layers:
            return
        self._check_norm(layers)
        network = self.network
        refuse_selection(network.parts.reader.config.to_dict(), self.max_length)
        tokens = self.tokenizer.inputs(texts, self.max_length)
        taken = {name: rows for name, rows in tokens.items() if network.parts.takes(name)}
        self._check_known(taken)
        lengths = list(map(len, tokens[IDS]))
        side = self.protocol.padding
        budget = self._batch_tokens(max(lengths), len(layers))
        budget = min(_BUDGETS.get(network.key, budget), budget)
        numbered = network.parts.numbering(side, self.tokenizer.pad)
        equal = numbered is None

        def read_batch(rows: list[int]) -> None:
            padded = {}
            for name, numbers in taken.items():
                # of other inputs, every network knows zero; these are masked in any case
                pad = self.tokenizer.pad if name == IDS else 0
                padded[name], mask = pad_batch([numbers[row] for row in rows], pad, side)
            index = self._to_device(torch.tensor(rows))
            mask = self._to_device(mask)
            inputs = {name: self._to_device(tensor) for name, tensor in padded.items()}

            def on_states(layer: int, states: Tensor) -> None:
                norm = network.parts.final_norm
                if norm is not None and self.is_normed(layer):
                    states = norm(states)
                on_batch(layer, index, states, mask)

            network.parts.run(
                network.parts.inputs(mask, bool(numbered), **inputs), layers, on_states
            )

        waiting = deque(plan_batches(lengths, budget, equal=equal))
        total = sum(lengths)
        while waiting:
            batch = waiting[0]
            try:
                read_batch(batch)
                waiting.popleft()
                tell(sum(lengths[row] for row in batch) / total)
            except (MemoryError, RuntimeError) as error:
                if len(batch) == 1 or not is_out_of_memory(error):
                    raise
                budget = _BUDGETS[network.key] = reduced_budget(batch, lengths, budget)
                unread = chain.from_iterable(waiting)
                waiting = deque(plan_batches(lengths, budget, unread, equal))

    def is_normed(self, layer: int) -> bool:
        """Whether the protocol applies the final norm at this layer."""
        mode = self.protocol.state_norm
        return mode == "final_ln" or (mode == "hidden_states" and layer == self.depth)

    def _check_norm(self, layers: Sequence[int]) -> None:
        parts = self.network.parts
        state_norm = self.protocol.state_norm
        # what a block returns is raw, and what transformers returns is after the norm, whatever
        # that is
        at_end = "raw"
        other = "hidden_states"
        if parts.blocks:
            at_end = "hidden_states"
            other = "raw"
        is_needed = state_norm == "final_ln" or (state_norm == at_end and self.depth in layers)
        if parts.problem and is_needed:
            raise DataError(
                f"'state_norm: {state_norm}' cannot be applied to this"
                f" {parts.reader.config.model_type}: {parts.problem}. Use 'state_norm: {other}'."
            )

    def _check_known(self, tokens: Mapping[str, Sequence[Tokens]]) -> None:
        reader = self.network.parts.reader
        tables = [table for table in reader.modules() if isinstance(table, torch.nn.Embedding)]
        sizes = {
            IDS: max((table.num_embeddings for table in tables), default=None),
            "token_type_ids": getattr(reader.config, "type_vocab_size", None),
        }
        for name in tokens.keys() & sizes.keys():
            greatest = max(int(row.max()) for row in tokens[name])
            size = sizes[name]
            if size and greatest >= size:
                raise DataError(
                    f"The tokenizer gives {name} up to {greatest}, and this {reader.config.model_type}"
                    f" knows those below {size}. Copy the files of the tokenizer of this model."
                )

    def _batch_tokens(self, longest: int, layers: int) -> int:
        if self.device.type != "cuda":
            return self.protocol.batch_tokens
        free, _ = torch.cuda.mem_get_info(self.device)
        free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        itemsize = self.network.dtype.itemsize
        fitting = tokens_that_fit(free, itemsize, self.width, layers, longest)
        return max(self.protocol.batch_tokens, fitting)

    def _to_device(self, tensor: Tensor) -> Tensor:
        if self._on_gpu:
            return pinned(tensor).to(self.device, non_blocking=True)
        return tensor

    @property
    def _on_gpu(self) -> bool:
        return self.device.type == "cuda"


def plan_batches(
    lengths: Sequence[int], budget: int, rows: Iterable[int] | None = None, equal: bool = False
) -> list[list[int]]:
    """Rows of texts in batches of at most ``budget`` padded tokens.

    They are sorted by length. A text longer than the budget has a batch of its own. With ``equal``
    a batch has texts of one length only.

    >>> plan_batches([5, 1, 3, 2], budget=6)
    [[1, 3], [2], [0]]
    """
    if rows is None:
        rows = range(len(lengths))
    batches: list[list[int]] = []
    for row in sorted(rows, key=lambda row: (lengths[row], row)):
        joins = batches and (not equal or lengths[batches[-1][0]] == lengths[row])
        if joins and (len(batches[-1]) + 1) * lengths[row] <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


FULL_GPU = 2**16  # padded tokens per batch that keep any GPU busy


def tokens_that_fit(free: int, bytes_per_number: int, width: int, layers: int, longest: int) -> int:
    """Padded tokens per batch for this many free bytes of a GPU.

    A power of two of at most `FULL_GPU`. Counted for each token, in half of the memory: 16 widths
    of a block, 6 in float32 of a layer's metrics, and three copies of its row of each layer's Gram
    matrix.

    >>> tokens_that_fit(130 * 2**30, 2, 1024, 25, 256), tokens_that_fit(8 * 2**30, 2, 1024, 25, 256)
    (65536, 16384)
    """
    block = 16 * width * bytes_per_number
    metrics = 6 * width * 4 + 3 * layers * min(longest, width) * 4
    fitting = free // 2 // (block + metrics)
    return min(FULL_GPU, 1 << max(0, fitting.bit_length() - 1))


def reduced_budget(batch: Sequence[int], lengths: Sequence[int], budget: int) -> int:
    """The token budget after a batch ran out of memory.

    Half of the budget or of the batch, the smaller one.

    >>> reduced_budget([0, 1, 2], lengths=[10, 10, 20], budget=64)
    30
    """
    padded = len(batch) * max(lengths[row] for row in batch)
    return max(1, min(budget, padded) // 2)
