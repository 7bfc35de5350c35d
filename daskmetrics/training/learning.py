"""The learner: weights, optimizer and step as one value that can be saved and taken up again, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from daskmetrics.arms import seed_of
from daskmetrics.config import Recipe
from daskmetrics.training.batches import batch, learning_rate
from daskmetrics.training.tokenizer import END_ID


@dataclass
class Learner:
    """A model in training.

    Attributes
    ----------
    model : GPTNeoXForCausalLM
    optimizer : AdamW
    step : int
        Optimizer steps taken so far.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    step: int


def new(recipe: Recipe) -> Learner:
    """A learner at step 0: random weights that the recipe's seed decides."""
    config = GPTNeoXConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        num_hidden_layers=recipe.depth,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.width,
        initializer_range=(2 / (5 * recipe.width)) ** 0.5,  # "small init" of Nguyen and Salazar (2019), as in Pythia
        max_position_embeddings=recipe.context,
        bos_token_id=END_ID,
        eos_token_id=END_ID,
        pad_token_id=END_ID,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("weights", recipe.seed))
        model = GPTNeoXForCausalLM(config)
    # fused: one kernel for all weights
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    return Learner(model.train(), optimizer, step=0)


def advance(learner: Learner, recipe: Recipe, tokens: NDArray[np.int32], last: int) -> None:
    """Take the steps after ``learner.step`` up to and including `last`."""
    for step in range(learner.step + 1, last + 1):
        for group in learner.optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        _loss(learner.model, batch(tokens, recipe, step)).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(learner.model.parameters(), 1.0)
        learner.optimizer.step()
        learner.optimizer.zero_grad()
        learner.step = step


def loss(learner: Learner, recipe: Recipe, tokens: NDArray[np.int32]) -> float:
    """Mean next-token loss in nats on one batch that is the same for every revision."""
    with torch.no_grad():
        return float(_loss(learner.model, batch(tokens, recipe, step=0)))


def export(learner: Learner, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``, as `transformers.AutoModel` reads them."""
    # what save_pretrained does, less its progress bar, which only a process-wide switch would silence
    learner.model.config.architectures = [type(learner.model).__name__]
    learner.model.config.save_pretrained(folder)
    save_file(learner.model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})


def save(learner: Learner, path: Path) -> None:
    """Write the resume state; a kill at any time leaves the old file or the new one."""
    state = {"model": learner.model.state_dict(), "optimizer": learner.optimizer.state_dict(), "step": learner.step}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    torch.save(state, part)
    part.replace(path)


def load(path: Path, recipe: Recipe) -> Learner:
    """The learner whose resume state lies in `path`."""
    state = torch.load(path, weights_only=True)
    learner = new(recipe)
    learner.model.load_state_dict(state["model"])
    learner.optimizer.load_state_dict(state["optimizer"])
    learner.step = state["step"]
    return learner


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one order: with several threads the last bits would depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _loss(model: Any, windows: NDArray[np.int64]) -> torch.Tensor:
    ids = torch.from_numpy(windows)
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
