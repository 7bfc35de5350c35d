"""Training of a suite's revisions: a GPT-NeoX of transformers, the ranks that take a step together,
a state that can be saved and restored bit for bit, and the loop over the steps.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader, Dataset

from daskmetrics.config import DDP, Recipe
from daskmetrics.core import files as files
from daskmetrics.core.errors import UndefinedError, unknown
from daskmetrics.core.names import seed_of, step_of
from daskmetrics.training import data as data
from daskmetrics.training import suite as suite
from daskmetrics.training.data import Tokens, effective, examples

FLOOR = 0.1  # of the learning rate at the end, as a share of its peak
WARMUP = 1 / 16  # share of the steps during which it rises
MAX_REPORTS = 500  # of the mean loss, in one training
LARGEST_GRADIENT = 1.0  # norm to which a greater one is scaled

T = TypeVar("T")
Show = Callable[[int, float], None]  # called after a step, with its mean loss


@dataclass(frozen=True)
class World:
    """This process's rank, the number of ranks that take a step together, and the device (``cpu``,
    ``cuda:0``, ...).
    """

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    @property
    def is_leader(self) -> bool:
        """Whether this rank is the one that writes."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, at every rank, once all have come here."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values


SINGLE = World()


@contextmanager
def process_group(timeout: float) -> Iterator[World]:
    """This rank's view of the process group that torchrun's variables describe, once all ranks have
    arrived.
    """
    device = "cpu"
    backend = "gloo"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
        backend = "nccl"
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    yield World(dist.get_rank(), dist.get_world_size(), device)
    dist.barrier()  # rank 0 writes last; the others wait for it
    dist.destroy_process_group()


@dataclass
class TrainingState:
    """A model in training by a recipe, after ``step`` optimizer steps."""

    recipe: Recipe
    world: World
    model: Any
    wrapped: Any  # the same model; its gradients are means over the ranks
    optimizer: torch.optim.Optimizer
    schedule: LRScheduler  # of the learning rate: a linear warm-up, then a cosine down to the floor

    @property
    def step(self) -> int:
        """The number of optimizer steps taken; the schedule has set the rate of the next one."""
        return self.schedule.last_epoch - 1

    def take_step(self, passes: Sequence[torch.Tensor], exchange: bool = True) -> torch.Tensor:
        """Take the next step on this rank's passes; return its loss, scaled so that the mean over
        ranks is the mean loss.

        The gradient is the mean over the examples of all ranks and passes, however they are
        divided; without ``exchange`` over those of this rank.
        """
        total = torch.zeros((), device=self.world.device)
        for number, batch in enumerate(passes, start=1):
            weight = len(batch) * self.world.size / effective(self.recipe)
            # as `no_sync` of DDP does; the passes add up, and the last one exchanges their sum
            self.wrapped.require_backward_grad_sync = exchange and number == len(passes)
            loss = self._loss(self.wrapped, batch) * weight
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        return total

    def evaluate(self, tokens: Tokens) -> float:
        """Mean loss in nats on examples that are the same for every revision."""
        total = 0.0
        with torch.no_grad():
            for batch in RankSteps(self.recipe, tokens, SINGLE)[0]:
                total += float(self._loss(self.model, batch)) * len(batch)
        return total / effective(self.recipe)

    def _loss(self, model: Any, batch: torch.Tensor) -> torch.Tensor:
        """Mean loss in nats per next token."""
        ids = batch.to(self.world.device)
        is_half = self.recipe.precision == "bfloat16"
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=is_half):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
            return cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    def save(self, folder: Path) -> None:
        """Write the resume state, then remove older ones; a process killed meanwhile leaves the old
        state or the new one.
        """
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        (folder / "resume").mkdir(parents=True, exist_ok=True)
        with files.atomic_file(folder / "resume" / f"step{self.step}.pt") as file:
            torch.save(state, file)
        for path in suite.resume_states(folder)[1:]:
            path.unlink(missing_ok=True)

    def write(self, folder: Path, loss: float, seconds: float) -> None:
        """Write the resume state and the checkpoint, as `transformers.AutoModel` reads it, with its
        summary.
        """
        result = {
            "loss": loss,
            "tokens": self.step * effective(self.recipe) * self.recipe.context,
            "seconds": seconds,
        }
        self.save(folder)
        with files.atomic_folder(folder / f"step{self.step}") as partial:
            # as save_pretrained does, but without its progress bar, which only a process-wide
            # switch turns off
            self.model.config.architectures = [type(self.model).__name__]
            self.model.config.save_pretrained(partial)
            weights = self.model.state_dict()
            path = partial / "model.safetensors"
            with files.native_errors(SafetensorError, path):
                save_file(weights, path, metadata={"format": "pt"})
            for name in data.TOKENIZER:
                shutil.copyfile(folder / "corpus" / name, partial / name)
            (partial / suite.SUMMARY).write_text(json.dumps(result) + "\n", encoding="utf-8")


