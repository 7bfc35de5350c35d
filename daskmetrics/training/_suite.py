"""The folder of a suite, one sub-folder per revision; a revision is there in full or not at all.

::

    corpus/         tokens.npy (or ids.npy, lengths.npy, labels.npy, classes.json), the tokenizer
    step0/          config.json, model.safetensors, the tokenizer, training.json
    step1/ ...
    resume/         step512.pt: weights, optimizer and step after the newest revision
    progress.jsonl  loss and speed by step

Every part is written under another name and then renamed, and every part is a function of the recipe alone: a process
that is killed anywhere, or runs twice at once, leaves nothing that differs from one undisturbed run.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.config import DDP, Recipe
from daskmetrics.config._checkpoints import fingerprint
from daskmetrics.core import _files as files
from daskmetrics.core.errors import ConfigError, UndefinedError, unknown
from daskmetrics.core.names import Key, content_key, every, log_steps, step_of
from daskmetrics.training import _data as data
from daskmetrics.training import _texts as texts
from daskmetrics.training import _tokenizer as tokenizer
from daskmetrics.training._batches import effective, examples, passes

if TYPE_CHECKING:
    from daskmetrics.training._distributed import Tell, World
    from daskmetrics.training._learning import Learner

VERSION = 2  # of the code: raise it when equal recipes no longer give equal weights
MOST_POINTS = 500  # steps whose mean loss is told
_SUMMARY = "training.json"  # what train_to returned; its presence also marks a folder as ours


def revisions(recipe: Recipe) -> tuple[str, ...]:
    """Names of the checkpoints that training saves, oldest first; the last step is always one.

    Examples
    --------
    >>> revisions(Recipe(steps=10))
    ('step0', 'step1', 'step2', 'step4', 'step8', 'step10')
    >>> revisions(Recipe(steps=10, checkpoints=4))
    ('step0', 'step4', 'step8', 'step10')
    """
    wanted, last = recipe.checkpoints, recipe.steps
    steps = log_steps(last) if wanted == "log" else every(wanted, last) if isinstance(wanted, int) else wanted
    return tuple(f"step{step}" for step in sorted({*steps, last}))


def recipe_key(recipe: Recipe) -> Key:
    """The key of a suite: equal keys give equal weights, wherever its corpus and its beginnings lie.

    Raises
    ------
    ConfigError
        If the corpus, the tokenizer or the model to go on from cannot be read.
    """
    places = {"corpus", "tokenizer", "init_from", "size"}
    start = fingerprint(_folder(recipe.init_from)) if recipe.init_from else None
    words = tokenizer.key(recipe.tokenizer) if recipe.tokenizer else None
    return content_key(
        "suite", VERSION, recipe.model_dump(mode="json", exclude=places), texts.key(recipe), start, words
    )


def _folder(place: str) -> Path:
    path = Path(place).expanduser()
    if not (path / "config.json").is_file():
        raise ConfigError(f"init_from: '{place}' is no model folder: it holds no config.json.")
    return path


def is_complete(folder: Path, revision: str) -> bool:
    """Whether the revision lies in the suite's folder; files are looked at, not read."""
    return (folder / revision / _SUMMARY).is_file()


def summary(folder: Path, revision: str) -> dict[str, Any]:
    """What training told of a revision: ``loss``, ``tokens`` and ``seconds``, as `train_to` returns them."""
    return dict(json.loads((folder / revision / _SUMMARY).read_text(encoding="utf-8")))


def train_to(recipe: Recipe, folder: Path, revision: str) -> dict[str, float]:
    """Train up to a revision in this process and write it, going on from the newest state that lies not beyond it.

    Safe to repeat, to kill and to run twice at once; the weights do not depend on where training was interrupted.

    Parameters
    ----------
    recipe : Recipe
    folder : Path
        The suite's own folder, one per `recipe_key`; made if it is missing.
    revision : str
        One of ``revisions(recipe)``.

    Returns
    -------
    dict
        ``loss`` (nats per token or label, on examples that are the same for all revisions), ``tokens`` (at most so
        many seen since step 0) and ``seconds`` (wall time since the revision before, or the start).

    Raises
    ------
    ConfigError
        If the recipe has no such revision, or its corpus cannot be read or is too short.
    """
    if revision not in revisions(recipe):
        raise unknown("revision", revision, revisions(recipe))
    if not is_complete(folder, revision):
        write_corpus(recipe, folder)
        train(recipe, folder, (revision,), DDP(loaders=0))
    return summary(folder, revision)


def write_corpus(recipe: Recipe, folder: Path) -> None:
    """Tokenize the recipe's corpus into the suite's folder, unless that is done."""
    corpus = folder / "corpus"
    if not corpus.is_dir():
        with files.appears(corpus) as part:
            data.write(recipe, part)
    data.read(recipe, corpus)


