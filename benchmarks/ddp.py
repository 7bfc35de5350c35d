"""Plain DDP as PyTorch's own tutorial writes it, for comparison: ``torchrun benchmarks/ddp.py
RECIPE CORPUS OUTPUT``.

Of daskmetrics it takes the recipe and which examples make up a step; model, loop and optimizer are
its own.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from daskmetrics.config import Recipe
from daskmetrics.core.keys import seed_of
from daskmetrics.training.data import examples


def main(recipe: Recipe, corpus: Path, output: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tokens = np.load(corpus / "tokens.npy", mmap_mode="r")
    torch.manual_seed(seed_of("weights", recipe.seed))
    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=recipe.vocabulary,
            hidden_size=recipe.width,
            num_hidden_layers=recipe.depth,
            num_attention_heads=recipe.heads,
            intermediate_size=4 * recipe.width,
            initializer_range=(2 / (5 * recipe.width)) ** 0.5,
            max_position_embeddings=recipe.context,
        )
    )
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    warm = max(1, recipe.steps // 16)
    for step in range(1, recipe.steps + 1):
        done = (step - warm) / (recipe.steps - warm)
        rate = step / warm if step <= warm else 0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2
        optimizer.param_groups[0]["lr"] = recipe.learning_rate * rate
        starts = np.split(examples(recipe, len(tokens) - recipe.context, step), world)[rank]
        ids = torch.from_numpy(
            tokens[starts[:, None] + np.arange(recipe.context + 1)].astype(np.int64)
        )
        logits = ddp(input_ids=ids[:, :-1], use_cache=False).logits
        cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        save_file(model.state_dict(), output, metadata={"format": "pt"})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(
        Recipe.model_validate_json(Path(sys.argv[1]).read_text()),
        Path(sys.argv[2]),
        Path(sys.argv[3]),
    )
