"""The built-in training program: a small GPT-NeoX, in plain PyTorch.

``python -m daskmetrics.training.recipe FOLDER --width=64 --steps=512 ...`` trains in one process;
`torchrun`, or ``daskmetrics train``, starts the same in several. The arguments are the fields of
`Recipe`. Started again, it goes on from its newest state, and ends with the same weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
import yaml
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from transformers import (
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    get_cosine_with_min_lr_schedule_with_warmup,
)

from daskmetrics.config import Recipe
from daskmetrics.core import files as files
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.keys import seed_of
from daskmetrics.domain.names import step_of
from daskmetrics.training import data as data
from daskmetrics.training import suite as suite
from daskmetrics.training.data import Tokens, effective
from daskmetrics.training.progress import progress

FLOOR = 0.1  # of the learning rate at the end, as a share of its peak
WARMUP = 1 / 16  # share of the steps during which it rises
LARGEST_GRADIENT = 1.0  # norm to which a greater one is scaled
MAX_REPORTS = 500  # of the mean loss, in one training
POLL = 0.1  # seconds between two looks for the corpus

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This rank among those that take a step together."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, once all have come here."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values


SINGLE = World()


@contextmanager
def process_group() -> Iterator[World]:
    """The ranks that the variables of torchrun describe."""
    device = "cpu"
    backend = "gloo"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}"
        backend = "nccl"
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield World(device=device)
        return
    dist.init_process_group(backend)
    yield World(dist.get_rank(), dist.get_world_size(), device)
    dist.barrier()  # rank 0 writes last; the others wait for it
    dist.destroy_process_group()


@dataclass(frozen=True)
class RankSteps(Dataset[list[torch.Tensor]]):
    """What this rank learns from in each step, as passes.

    A pass is int64 of shape (windows, context + 1); the inputs are all but the last of a row. Each
    rank takes consecutive windows of the step; their numbers differ by one at most.
    """

    recipe: Recipe
    tokens: Tokens
    world: World = SINGLE

    def __getitem__(self, step: int) -> list[torch.Tensor]:
        recipe = self.recipe
        starts = data.examples(recipe, len(self.tokens) - recipe.context, step)
        of_rank = np.array_split(starts, self.world.size)[self.world.rank]
        windows = self.tokens[of_rank[:, None] + np.arange(recipe.context + 1)]
        return list(torch.split(torch.from_numpy(windows.astype(np.int64)), recipe.batch))

    def read(self, steps: range, loaders: int) -> Iterator[list[torch.Tensor]]:
        """The passes of these steps, read ahead by ``loaders`` processes."""
        # else the random state of the process would change
        generator = torch.Generator()
        return iter(DataLoader(self, None, sampler=steps, num_workers=loaders, generator=generator))


class TrainingState:
    """A model in training, after ``step`` steps."""

    def __init__(self, recipe: Recipe, world: World = SINGLE, saved: Path | None = None) -> None:
        torch.set_num_threads(recipe.threads)  # the last bits of sums depend on it
        torch.manual_seed(seed_of("weights", recipe.seed))
        self.recipe = recipe
        self.world = world
        self.model = GPTNeoXForCausalLM(architecture(recipe)).train().to(world.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=recipe.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=0.1,
            fused=True,
        )
        self.optimizer.param_groups[0]["initial_lr"] = recipe.learning_rate
        self.step = 0
        if saved:
            state = torch.load(saved, weights_only=True, map_location="cpu")
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
            torch.set_rng_state(state["random"])
        # a linear warm-up, then a cosine down to the floor
        self.schedule = get_cosine_with_min_lr_schedule_with_warmup(
            self.optimizer,
            max(1, int(recipe.steps * WARMUP)),
            recipe.steps,
            min_lr_rate=FLOOR,
            last_epoch=self.step,
        )
        self.ddp: Any = self.model
        if world.size > 1:
            # no buffer changes in training
            self.ddp = DistributedDataParallel(
                self.model, gradient_as_bucket_view=True, broadcast_buffers=False
            )
        self.written = time.perf_counter()  # when the latest checkpoint was, or it began

    def take_step(self, passes: Sequence[torch.Tensor]) -> torch.Tensor:
        """Take a step; returns this rank's share of its mean loss.

        The gradient is the mean over the examples of all ranks and passes, however they are
        divided.
        """
        total = torch.zeros((), device=self.world.device)
        for number, batch in enumerate(passes, start=1):
            # the passes add up, and the last one exchanges their sum
            is_inner = self.world.size > 1 and number < len(passes)
            with self.ddp.no_sync() if is_inner else nullcontext():
                weight = len(batch) * self.world.size / effective(self.recipe)
                loss = self.loss(self.ddp, batch) * weight
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), LARGEST_GRADIENT)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.step += 1
        return total

    def loss(self, model: Any, batch: torch.Tensor) -> torch.Tensor:
        """Mean loss in nats per next token."""
        ids = batch.to(self.world.device)
        is_half = self.recipe.precision == "bfloat16"
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=is_half):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
            return cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    def evaluate(self, tokens: Tokens) -> float:
        """Mean loss in nats, on examples that all revisions share."""
        total = 0.0
        with torch.no_grad():
            for batch in RankSteps(self.recipe, tokens)[0]:
                total += float(self.loss(self.model, batch)) * len(batch)
        return total / effective(self.recipe)

    def save(self, folder: Path) -> None:
        """Write the state from which a later start goes on."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "random": torch.get_rng_state(),
        }
        (folder / "resume").mkdir(exist_ok=True)
        with files.atomic_file(folder / "resume" / f"step{self.step}.pt") as file:
            torch.save(state, file)
        for path in suite.resume_states(folder)[1:]:
            path.unlink(missing_ok=True)

    def write(self, folder: Path, tokens: Tokens) -> None:
        """Write the state and the checkpoint, as transformers reads it."""
        summary = {
            "loss": self.evaluate(tokens),
            "tokens": self.step * effective(self.recipe) * self.recipe.context,
            "seconds": time.perf_counter() - self.written,
        }
        self.save(folder)
        with files.atomic_folder(folder / f"step{self.step}") as partial:
            # as save_pretrained does, but without its progress bar, which only a process-wide
            # switch turns off
            self.model.config.architectures = [type(self.model).__name__]
            self.model.config.save_pretrained(partial)
            path = partial / "model.safetensors"
            with files.native_errors(SafetensorError, path):
                save_file(self.model.state_dict(), path, metadata={"format": "pt"})
            for name in data.TOKENIZER:
                shutil.copyfile(folder / "corpus" / name, partial / name)
            (partial / suite.SUMMARY).write_text(json.dumps(summary) + "\n", encoding="utf-8")
        self.written = time.perf_counter()