def train(
    recipe: Recipe,
    folder: Path,
    wanted: Sequence[str],
    gang: DDP,
    world: World | None = None,
    tell: Tell | None = None,
) -> None:
    """Train the wanted revisions that are lacking, as one of the processes of a world.

    Parameters
    ----------
    recipe : Recipe
    folder : Path
        With its corpus written.
    wanted : sequence of str
        Revisions, oldest first.
    gang : DDP
        How often to save, and how many loaders.
    world : World, optional
        By default this process is alone.
    tell : Tell, optional
        By default nobody is told.

    Raises
    ------
    ConfigError
        If there are more ranks than sequences in a step.
    UndefinedError
        If the loss is no longer a number.
    """
    import torch

    from daskmetrics.training._distributed import ALONE, Silent, threads

    world, tell = world or ALONE, tell or Silent()
    lacking = world.told([revision for revision in wanted if not is_complete(folder, revision)])
    if world.size > effective(recipe):
        raise ConfigError(f"{world.size} ranks cannot share {effective(recipe)} sequences: raise 'batch'.")
    if world.leads:
        files.sweep(folder)
        files.sweep(folder / "resume")
    with threads(recipe.threads), torch.random.fork_rng(devices=[]):
        training = _Training(recipe, folder, gang, world, tell, _steps(lacking))
        for revision in lacking:
            training.go_to(revision)


def _steps(names: Sequence[str]) -> list[int]:
    return [step_of(name) or 0 for name in names]


@dataclass
class _Training:
    """A learner on its way through the lacking revisions."""

    recipe: Recipe
    folder: Path
    gang: DDP
    world: World
    tell: Tell
    steps: list[int]

    def __post_init__(self) -> None:
        from daskmetrics.training._loaders import Loader

        self.examples = data.read(self.recipe, self.folder / "corpus")
        self.learner = _resumed(self.recipe, self.folder, self.world, self.steps[0] if self.steps else 0)
        self.loader = Loader(self.recipe, self.examples, self.world, self.gang.loaders)
        self.stream = self.loader.steps(self.learner.step + 1, self.steps[-1] if self.steps else 0)
        self.since = time.perf_counter()

    def go_to(self, revision: str) -> None:
        """Take the steps that lead to a revision, and write it."""
        last = step_of(revision) or 0
        if self.learner.step < last:
            self._advance(last)
        if self.world.leads:
            self._write(revision)

    def _advance(self, last: int) -> None:
        from daskmetrics.training import _learning as learning

        wait = max(1, self.recipe.steps // MOST_POINTS)
        for step, batches in islice(self.stream, last - self.learner.step):
            self.tell.at(step, 0)
            loss = learning.take_step(self.learner, self.recipe, batches, self.tell)
            self.loader.computed()
            if step % wait == 0 or step == last:
                self._took(step, self.world.mean(loss))
            if step % self.gang.save_every == 0 and step < last and self.world.leads:
                keep(self.learner, self.folder / "resume")

    def _took(self, step: int, loss: float) -> None:
        if loss != loss or loss == float("inf"):
            raise UndefinedError(f"The loss is {loss} at step {step}: lower learning_rate, or take another precision.")
        self.tell.took(step, loss)

    def _write(self, revision: str) -> None:
        from daskmetrics.training import _learning as learning
        from daskmetrics.training import _networks as networks

        which = examples(self.recipe, len(self.examples), 0)
        batches = [self.examples.take(which[part]) for part in passes(len(which), self.recipe.batch)]
        told = {
            "loss": round(learning.evaluate(self.learner, self.recipe, batches), 6),
            "tokens": float(self.learner.step * effective(self.recipe) * self.recipe.context),
            "seconds": round(time.perf_counter() - self.since, 3),
        }
        keep(self.learner, self.folder / "resume")
        with files.appears(self.folder / revision) as part:
            networks.export(self.learner.model, part)
            for name in tokenizer.FILES:
                if (self.folder / "corpus" / name).is_file():
                    shutil.copyfile(self.folder / "corpus" / name, part / name)
            (part / _SUMMARY).write_text(json.dumps(told) + "\n", encoding="utf-8")
        self.since = time.perf_counter()
        self.tell.say(revision=revision, **told)


def _resumed(recipe: Recipe, folder: Path, world: World, most: int) -> Learner:
    """The learner after the newest readable state up to a step, or a new one."""
    from daskmetrics.training import _learning as learning

    # an older state leads to the same weights
    states = (path for path in _states(folder / "resume") if (step_of(path.stem) or 0) <= most)
    newest = next((path for path in states if learning.is_whole(path)), None) if world.leads else None
    return learning.new(recipe, folder / "corpus", world, world.told(newest))


def newest(folder: Path) -> int:
    """The step of a suite's newest resume state; 0 if it has none."""
    return next((step_of(path.stem) or 0 for path in _states(folder / "resume")), 0)


def keep(learner: Learner, states: Path) -> None:
    """Save the state, then remove all but the newest."""
    from daskmetrics.training import _learning as learning

    states.mkdir(parents=True, exist_ok=True)
    learning.save(learner, states / f"step{learner.step}.pt")
    for path in _states(states)[1:]:
        path.unlink(missing_ok=True)


def _states(states: Path) -> list[Path]:
    """The saved states, newest first."""
    found = [path for path in states.glob("step*.pt") if step_of(path.stem) is not None]
    return sorted(found, key=lambda path: -(step_of(path.stem) or 0))
