"""A training program as a user writes it: plain DDP, one file, which resumes from its snapshot."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SNAPSHOT = Path("snapshot.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.02)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    Path(f"environment{rank}.json").write_text(json.dumps(dict(os.environ)))
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    first = 1
    if SNAPSHOT.exists():
        state = torch.load(SNAPSHOT)
        model.load_state_dict(state["model"])
        first = state["step"] + 1
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(first, options.steps + 1):
        generator = torch.Generator().manual_seed(100 * step + rank)
        loss = (ddp(torch.randn(8, 4, generator=generator)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.seconds)
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step}, SNAPSHOT.with_suffix(".new"))
            SNAPSHOT.with_suffix(".new").rename(SNAPSHOT)
            bar = "#" * (10 * step // options.steps)
            share = 100 * step // options.steps
            text = f"\r{share}%|{bar:<10}| {step}/{options.steps} [00:01<00:02, 9.9it/s]"
            print(text, f"loss={loss:.4f}", end="")
    dist.barrier()
    if rank == 0:
        print(f"\nfrom step {first}, weights {model.weight.sum().item()!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
