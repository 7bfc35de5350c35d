"""The process group that takes a step together, as one of its ranks sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

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

    @property
    def on_gpu(self) -> bool:
        """Whether the ranks compute on GPUs."""
        return self.device != "cpu"

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, at every rank, once all have come here."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def wrap(self, model: torch.nn.Module) -> torch.nn.Module:
        """The same model with gradients that are means over the ranks."""
        if self.size == 1:
            return model
        # no buffer changes in training; torch 2.13 renamed the switch
        names = ("forward_sync_buffers", "broadcast_buffers")
        known = signature(DistributedDataParallel).parameters
        switch: dict[str, Any] = {next(name for name in names if name in known): False}
        return DistributedDataParallel(model, gradient_as_bucket_view=True, **switch)


SINGLE = World()


@contextmanager
def process_group(timeout: float) -> Iterator[World]:
    """This rank's view of the process group that torchrun's variables describe, once all ranks have
    arrived.
    """
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device, backend = "cpu", "gloo"
    if torch.cuda.is_available():
        device, backend = f"cuda:{os.environ['LOCAL_RANK']}", "nccl"
        torch.cuda.set_device(device)
    if size == 1:
        yield World(device=device)
        return
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    yield World(rank, size, device)
    dist.barrier()  # rank 0 writes last; the others wait for it
    dist.destroy_process_group()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Fix the number of threads of torch: the last bits of sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
