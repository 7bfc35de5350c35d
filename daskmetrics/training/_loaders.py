"""Reading of examples, by the rank itself or ahead of it by loader processes whose number is measured.

The examples of a step do not depend on the number of loaders, so every rank may choose its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from daskmetrics.config import Recipe
from daskmetrics.training._data import TOLERATED, Batch, PaddedTexts, Windows, effective, examples, passes, share
from daskmetrics.training._distributed import World

TIMED_STEPS = 6  # steps that are timed before loaders are started; the first does not count


def needed(reading: float, computing: float) -> int:
    """The number of loaders that read as fast as a rank computes, from the seconds of each per step.

    >>> [needed(reading, 1.0) for reading in (0.01, 0.3, 2.5)]
    [0, 1, 3]
    """
    return 0 if reading <= TOLERATED * computing else int(np.ceil(reading / computing))


def allowed(cores: int, available: float, resident: float, ranks: int) -> int:
    """The number of loaders per rank that a machine has cores and memory for.

    Each loader needs a core beside those of the ranks, and as much memory as a rank (``resident`` bytes).

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


def make_loader(steps: RankSteps, ahead: Sequence[int], count: int, **options: Any) -> DataLoader[Any]:
    """A loader of a rank's steps with processes that read ahead."""
    return DataLoader(steps, batch_size=None, sampler=ahead, num_workers=count, collate_fn=_tensors, **options)


class Loader:
    """The examples of a rank, step by step; processes read ahead, in a given or ``measured`` number."""

    def __init__(
        self, recipe: Recipe, source: Windows | PaddedTexts, world: World, loaders: int | Literal["measured"]
    ) -> None:
        self.steps_of_rank = RankSteps(recipe, source, world)
        self.world = world
        self.count = loaders if isinstance(loaders, int) else 0
        self._measuring = loaders == "measured"
        self._reading: list[float] = []
        self._computing: list[float] = []
        self._yielded = 0.0

    def steps(self, first: int, last: int) -> Iterator[tuple[int, Sequence[Batch]]]:
        """Steps ``first`` to ``last``, each with this rank's passes."""
        step = first
        while step <= last and not self.count:
            started = time.perf_counter()
            batches = self.steps_of_rank[step]
            self._yielded = time.perf_counter()
            self._reading.append(self._yielded - started)
            yield step, batches
            step += 1
            if self._measuring and len(self._computing) == TIMED_STEPS:
                self._choose_count()
        if step <= last:
            ahead = range(step, last + 1)
            pinned = self.world.device.startswith("cuda")
            loader = make_loader(self.steps_of_rank, ahead, self.count, persistent_workers=True, pin_memory=pinned)
            yield from zip(ahead, loader, strict=True)

    def computed(self) -> None:
        """Record that the latest step has been taken."""
        if self._measuring:
            self._computing.append(time.perf_counter() - self._yielded)

    def _choose_count(self) -> None:
        self._measuring = False
        useful = needed(float(np.median(self._reading[1:])), float(np.median(self._computing[1:])))
        self.count = min(useful, limit(psutil.Process().memory_info().rss))  # a loader starts as a copy of this process


def _tensors(batches: Sequence[Batch]) -> Sequence[Mapping[str, torch.Tensor]]:
    """The batches as tensors, which move between processes without a copy and can be pinned."""
    return [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in batches]


class RankSteps(Dataset[Sequence[Batch]]):
    """This rank's batches of each step, pass by pass."""

    def __init__(self, recipe: Recipe, source: Windows | PaddedTexts, world: World) -> None:
        self.recipe, self.source = recipe, source
        self.part = share(effective(recipe), world.rank, world.size)

    def __getitem__(self, step: int) -> Sequence[Batch]:
        which = examples(self.recipe, len(self.source), step)[self.part]
        return [self.source.take(which[part]) for part in passes(len(which), self.recipe.batch)]
