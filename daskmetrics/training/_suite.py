"""The folder of a suite, one sub-folder per revision; a revision is complete or absent.

::

    corpus/         tokens.npy (or ids.npy, lengths.npy, labels.npy, classes.json), the tokenizer
    step0/          config.json, model.safetensors, the tokenizer, training.json
    step1/ ...
    resume/         step512.pt: weights, optimizer and step after the newest revision
    progress.jsonl  loss and speed by step

Every part is written under a temporary name and then renamed, and depends on the recipe alone. A process that is
killed at any time, or that runs twice at once, therefore leaves the same files as one undisturbed run.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from daskmetrics.config import DDP, Recipe
from daskmetrics.config._content import fingerprint
from daskmetrics.core import _files as files
from daskmetrics.core.errors import ConfigError, UndefinedError, unknown
from daskmetrics.core.names import Key, content_key, every, log_steps, step_of
from daskmetrics.training import _data as data
from daskmetrics.training import _texts as texts
from daskmetrics.training import _tokenizer as tokenizer
from daskmetrics.training._data import effective, examples, passes
from daskmetrics.training._stage import staged

if TYPE_CHECKING:
    from daskmetrics.training._distributed import ProgressReporter, World
    from daskmetrics.training._learning import TrainingState

VERSION = 2  # of the code: raise it when equal recipes no longer give equal weights
MOST_POINTS = 500  # steps whose mean loss is reported
_SUMMARY = "training.json"  # what train_to returned; its presence marks a revision as complete


def revisions(recipe: Recipe) -> tuple[str, ...]:
    """Names of the checkpoints that training saves, oldest first; the last step is always one.

    Examples
    --------
    >>> revisions(Recipe(steps=10))
    ('step0', 'step1', 'step2', 'step4', 'step8', 'step10')
    >>> revisions(Recipe(steps=10, checkpoints=4))
    ('step0', 'step4', 'step8', 'step10')
    """
    saved, last = recipe.checkpoints, recipe.steps
    steps = log_steps(last) if saved == "log" else every(saved, last) if isinstance(saved, int) else saved
    return tuple(f"step{step}" for step in sorted({*steps, last}))


def recipe_key(recipe: Recipe) -> Key:
    """The key of a suite: equal keys give equal weights, wherever the corpus and the initial model are stored.

    Raises
    ------
    ConfigError
        If the corpus, the tokenizer or the model in ``init_from`` cannot be read.
    """
    paths = {"corpus", "tokenizer", "init_from", "size", "epochs"}
    if recipe.init_from and not (Path(recipe.init_from).expanduser() / "config.json").is_file():
        raise ConfigError(f"init_from: '{recipe.init_from}' is not a model folder: it holds no config.json.")
    start = fingerprint(Path(recipe.init_from).expanduser()) if recipe.init_from else None
    words = tokenizer.key(recipe.tokenizer) if recipe.tokenizer else None
    return content_key("suite", VERSION, recipe.model_dump(mode="json", exclude=paths), texts.key(recipe), start, words)


def with_steps(recipe: Recipe, cache: Path) -> Recipe:
    """The recipe with the steps of its epochs; the corpus is tokenized to count it, once for each cache folder.

    An epoch is as many sequences as the corpus has: rows, or its tokens divided by the context.
    """
    if recipe.epochs is None:
        return recipe
    place = _epoch_file(recipe, cache)
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place.parent) as folder:
            write_corpus(_alike(recipe), Path(folder))
            files.atomic_write(place, str(data.counted(recipe, Path(folder))))
    sequences = int(place.read_text(encoding="utf-8"))
    steps = math.ceil(recipe.epochs * sequences / effective(recipe))
    return Recipe.model_validate({**recipe.model_dump(exclude={"epochs"}), "steps": max(1, steps)})


def _alike(recipe: Recipe) -> Recipe:
    """The recipe reduced to what decides the corpus and its tokens."""
    names = ("objective", "corpus", "text", "label", "context", "vocabulary", "tokenizer", "init_from")
    return Recipe.model_validate({name: getattr(recipe, name) for name in names})


def _epoch_file(recipe: Recipe, cache: Path) -> Path:
    return cache / "epochs" / recipe_key(_alike(recipe))


def epoch(recipe: Recipe, folder: Path, cache: Path) -> int | None:
    """The sequences of an epoch, if the corpus was tokenized into the suite's folder, or counted before."""
    place = _epoch_file(recipe, cache)
    return data.counted(recipe, folder) or (int(place.read_text(encoding="utf-8")) if place.is_file() else None)


def is_complete(folder: Path, revision: str) -> bool:
    """Whether the suite's folder holds the complete revision; its files are not read."""
    return (folder / revision / _SUMMARY).is_file()


def summary(folder: Path, revision: str) -> dict[str, Any]:
    """The result of training a revision: ``loss``, ``tokens`` and ``seconds``, as `train_to` returns them."""
    return dict(json.loads((folder / revision / _SUMMARY).read_text(encoding="utf-8")))


def train_to(recipe: Recipe, folder: Path, revision: str, reporter: ProgressReporter | None = None) -> dict[str, float]:
    """Train up to a revision in this process and write it, starting from the newest resume state before it.

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
        ``loss`` (nats per token or label, on examples that are the same for all revisions), ``tokens`` (upper bound
        of the tokens seen since step 0) and ``seconds`` (wall time since the previous revision, or the start).

    Raises
    ------
    ConfigError
        If the recipe has no such revision, or its corpus cannot be read or is too short.
    """
    if revision not in revisions(recipe):
        raise unknown("revision", revision, revisions(recipe))
    if not is_complete(folder, revision):
        write_corpus(recipe, folder)
        train(recipe, folder, (revision,), DDP(loaders=0), reporter=reporter)
    return summary(folder, revision)