def architecture(recipe: Recipe) -> GPTNeoXConfig:
    """The shape of the model.

    It has the "small init" of Nguyen and Salazar (2019), as Pythia.
    """
    return GPTNeoXConfig(
        vocab_size=recipe.vocabulary,
        hidden_size=recipe.width,
        num_hidden_layers=recipe.depth,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.width,
        initializer_range=(2 / (5 * recipe.width)) ** 0.5,
        max_position_embeddings=recipe.context,
        bos_token_id=data.END_ID,
        eos_token_id=data.END_ID,
        pad_token_id=data.END_ID,
    )


def opened(
    recipe: Recipe, folder: Path, world: World, until: float = math.inf
) -> tuple[TrainingState, list[int]]:
    """The training as it was saved last, and the missing revisions' steps until one."""
    ends: list[int] = []
    states: list[Path] = []
    if world.rank == 0:
        files.remove_partial(folder)
        files.remove_partial(folder / "resume")
        ends = [step_of(name) or 0 for name in suite.missing_revisions(recipe, folder, until)]
        # an older one leads to the same weights
        states = suite.resume_states(folder, until=min(ends, default=0))
    # rank 0 may write another one before the others look
    ends, states = world.gather((ends, states))[0]
    try:
        training = TrainingState(recipe, world, *states[:1])
    except FileNotFoundError:
        if world.size > 1:  # the launcher starts all ranks again
            raise
        # another process trains here, too, and has written a newer one
        return opened(recipe, folder, world, until)
    return training, ends