def new(recipe: Recipe, world: World = SINGLE, saved: Path | None = None) -> TrainingState:
    """A learner at step 0, whose random weights follow from the recipe's seed, or at the step of a
    resume state that `save` wrote; torch gets the recipe's number of threads.
    """
    from transformers import (
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        get_cosine_with_min_lr_schedule_with_warmup,
    )

    torch.set_num_threads(recipe.threads)  # the last bits of sums depend on it
    config = GPTNeoXConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        num_hidden_layers=recipe.depth,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.width,
        # "small init" of Nguyen and Salazar (2019), as in Pythia
        initializer_range=(2 / (5 * recipe.width)) ** 0.5,
        max_position_embeddings=recipe.context,
        bos_token_id=data.END_ID,
        eos_token_id=data.END_ID,
        pad_token_id=data.END_ID,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of("weights", recipe.seed))
        model = GPTNeoXForCausalLM(config)
    model.train().to(world.device)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.95),
        weight_decay=0.1,
        fused=True,
    )
    optimizer.param_groups[0]["initial_lr"] = recipe.learning_rate
    step = 0
    if saved:
        state = torch.load(saved, weights_only=True, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    warm_up = max(1, int(recipe.steps * WARMUP))
    schedule = get_cosine_with_min_lr_schedule_with_warmup(
        optimizer, warm_up, recipe.steps, min_lr_rate=FLOOR, last_epoch=step
    )
    wrapped = model
    if world.size > 1:
        # no buffer changes in training
        wrapped = DistributedDataParallel(
            model, gradient_as_bucket_view=True, broadcast_buffers=False
        )
    return TrainingState(recipe, world, model, wrapped, optimizer, schedule)


@dataclass(frozen=True)
class RankSteps(Dataset[list[torch.Tensor]]):
    """What this rank learns from in each step: passes of at most ``batch`` windows of tokens,
    int64 of shape (windows, context + 1); the inputs are all but the last of a row.

    Each rank takes consecutive windows; their numbers differ by one at most.
    """

    recipe: Recipe
    tokens: Tokens
    world: World

    def __getitem__(self, step: int) -> list[torch.Tensor]:
        recipe = self.recipe
        starts = examples(recipe, len(self.tokens) - recipe.context, step)
        of_rank = np.array_split(starts, self.world.size)[self.world.rank]
        window = np.arange(recipe.context + 1)
        tokens = self.tokens[of_rank[:, None] + window]
        rows = torch.from_numpy(tokens.astype(np.int64))
        return list(torch.split(rows, recipe.batch))


def read_steps(steps: RankSteps, numbers: range, loaders: int) -> Iterator[list[torch.Tensor]]:
    """This rank's passes of each of these steps, read by the rank itself or ahead of it by
    ``loaders`` processes.

    What is read does not depend on them, so every rank may choose their number.
    """
    generator = torch.Generator()  # else the random state of the process would change
    loader = DataLoader(
        steps, batch_size=None, sampler=numbers, num_workers=loaders, generator=generator
    )
    return iter(loader)


def train(
    recipe: Recipe,
    folder: Path,
    requested: Sequence[str],
    tokens: Tokens,
    ddp: DDP,
    world: World,
    show: Show,
) -> None:
    """Train those of the requested revisions, oldest first, that are missing, as one rank of a
    process group.
    """
    missing = (revision for revision in requested if not suite.is_complete(folder, revision))
    ends = [step_of(revision) or 0 for revision in missing]
    states: list[Path] = []
    if world.is_leader:
        files.remove_partial(folder)
        files.remove_partial(folder / "resume")
        # an older one leads to the same weights
        states = suite.resume_states(folder, until=min(ends, default=0))
    # rank 0 may have written another one before the others look
    ends, states = world.gather((ends, states))[0]
    learner = new(recipe, world, *states[:1])
    numbers = range(learner.step + 1, max(ends, default=0) + 1)
    stream = read_steps(RankSteps(recipe, tokens, world), numbers, ddp.loaders)
    for end in ends:
        began = time.perf_counter()
        for passes in islice(stream, end - learner.step):
            loss_of_rank = learner.take_step(passes)
            step = learner.step
            if step % max(1, recipe.steps // MAX_REPORTS) == 0 or step == end:
                loss = fmean(world.gather(float(loss_of_rank)))
                if not math.isfinite(loss):
                    raise UndefinedError(
                        f"The loss is {loss} at step {step}: lower learning_rate, or use another"
                        " precision."
                    )
                show(step, loss)
            if step % ddp.save_every == 0 and step < end and world.is_leader:
                learner.save(folder)
        if world.is_leader:
            loss = learner.evaluate(tokens)
            learner.write(folder, loss, time.perf_counter() - began)


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
    show : callable, optional
        Receives steps and their loss; by default progress is not reported.

    Returns
    -------
    dict
        ``loss`` (nats per token, on examples that are the same for all revisions), ``tokens``
        (upper bound of the tokens seen since step 0) and ``seconds`` (wall time since the previous
        revision, or the start).

    Raises
    ------
    ConfigError
        If the recipe has no such revision, or its corpus cannot be read or is too short.
    """
    if revision not in suite.revisions(recipe):
        raise unknown("revision", revision, suite.revisions(recipe))
    if not suite.is_complete(folder, revision):
        threads = torch.get_num_threads()
        try:
            data.write_corpus(recipe, folder)
            tokens = data.read(folder / "corpus")
            train(recipe, folder, (revision,), tokens, DDP(), SINGLE, show)
        finally:
            torch.set_num_threads(threads)
    return suite.summary(folder, revision)
