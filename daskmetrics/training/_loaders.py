"""Reading of examples, by the rank itself or ahead of it by loader processes.

The examples of a step do not depend on the number of loaders, so every rank may choose its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from daskmetrics.config import Recipe
from daskmetrics.training._distributed import World
from daskmetrics.training.data import (
    Batch,
    PaddedTexts,
    Windows,
    effective,
    examples,
    passes,
    share,
)


def allowed(cores: int, available: float, resident: float, ranks: int) -> int:
    """The number of loaders per rank that a machine has cores and memory for.

    Each loader needs a core beside those of the ranks, and as much memory as a rank (``resident``
    bytes).

    >>> allowed(cores=32, available=80e9, resident=2e9, ranks=4)
    7
    >>> allowed(cores=32, available=16e9, resident=2e9, ranks=4)
    1
    """
    by_cores = (cores - ranks) // ranks
    by_memory = int(0.8 * available / (ranks * resident))  # keep a fifth free
    return max(0, min(by_cores, by_memory))


def limit(resident: float) -> int:
    """The number of loaders per rank that this machine has cores and memory for."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return allowed(len(os.sched_getaffinity(0)), psutil.virtual_memory().available, resident, ranks)


class RankSteps(Dataset[Sequence[Batch]]):
    """This rank's batches of each step, pass by pass."""

    def __init__(self, recipe: Recipe, source: Windows | PaddedTexts, world: World) -> None:
        self.recipe = recipe
        self.source = source
        self.part = share(effective(recipe), world.rank, world.size)

    def __getitem__(self, step: int) -> Sequence[Batch]:
        indices = examples(self.recipe, len(self.source), step)[self.part]
        batches = passes(len(indices), self.recipe.batch)
        return [self.source.take(indices[batch]) for batch in batches]


def make_loader(
    steps: RankSteps, ahead: Sequence[int], count: int, **options: Any
) -> DataLoader[Any]:
    """A loader of a rank's steps with processes that read ahead."""
    return DataLoader(
        steps, batch_size=None, sampler=ahead, num_workers=count, collate_fn=_tensors, **options
    )


def read_steps(
    steps: RankSteps, start: int, end: int, loaders: int, pinned: bool = False
) -> Iterator[tuple[int, Sequence[Batch]]]:
    """Steps ``start`` to ``end``, each with this rank's passes; without loaders the rank reads."""
    numbers = range(start, end + 1)
    if not loaders or not numbers:
        return ((step, steps[step]) for step in numbers)
    loader = make_loader(steps, numbers, loaders, persistent_workers=True, pin_memory=pinned)
    return zip(numbers, loader, strict=True)


def _tensors(batches: Sequence[Batch]) -> Sequence[Mapping[str, torch.Tensor]]:
    """The batches as tensors, which move between processes without a copy and can be pinned."""
    return [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in batches]
