"""A rank of the exchange that ``doctor --worker 2`` measures: the ranks sum a tensor."""

import time
from statistics import median

import torch
import torch.distributed as dist

from daskmetrics.planning.doctor.worker import EXCHANGED
from daskmetrics.training.progress import progress
from daskmetrics.training.recipe import process_group

ROUNDS = 5

if __name__ == "__main__":
    with process_group() as world:
        tensor = torch.ones(EXCHANGED // 4, device=world.device)
        seconds = []
        for _ in range(1 + ROUNDS):
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            total = tensor[0].item()  # waits for the GPU
            seconds.append(time.perf_counter() - began)
        if total != float(world.size) ** len(seconds):
            raise ArithmeticError(f"{world.size} ranks summed ones to {total}")
        # the first one connects
        progress(1, 1, seconds=median(seconds[1:]))