def learn(
    recipe: Recipe, folder: Path, tokens: Tokens, world: World, until: float = math.inf
) -> None:
    """Take the missing steps until one, and save each revision on the way."""
    training, ends = opened(recipe, folder, world, until)
    if world.rank == 0 and training.step in ends:  # step 0, or one whose checkpoint was lost
        training.write(folder, tokens)
    steps = range(training.step + 1, max(ends, default=0) + 1)
    for passes in RankSteps(recipe, tokens, world).read(steps, recipe.loaders):
        loss = training.take_step(passes)
        step = training.step
        if step % max(1, recipe.steps // MAX_REPORTS) == 0 or step in ends:
            report(recipe, folder, world, step, fmean(world.gather(float(loss))), ends[-1])
        if world.rank == 0 and step in ends:
            training.write(folder, tokens)
        elif world.rank == 0 and step % recipe.save_every == 0:
            training.save(folder)


def report(recipe: Recipe, folder: Path, world: World, step: int, loss: float, total: int) -> None:
    """Report a step of ``total`` and its mean loss, and keep it in a file.

    A loss that is not finite is an `UndefinedError`.
    """
    if not math.isfinite(loss):
        raise UndefinedError(
            f"The loss is {loss} at step {step}: lower learning_rate, or use another precision."
        )
    samples = step * effective(recipe)
    progress(step, total, loss=loss, samples=samples, tokens=samples * recipe.context)
    if world.rank == 0:
        with files.open_own(folder / suite.PROGRESS, "ab") as file:
            # the first sign ends what a killed rank wrote half
            file.write(b"\n" + json.dumps({"step": step, "loss": loss}).encode())


def train(recipe: Recipe, folder: Path, until: float = math.inf) -> None:
    """Train the missing revisions of a suite, as one of its ranks.

    It may be killed, or run twice at once: the weights do not depend on interruptions.

    Parameters
    ----------
    recipe : Recipe
    folder : Path
        The folder of the suite, one per `recipe_key`; created if it does not exist.
    until : float, optional
        The last step that is needed; by default that of the recipe.

    Raises
    ------
    ConfigError
        If the corpus cannot be read or is too short.
    UndefinedError
        If the loss is not finite.
    """
    threads = torch.get_num_threads()
    try:
        # the random state of the caller stays, as its threads do
        with torch.random.fork_rng([]), joined(recipe, folder) as (world, tokens):
            learn(recipe, folder, tokens, world, until)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def joined(recipe: Recipe, folder: Path) -> Iterator[tuple[World, Tokens]]:
    """All ranks, once they have come, and the tokens of the corpus."""
    if os.environ.get("RANK", "0") == "0":
        data.write_corpus(recipe, folder)
    while not (folder / "corpus").is_dir():  # before the time of the process group runs
        time.sleep(POLL)
    with (
        process_group() as world,
        data.staged(folder / "corpus", recipe.stage, lambda: world.gather(None)) as corpus,
    ):
        yield world, data.read(corpus)


def parsed(words: Sequence[str]) -> tuple[Recipe, Path, float]:
    """The recipe, the folder and the last step that a command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where checkpoints and states are kept")
    parser.add_argument(
        "--until", type=float, default=math.inf, help="the last step that is needed"
    )
    for name, field in Recipe.model_fields.items():
        parser.add_argument(
            f"--{name}", type=yaml.safe_load, default=field.default, help=field.description
        )
    given = vars(parser.parse_args(words))
    folder = given.pop("folder")
    until = given.pop("until")
    return Recipe.model_validate(given), folder, until


if __name__ == "__main__":
    train(*parsed(sys.argv[1:]))
