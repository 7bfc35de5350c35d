"""The processes that take a step together, as one of them sees the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's place.

    Attributes
    ----------
    rank, size : int
    device : str
        Where it computes, such as ``cpu`` or ``cuda:0``.
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def leads(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def told(self, value: T) -> T:
        """The leader's value, at every rank."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    def mean(self, value: torch.Tensor) -> float:
        """The mean of a number over the ranks."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return float(value) / self.size

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """The model whose gradients are means over the ranks."""
        if self.size == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        index = torch.device(self.device).index
        # no buffer changes in training; torch 2.13 has renamed the switch
        names = ("forward_sync_buffers", "broadcast_buffers")
        switch = next(name for name in names if name in signature(DistributedDataParallel).parameters)
        options: dict[str, Any] = {switch: False, "gradient_as_bucket_view": True}
        return DistributedDataParallel(model, device_ids=None if index is None else [index], **options)


ALONE = World()


class Tell(Protocol):
    """What is told while training goes on; to be silent is `Silent`."""

    def at(self, step: int, phase: int) -> None:
        """This rank began phase 0 (computes) or 1 (waits for the others) of a step."""

    def took(self, step: int, loss: float) -> None:
        """A step was taken by all ranks, with this mean loss."""

    def say(self, **facts: Any) -> None:
        """Anything else that is worth a line."""


class Silent:
    """Tells nobody."""

    def at(self, step: int, phase: int) -> None: ...

    def took(self, step: int, loss: float) -> None: ...

    def say(self, **facts: Any) -> None: ...


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Sums in one order: with another number of threads their last bits would differ."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
