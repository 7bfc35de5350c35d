"""Which texts go through the model together, how they are padded, and how token states become one vector."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def plan_batches(lengths: Sequence[int], budget: int, rows: Iterable[int] | None = None) -> list[list[int]]:
    """Rows of texts, sorted by length and cut into batches of at most ``budget`` padded tokens.

    A text longer than the budget has a batch of its own.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each text.
    budget : int
        Padded tokens per batch.
    rows : iterable of int, optional
        Texts to plan; by default all.

    Examples
    --------
    >>> plan_batches([5, 1, 3, 2], budget=6)
    [[1, 3], [2], [0]]
    """
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)) if rows is None else rows, key=lambda row: (lengths[row], row)):
        if batches and (len(batches[-1]) + 1) * lengths[row] <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def reduced_budget(batch: Sequence[int], lengths: Sequence[int], budget: int) -> int:
    """The token budget to try after a batch ran out of memory: half of the budget or of the batch, the smaller one.

    Examples
    --------
    >>> reduced_budget([0, 1, 2], lengths=[10, 10, 20], budget=64)
    30
    """
    padded = len(batch) * max(lengths[row] for row in batch)
    return max(1, min(budget, padded) // 2)


def pad_batch(tokens: Sequence[Any], pad: int, side: str) -> tuple[Tensor, Tensor]:
    """Token ids (B, T) and mask (B, T), padded on the right or on the left.

    Parameters
    ----------
    tokens : sequence of sequences of int, or of integer arrays
    pad : int
    side : {"left", "right"}

    Examples
    --------
    >>> pad_batch([[5, 6], [7]], pad=0, side="left")[0].tolist()
    [[5, 6], [0, 7]]
    """
    width = max(len(row) for row in tokens)
    ids = torch.full((len(tokens), width), pad)
    mask = torch.zeros((len(tokens), width), dtype=torch.bool)
    for i, row in enumerate(tokens):
        span = slice(width - len(row), width) if side == "left" else slice(0, len(row))
        ids[i, span] = torch.as_tensor(row)
        mask[i, span] = True
    return ids, mask


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """One vector per text, (B, D), from states (B, T, D) and mask (B, T).

    ``mean`` over real tokens, the ``last`` real token, or the first (``cls``).

    Examples
    --------
    >>> pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]), "mean")
    tensor([[2.]])
    """
    if pooling == "mean":
        weights = mask.unsqueeze(-1).to(torch.float32)
        return (states.float() * weights).sum(1) / weights.sum(1).clamp(min=1)
    positions = torch.arange(mask.shape[1], device=mask.device)
    index = torch.where(mask, positions, -1).argmax(1) if pooling == "last" else mask.float().argmax(1)
    return states[torch.arange(states.shape[0], device=states.device), index]
