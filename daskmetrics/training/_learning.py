"""Training of a suite's revisions: its state, which can be saved and restored bit for bit, one
optimizer step, and the loop over the steps.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from daskmetrics.config import DDP, Recipe
from daskmetrics.core import files as files
from daskmetrics.core.errors import ConfigError, UndefinedError, unknown
from daskmetrics.core.names import seed_of, step_of
from daskmetrics.training import _networks as networks
from daskmetrics.training import _tokenizer as tokenizer
from daskmetrics.training import data as data
from daskmetrics.training import suite as suite
from daskmetrics.training._distributed import SINGLE, World, threads
from daskmetrics.training._loaders import RankSteps, read_steps
from daskmetrics.training._stage import staged
from daskmetrics.training.data import Batch, effective, examples, passes

FLOOR = 0.1  # of the learning rate at the end, as a share of its peak
WARMUP = 1 / 16  # share of the steps during which it rises
MAX_REPORTS = 500  # of the mean loss, in one training
LARGEST_GRADIENT = 1.0  # norm to which a greater one is scaled

Show = Callable[[int, float], None]  # called after a step, with its mean loss

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass
class TrainingState:
    """A model in training, after ``step`` optimizer steps."""

    model: Any
    wrapped: Any  # the same model; its gradients are means over the ranks
    optimizer: torch.optim.Optimizer
    # keeps gradients from underflow in float16; inactive in other precisions
    scaler: torch.amp.GradScaler
    world: World
    step: int


def new(
    recipe: Recipe, corpus: Path, world: World = SINGLE, saved: Path | None = None
) -> TrainingState:
    """A learner at step 0, or at the step of a resume state that `save` wrote."""
    model = networks.new(recipe, corpus)
    state = None
    if saved:
        state = torch.load(saved, weights_only=True, map_location="cpu")
    if state:
        model.load_state_dict(state["model"])
    model.to(world.device)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=True,
    )
    scaler = torch.amp.GradScaler(
        world.device.partition(":")[0], enabled=recipe.precision == "float16"
    )
    if state:
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
    return TrainingState(
        model, world.wrap(model), optimizer, scaler, world, state["step"] if state else 0
    )


def learning_rate(recipe: Recipe, step: int) -> float:
    """The learning rate of a step: a linear warm-up, then a cosine down to the floor.

    >>> recipe = Recipe(steps=512, learning_rate=1.0)
    >>> [round(learning_rate(recipe, step), 3) for step in (1, 32, 272, 512)]
    [0.031, 1.0, 0.55, 0.1]
    """
    warm = max(1, int(recipe.steps * WARMUP))
    if step <= warm:
        return recipe.learning_rate * step / warm
    done = (step - warm) / (recipe.steps - warm)
    remaining = (1 + math.cos(math.pi * done)) / 2
    return recipe.learning_rate * (FLOOR + (1 - FLOOR) * remaining)


def take_step(learner: TrainingState, recipe: Recipe, batches: Sequence[Batch]) -> torch.Tensor:
    """Take the next step on this rank's examples; return its loss, scaled so that the mean over
    ranks is the mean loss.

    The gradient is the mean over the examples of all ranks and passes, however they are divided.
    """
    world = learner.world
    step = learner.step + 1
    torch.manual_seed(seed_of("dropout", recipe.seed, step, world.rank))
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(recipe, step)
    total = torch.zeros((), device=world.device)
    for number, batch in enumerate(batches, start=1):
        is_final = number == len(batches)
        weight = len(batch["ids"]) * world.size / effective(recipe)
        with nullcontext() if is_final or world.size == 1 else learner.wrapped.no_sync():
            loss = _loss(learner.wrapped, recipe, batch, world) * weight
            learner.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    learner.scaler.unscale_(learner.optimizer)
    torch.nn.utils.clip_grad_norm_(learner.model.parameters(), LARGEST_GRADIENT)
    learner.scaler.step(learner.optimizer)
    learner.scaler.update()
    learner.optimizer.zero_grad()
    learner.step = step
    return total


def evaluate(
    learner: TrainingState, recipe: Recipe, source: data.Windows | data.PaddedTexts
) -> float:
    """Mean loss in nats on examples that are the same for every revision."""
    indices = examples(recipe, len(source), 0)
    learner.model.eval()
    mean = 0.0
    with torch.no_grad():
        for examples_of_pass in passes(len(indices), recipe.batch):
            batch = source.take(indices[examples_of_pass])
            loss = float(_loss(learner.model, recipe, batch, learner.world))
            mean += loss * len(batch["ids"]) / len(indices)
    learner.model.train()
    return mean


def _loss(model: Any, recipe: Recipe, batch: Batch, world: World) -> torch.Tensor:
    tensors = {
        name: torch.as_tensor(array).to(world.device, non_blocking=True)
        for name, array in batch.items()
    }
    dtype, kind = DTYPES[recipe.precision], world.device.partition(":")[0]
    if dtype == torch.float32:
        return networks.loss(model, tensors)
    with torch.autocast(kind, dtype):
        return networks.loss(model, tensors)


def save(learner: TrainingState, folder: Path) -> None:
    """Write the resume state, then remove older ones; a process killed meanwhile leaves the old
    state or the new one.
    """
    state = {
        "model": learner.model.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "scaler": learner.scaler.state_dict(),
        "step": learner.step,
    }
    (folder / "resume").mkdir(parents=True, exist_ok=True)
    with files.atomic_file(folder / "resume" / f"step{learner.step}.pt") as file:
        torch.save(state, file)
    for path in suite.resume_states(folder)[1:]:
        path.unlink(missing_ok=True)


def is_readable(path: Path) -> bool:
    """Whether a resume state can be read; a machine that crashed may leave a part of it."""
    try:
        torch.load(path, weights_only=True, mmap=True, map_location="meta")
    except (OSError, EOFError, RuntimeError, KeyError, ValueError):
        return False
    return True


def train(
    recipe: Recipe,
    folder: Path,
    requested: Sequence[str],
    ddp: DDP,
    world: World = SINGLE,
    show: Show = lambda step, loss: None,
) -> None:
    """Train those of the requested revisions, oldest first, that are missing, as one rank of a
    process group.

    The corpus has been written. By default there is a single process, and nothing is shown.
    """
    missing = world.broadcast(
        [revision for revision in requested if not suite.is_complete(folder, revision)]
    )
    if world.size > effective(recipe):
        raise ConfigError(
            f"{world.size} ranks cannot share {effective(recipe)} sequences: raise 'batch'."
        )
    if world.is_leader:
        files.remove_partial(folder)
        files.remove_partial(folder / "resume")
    with (
        threads(recipe.threads),
        torch.random.fork_rng(devices=[]),
        staged(folder / "corpus", ddp.stage, world.wait) as corpus,
    ):
        steps = [step_of(revision) or 0 for revision in missing]
        source = data.read(recipe, corpus)
        learner = _resumed(recipe, folder, world, first=min(steps, default=0))
        stream = read_steps(
            RankSteps(recipe, source, world),
            learner.step + 1,
            max(steps, default=0),
            ddp.loaders,
            pinned=world.device.startswith("cuda"),
        )
        for end, revision in zip(steps, missing, strict=True):
            began = time.perf_counter()
            for step, batches in islice(stream, max(0, end - learner.step)):
                loss_of_rank = take_step(learner, recipe, batches)
                if step % max(1, recipe.steps // MAX_REPORTS) == 0 or step == end:
                    mean_loss = world.mean(loss_of_rank)
                    _require_finite(step, mean_loss)
                    show(step, mean_loss)
                if step % ddp.save_every == 0 and step < end and world.is_leader:
                    save(learner, folder)
            if world.is_leader:
                loss = evaluate(learner, recipe, source)
                _write(learner, recipe, folder / revision, loss, began)


def _resumed(recipe: Recipe, folder: Path, world: World, first: int) -> TrainingState:
    """The learner of the newest resume state that is not after the first step that is wanted."""
    saved = None
    if world.is_leader:
        # an older state leads to the same weights
        states = (path for path in suite.resume_states(folder) if suite.state_step(path) <= first)
        saved = next(filter(is_readable, states), None)
    return new(recipe, folder / "corpus", world, world.broadcast(saved))


def _require_finite(step: int, loss: float) -> None:
    if math.isnan(loss) or loss == math.inf:
        raise UndefinedError(
            f"The loss is {loss} at step {step}: lower learning_rate, or use another precision."
        )


def _write(
    learner: TrainingState, recipe: Recipe, revision: Path, loss: float, began: float
) -> None:
    """Write the resume state and the checkpoint with its summary."""
    result = {
        "loss": round(loss, 6),
        "tokens": float(learner.step * effective(recipe) * recipe.context),
        "seconds": round(time.perf_counter() - began, 3),
    }
    save(learner, revision.parent)
    with files.atomic_folder(revision) as partial:
        networks.export(learner.model, partial)
        tokenizer.copy(revision.parent / "corpus", partial)
        (partial / suite.SUMMARY).write_text(json.dumps(result) + "\n", encoding="utf-8")


def train_to(
    recipe: Recipe, folder: Path, revision: str, show: Show = lambda step, loss: None
) -> dict[str, float]:
    """Train up to a revision in this process and write it, starting from the newest resume state
    before it.

    It may be repeated, killed, or run twice at once: the weights do not depend on interruptions.

    Parameters
    ----------
    recipe : Recipe
    folder : Path
        The folder of the suite, one per `recipe_key`; created if it does not exist.
    revision : str
        One of ``revisions(recipe)``.
    reporter : ProgressReporter, optional
        Receives the loss of steps; by default progress is not reported.

    Returns
    -------
    dict
        ``loss`` (nats per token or label, on examples that are the same for all revisions),
        ``tokens`` (upper bound of the tokens seen since step 0) and ``seconds`` (wall time since
        the previous revision, or the start).

    Raises
    ------
    ConfigError
        If the recipe has no such revision, or its corpus cannot be read or is too short.
    """
    if revision not in suite.revisions(recipe):
        raise unknown("revision", revision, suite.revisions(recipe))
    if not suite.is_complete(folder, revision):
        suite.write_corpus(recipe, folder)
        train(recipe, folder, (revision,), DDP(), show=show)
    return suite.summary(folder, revision)
