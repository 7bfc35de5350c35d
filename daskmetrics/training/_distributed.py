"""The process group that takes a step together, as one of its ranks sees it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process's rank, the number of ranks, and the device (``cpu``, ``cuda:0``, ...)."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_leader(self) -> bool:
        """Whether this rank is the one that writes."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Rank 0's value, at every rank."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def wait(self) -> None:
        """Wait until all ranks have come here."""
        if self.size > 1:
            dist.barrier()

    def mean(self, value: torch.Tensor) -> float:
        """The mean of a number over the ranks."""
        if self.size > 1:
            value = value.clone()
            dist.all_reduce(value)
        return float(value) / self.size

    def nodes(self) -> list[str]:
        """The node of every rank."""
        names = [socket.gethostname()] * self.size
        if self.size > 1:
            dist.all_gather_object(names, socket.gethostname())
        return names

    def peak_memory(self) -> int:
        """The most bytes of its GPU that this rank has used."""
        return torch.cuda.max_memory_allocated(self.device)

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """The same model with gradients that are means over the ranks."""
        if self.size == 1:
            return model
        from torch.nn.parallel import DistributedDataParallel

        index = torch.device(self.device).index
        # no buffer changes in training; torch 2.13 renamed the switch
        names = ("forward_sync_buffers", "broadcast_buffers")
        switch = next(
            name for name in names if name in signature(DistributedDataParallel).parameters
        )
        options: dict[str, Any] = {switch: False, "gradient_as_bucket_view": True}
        return DistributedDataParallel(
            model, device_ids=None if index is None else [index], **options
        )


SINGLE = World()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Fix the number of threads of torch: the last bits of sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