def write_corpus(recipe: Recipe, folder: Path) -> None:
    """Tokenize the recipe's corpus into the suite's folder, unless it is there."""
    corpus = folder / "corpus"
    if not corpus.is_dir():
        with files.atomic_folder(corpus) as part:
            data.write(recipe, part)
    data.read(recipe, corpus)


def train(
    recipe: Recipe,
    folder: Path,
    requested: Sequence[str],
    ddp: DDP,
    world: World | None = None,
    reporter: ProgressReporter | None = None,
) -> None:
    """Train those of the requested revisions, oldest first, that are missing, as one rank of a process group.

    The corpus has been written. By default there is a single process, and progress is not reported.
    """
    import torch

    from daskmetrics.training._distributed import SINGLE, NullReporter, threads

    world = world or SINGLE
    missing = world.broadcast([revision for revision in requested if not is_complete(folder, revision)])
    if world.size > effective(recipe):
        raise ConfigError(f"{world.size} ranks cannot share {effective(recipe)} sequences: raise 'batch'.")
    if world.is_leader:
        files.remove_partial(folder)
        files.remove_partial(folder / "resume")
    with (
        threads(recipe.threads),
        torch.random.fork_rng(devices=[]),
        staged(folder / "corpus", ddp.stage, world.wait) as corpus,
    ):
        steps = [step_of(name) or 0 for name in missing]
        source = data.read(recipe, corpus)
        loop = _TrainingLoop(recipe, folder, ddp, world, reporter or NullReporter(), steps, source)
        for revision in missing:
            loop.train_to(revision)


@dataclass
class _TrainingLoop:
    """Training of the missing revisions, one after the other."""

    recipe: Recipe
    folder: Path
    ddp: DDP
    world: World
    reporter: ProgressReporter
    steps: list[int]
    examples: data.Windows | data.PaddedTexts

    def __post_init__(self) -> None:
        from daskmetrics.training import _learning as learning
        from daskmetrics.training._loaders import Loader

        corpus, first = self.folder / "corpus", self.steps[0] if self.steps else 0
        # the newest readable state; an older one leads to the same weights
        states = (path for path in _states(self.folder / "resume") if (step_of(path.stem) or 0) <= first)
        newest = next((path for path in states if learning.is_readable(path)), None) if self.world.is_leader else None
        self.learner = learning.new(self.recipe, corpus, self.world, self.world.broadcast(newest))
        self.loader = Loader(self.recipe, self.examples, self.world, self.ddp.loaders)
        self.stream = self.loader.steps(self.learner.step + 1, self.steps[-1] if self.steps else 0)
        self.since = time.perf_counter()

    def train_to(self, revision: str) -> None:
        """Take the steps up to a revision, and write it."""
        from daskmetrics.training import _learning as learning

        last, stride = step_of(revision) or 0, max(1, self.recipe.steps // MOST_POINTS)
        for step, batches in islice(self.stream, max(0, last - self.learner.step)):
            self.reporter.enter(step, 0)
            own = learning.take_step(self.learner, self.recipe, batches, self.reporter)
            self.loader.computed()
            if step % stride == 0 or step == last:
                loss = self.world.mean(own)
                if loss != loss or loss == float("inf"):
                    problem = f"The loss is {loss} at step {step}"
                    raise UndefinedError(f"{problem}: lower learning_rate, or use another precision.")
                self.reporter.step_done(step, loss)
            if step % self.ddp.save_every == 0 and step < last and self.world.is_leader:
                save_state(self.learner, self.folder / "resume")
        if self.world.is_leader:
            self._write(revision)

    def _write(self, revision: str) -> None:
        from daskmetrics.training import _learning as learning
        from daskmetrics.training import _networks as networks

        which = examples(self.recipe, len(self.examples), 0)
        batches = [self.examples.take(which[part]) for part in passes(len(which), self.recipe.batch)]
        result = {
            "loss": round(learning.evaluate(self.learner, self.recipe, batches), 6),
            "tokens": float(self.learner.step * effective(self.recipe) * self.recipe.context),
            "seconds": round(time.perf_counter() - self.since, 3),
        }
        save_state(self.learner, self.folder / "resume")
        with files.atomic_folder(self.folder / revision) as part:
            networks.export(self.learner.model, part)
            tokenizer.copy(self.folder / "corpus", part)
            (part / _SUMMARY).write_text(json.dumps(result) + "\n", encoding="utf-8")
        self.since = time.perf_counter()
        self.reporter.report(revision=revision, **result)


def newest_step(folder: Path) -> int:
    """The step of a suite's newest resume state; 0 if there is none."""
    return next((step_of(path.stem) or 0 for path in _states(folder / "resume")), 0)


def save_state(learner: TrainingState, states: Path) -> None:
    """Save the resume state, then remove older ones."""
    from daskmetrics.training import _learning as learning

    states.mkdir(parents=True, exist_ok=True)
    learning.save(learner, states / f"step{learner.step}.pt")
    for path in _states(states)[1:]:
        path.unlink(missing_ok=True)


def _states(states: Path) -> list[Path]:
    """The resume states, newest first."""
    saved = [path for path in states.glob("step*.pt") if step_of(path.stem) is not None]
    return sorted(saved, key=lambda path: -(step_of(path.stem) or 0))
