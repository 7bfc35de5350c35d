"""The learner: weights, optimizer and step as one value that can be saved and restored bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from daskmetrics.config import Recipe
from daskmetrics.core import _files as files
from daskmetrics.core.names import seed_of
from daskmetrics.training import _networks as networks
from daskmetrics.training._data import Batch, effective
from daskmetrics.training._distributed import SINGLE, ProgressReporter, World
from daskmetrics.training._schedule import learning_rate, peak

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class TrainingState:
    """A model in training, after ``step`` optimizer steps."""

    model: Any
    wrapped: Any  # the same model; its gradients are means over the ranks
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # keeps gradients from underflow in float16; inactive in other precisions
    world: World
    step: int


def new(recipe: Recipe, corpus: Path, world: World = SINGLE, saved: Path | None = None) -> TrainingState:
    """A learner at step 0, or at the step of a resume state that `save` wrote."""
    model = networks.new(recipe, corpus)
    state = torch.load(saved, weights_only=True, map_location="cpu") if saved else None
    if state:
        model.load_state_dict(state["model"])
    model.to(world.device)
    if recipe.compile:
        model.compile()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=peak(recipe), betas=(0.9, 0.95), weight_decay=recipe.weight_decay, fused=True
    )
    scaler = torch.amp.GradScaler(world.device.partition(":")[0], enabled=recipe.precision == "float16")
    if state:
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
    return TrainingState(model, world.wrap(model), optimizer, scaler, world, state["step"] if state else 0)


def take_step(
    learner: TrainingState, recipe: Recipe, passes: Sequence[Batch], reporter: ProgressReporter
) -> torch.Tensor:
    """Take the next step on this rank's examples; return its loss, scaled so that the mean over ranks is the mean loss.

    The gradient is the mean over the examples of all ranks and passes, however they are divided.
    """
    world, step = learner.world, learner.step + 1
    torch.manual_seed(seed_of("dropout", recipe.seed, step, world.rank))
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(recipe, step)
    total = torch.zeros((), device=world.device)
    for number, batch in enumerate(passes, start=1):
        last = number == len(passes)
        weight = len(batch["ids"]) * world.size / effective(recipe)
        with nullcontext() if last or world.size == 1 else learner.wrapped.no_sync():
            loss = _loss(learner.wrapped, recipe, batch, world) * weight
            if last:
                reporter.enter(step, 1)  # gradients are reduced in the backward pass
            learner.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    if recipe.clip:
        learner.scaler.unscale_(learner.optimizer)
        torch.nn.utils.clip_grad_norm_(learner.model.parameters(), recipe.clip)
    learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    learner.optimizer.zero_grad()
    learner.step = step
    return total


def evaluate(learner: TrainingState, recipe: Recipe, passes: Sequence[Batch]) -> float:
    """Mean loss in nats on examples that are the same for every revision."""
    size = sum(len(batch["ids"]) for batch in passes)
    learner.model.eval()
    with torch.no_grad():
        losses = [
            float(_loss(learner.model, recipe, batch, learner.world)) * len(batch["ids"]) / size for batch in passes
        ]
    learner.model.train()
    return sum(losses)


def _loss(model: Any, recipe: Recipe, batch: Batch, world: World) -> torch.Tensor:
    tensors = {name: torch.as_tensor(array).to(world.device, non_blocking=True) for name, array in batch.items()}
    dtype, kind = DTYPES[recipe.precision], world.device.partition(":")[0]
    with torch.autocast(kind, dtype) if dtype != torch.float32 else nullcontext():
        return networks.loss(model, tensors)


def save(learner: TrainingState, path: Path) -> None:
    """Write the resume state; a process killed meanwhile leaves the old file or the new one."""
    state = {
        "model": learner.model.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "scaler": learner.scaler.state_dict(),
        "step": learner.step,
    }
    with files.atomic_file(path) as file:
        torch.save(state, file)


def is_readable(path: Path) -> bool:
    """Whether a resume state can be read; a machine that crashed may leave a part of it."""
    try:
        torch.load(path, weights_only=True, mmap=True, map_location="meta")
    except (OSError, EOFError, RuntimeError, KeyError, ValueError):
        return False
    return True
