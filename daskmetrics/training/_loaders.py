"""Examples on their way to a step: read by the rank itself, or ahead of it by processes whose number is measured.

Which examples make up a step does not depend on who reads them, so every rank may decide for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from daskmetrics.config import Recipe
from daskmetrics.training._batches import effective, examples, passes, share
from daskmetrics.training._data import Batch, Rows, Windows
from daskmetrics.training._distributed import World

PROBE = 6  # steps that are timed before loaders are started; the first does not count
WORTH = 0.05  # share of a step's time that reading may take without loaders


def needed(reading: float, computing: float) -> int:
    """Loaders that keep up with a rank: each reads while it computes.

    Parameters
    ----------
    reading, computing : float
        Seconds per step.

    Examples
    --------
    >>> [needed(reading, 1.0) for reading in (0.01, 0.3, 2.5)]
    [0, 1, 3]
    """
    return 0 if reading <= WORTH * computing else int(np.ceil(reading / computing))


def allowed(cores: int, available: float, resident: float, ranks: int) -> int:
    """Loaders per rank that a machine has room for: a core each beside the ranks', and memory as large as a rank.

    Parameters
    ----------
    cores : int
    available, resident : float
        Bytes that are free, and that a loader may come to occupy.
    ranks : int
        On this machine.

    Examples
    --------
    >>> allowed(cores=32, available=80e9, resident=2e9, ranks=4)
    7
    >>> allowed(cores=32, available=16e9, resident=2e9, ranks=4)
    1
    """
    by_cores = (cores - ranks) // ranks
    by_memory = int(0.8 * available / (ranks * resident))  # something must stay free
    return max(0, min(by_cores, by_memory))


class Loader:
    """The examples of a rank, step by step.

    Parameters
    ----------
    recipe : Recipe
    source : Windows or Rows
    world : World
    wanted : int or "measured"
        Processes that read ahead.
    """

    def __init__(self, recipe: Recipe, source: Windows | Rows, world: World, wanted: int | Literal["measured"]) -> None:
        self.steps_of_rank = _Steps(recipe, source, world)
        self.world = world
        self.count = wanted if isinstance(wanted, int) else 0
        self._probing = wanted == "measured"
        self._reading: list[float] = []
        self._computing: list[float] = []
        self._handed = 0.0

    def steps(self, first: int, last: int) -> Iterator[tuple[int, Sequence[Batch]]]:
        """Steps ``first`` to ``last``, each with this rank's passes."""
        step = first
        while step <= last and not self.count:
            started = time.perf_counter()
            batches = self.steps_of_rank[step]
            self._handed = time.perf_counter()
            self._reading.append(self._handed - started)
            yield step, batches
            step += 1
            if self._probing and len(self._computing) == PROBE:
                self._decide()
        if step <= last:
            yield from self._ahead(step, last)

    def computed(self) -> None:
        """The step that was handed out last has been taken."""
        if self._probing:
            self._computing.append(time.perf_counter() - self._handed)

    def _decide(self) -> None:
        self._probing = False
        wanted = needed(float(np.median(self._reading[1:])), float(np.median(self._computing[1:])))
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self.count = min(wanted, allowed(len(os.sched_getaffinity(0)), _available(), _resident(), ranks))

    def _ahead(self, first: int, last: int) -> Iterator[tuple[int, Sequence[Batch]]]:
        loader = DataLoader(
            self.steps_of_rank,
            batch_size=None,
            sampler=range(first, last + 1),
            num_workers=self.count,
            persistent_workers=True,
            pin_memory=self.world.device.startswith("cuda"),
            collate_fn=_tensors,
        )
        yield from zip(range(first, last + 1), loader, strict=True)


def _tensors(batches: Sequence[Batch]) -> Sequence[Mapping[str, torch.Tensor]]:
    """What can be sent between processes without a copy, and pinned."""
    return [{name: torch.from_numpy(array) for name, array in batch.items()} for batch in batches]


class _Steps(Dataset[Sequence[Batch]]):
    """By step: what this rank learns from in it, pass by pass."""

    def __init__(self, recipe: Recipe, source: Windows | Rows, world: World) -> None:
        self.recipe, self.source = recipe, source
        self.part = share(effective(recipe), world.rank, world.size)

    def __getitem__(self, step: int) -> Sequence[Batch]:
        which = examples(self.recipe, len(self.source), step)[self.part]
        return [self.source.take(which[part]) for part in passes(len(which), self.recipe.batch)]


def _available() -> float:
    """Bytes of memory that this machine has free."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024.0 * int(line.split()[1])
    return 0.0


def _resident() -> float:
    """Bytes that this process occupies; a loader begins as its copy."""
    return os.sysconf("SC_PAGE_SIZE") * float(Path("/proc/self/statm").read_text().split()[1])
