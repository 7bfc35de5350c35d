"""From a checkpoint to the hidden states of all its layers in one pass over the texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from daskmetrics.config import Protocol
from daskmetrics.errors import DataError
from daskmetrics.suites import Location

FINAL_NORMS = ("final_layer_norm", "ln_f", "norm", "norm_f")
"""The norm after the last block in GPT-NeoX, GPT-2, Llama and its kin, Mamba. Encoders such as BERT have none."""


@dataclass(frozen=True)
class Batch:
    """Hidden states of some texts at all layers.

    Attributes
    ----------
    rows : Tensor (B,) of int64
        Which texts these are.
    mask : Tensor (B, T) of bool
        True for real tokens.
    states : callable
        ``states(layer)`` gives the hidden states (B, T, D) of a layer, read as the protocol says.
    """

    rows: Tensor
    mask: Tensor
    states: Callable[[int], Tensor]


class Model:
    """A checkpoint ready to encode texts.

    Parameters
    ----------
    location : Location
        What to load.
    protocol : Protocol
        How texts become vectors.
    device : str, optional
        By default the GPU if there is one.

    Raises
    ------
    DataError
        If the weights cannot be loaded.
    """

    def __init__(self, location: Location, protocol: Protocol, device: str | None = None) -> None:
        self.protocol = protocol
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.tokenizer = _tokenizer(location.path, location.revision)
        self.network = _network(location, getattr(torch, protocol.dtype)).to(self.device)
        self.final_norm = _final_norm(self.network)
        self.depth = int(self.network.config.num_hidden_layers)
        self.width = int(self.network.config.hidden_size)

    def batches(self, texts: Sequence[str]) -> Iterator[Batch]:
        """One forward pass over all texts, in batches of texts of like length."""
        tokens = self._tokenize(texts)
        for rows in plan_batches([len(ids) for ids in tokens], self.protocol.batch_tokens):
            yield self._forward(rows, [tokens[row] for row in rows])

    def encode(self, texts: Sequence[str], layers: Sequence[int], pooling: str) -> np.ndarray:
        """Vectors of all texts at these layers: an array (len(layers), len(texts), D) of float32."""
        vectors = np.empty((len(layers), len(texts), self.width), np.float32)
        for batch in self.batches(texts):
            for i, layer in enumerate(layers):
                vectors[i, batch.rows] = pool(batch.states(layer), batch.mask, pooling).float().cpu().numpy()
        return vectors

    def _tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_length, padding=False)["input_ids"]
        # a text without any token stands for itself as one padding token, so that it has a vector
        return [row or [self.pad] for row in ids]

    @property
    def max_length(self) -> int:
        """Tokens of a text that are read: the protocol's bound, or what the model has positions for."""
        positions = getattr(self.network.config, "max_position_embeddings", None) or self.protocol.max_length
        return min(self.protocol.max_length, int(positions))

    @property
    def pad(self) -> int:
        tokenizer = self.tokenizer
        candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.bos_token_id, 0)
        return next(int(token) for token in candidates if token is not None)

    @torch.inference_mode()
    def _forward(self, rows: Sequence[int], tokens: Sequence[Sequence[int]]) -> Batch:
        ids, mask = pad_batch(tokens, self.pad, self.protocol.padding)
        ids, mask = ids.to(self.device), mask.to(self.device)
        with _captured_input(self.final_norm) as captured:
            output = self.network(
                input_ids=ids, attention_mask=mask.long(), output_hidden_states=True, use_cache=False, return_dict=True
            )
        hidden = output.hidden_states

        def states(layer: int) -> Tensor:
            as_returned: Tensor = hidden[layer]  # transformers has applied the final norm to the last one only
            last, wanted = layer == self.depth, self.protocol.state_norm
            if self.final_norm is None or wanted == "hidden_states" or last == (wanted == "final_ln"):
                return as_returned
            if last:
                return captured[0]
            with torch.inference_mode():
                return cast(Tensor, self.final_norm(as_returned))

        return Batch(torch.tensor(rows), mask, states)


def plan_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Rows of texts, sorted by length and cut into batches of at most ``budget`` padded tokens.

    A text longer than the budget has a batch of its own.

    Examples
    --------
    >>> plan_batches([5, 1, 3, 2], budget=6)
    [[1, 3], [2], [0]]
    """
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if batches and (len(batches[-1]) + 1) * lengths[row] <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def pad_batch(tokens: Sequence[Sequence[int]], pad: int, side: str) -> tuple[Tensor, Tensor]:
    """Token ids (B, T) and mask (B, T), padded on the right or on the left."""
    width = max(len(row) for row in tokens)
    ids = torch.full((len(tokens), width), pad)
    mask = torch.zeros((len(tokens), width), dtype=torch.bool)
    for i, row in enumerate(tokens):
        span = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, span] = torch.tensor(row)
        mask[i, span] = True
    return ids, mask


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector per text, (B, D), from states (B, T, D) and mask (B, T).

    ``mean`` over real tokens, the ``last`` real token, or the first (``cls``).
    """
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(torch.float32)
        return (states.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
    positions = torch.arange(mask.shape[1], device=mask.device)
    index = torch.where(mask, positions, -1).argmax(1) if pooling == "last" else mask.float().argmax(1)
    return states[torch.arange(states.shape[0], device=states.device), index]


@contextmanager
def _captured_input(module: nn.Module | None) -> Iterator[list[Tensor]]:
    """What a module is given during a forward pass."""
    captured: list[Tensor] = []
    if module is None:
        yield captured
        return
    handle = module.register_forward_pre_hook(lambda _, args: captured.append(args[0]))
    try:
        yield captured
    finally:
        handle.remove()


def _final_norm(network: nn.Module) -> nn.Module | None:
    """The norm that transformers applies to the last hidden state, or None."""
    for name in FINAL_NORMS:
        module = getattr(network, name, None)
        if isinstance(module, nn.Module):
            return module
    return None


def _network(location: Location, dtype: torch.dtype) -> Any:
    transformers = _transformers()
    try:
        network = transformers.AutoModel.from_pretrained(
            location.path,
            revision=location.revision or "main",
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except Exception as error:  # foreign files: whatever the loader makes of them
        raise DataError(f"Cannot load the weights in '{location.path}': {error}") from error
    return network.eval()


@lru_cache(maxsize=4)
def _tokenizer(path: str, revision: str | None) -> Any:
    try:
        return _transformers().AutoTokenizer.from_pretrained(path, revision=revision or "main", trust_remote_code=False)
    except Exception as error:
        raise DataError(f"Cannot load the tokenizer in '{path}': {error}") from error


def _transformers() -> Any:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads would fight with the other workers'
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers
