"""The folder of a suite, one sub-folder per revision; a revision is complete or absent.

::

    corpus/         tokens.npy (or ids.npy, lengths.npy, labels.npy, classes.json), the tokenizer
    step0/          config.json, model.safetensors, the tokenizer, training.json
    step1/ ...
    recipe.json     what a process group was asked to train
    resume/         step512.pt: weights, optimizer and step after the newest revision
    progress.jsonl  loss and speed by step

Every part is written under a temporary name and then renamed, and depends on the recipe alone. A
process that is killed at any time, or that runs twice at once, therefore leaves the same files as
one undisturbed run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from daskmetrics.checkpoints.content import fingerprint
from daskmetrics.config import Recipe
from daskmetrics.core import files as files
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Key, content_key, log_steps, step_of
from daskmetrics.training import _texts as texts
from daskmetrics.training import _tokenizer as tokenizer
from daskmetrics.training import data as data
from daskmetrics.training.data import effective

VERSION = 2  # of the code: raise it when equal recipes no longer give equal weights
SUMMARY = "training.json"  # what train_to returned; its presence marks a revision as complete


def revisions(recipe: Recipe) -> tuple[str, ...]:
    """Names of the checkpoints that training saves, oldest first; the last step is always one.

    Examples
    --------
    >>> revisions(Recipe(steps=10))
    ('step0', 'step1', 'step2', 'step4', 'step8', 'step10')
    >>> revisions(Recipe(steps=10, checkpoints=4))
    ('step0', 'step4', 'step8', 'step10')
    """
    steps: Iterable[int]
    if recipe.checkpoints == "log":
        steps = log_steps(recipe.steps)
    elif isinstance(recipe.checkpoints, int):
        steps = range(0, recipe.steps + 1, recipe.checkpoints)
    else:
        steps = recipe.checkpoints
    return tuple(f"step{step}" for step in sorted({*steps, recipe.steps}))


def recipe_key(recipe: Recipe) -> Key:
    """The key of a suite: equal keys give equal weights, wherever the corpus and the initial model
    are stored.

    Raises
    ------
    ConfigError
        If the corpus, the tokenizer or the model in ``init_from`` cannot be read.
    """
    initial_model = None
    if recipe.init_from:
        folder = Path(recipe.init_from).expanduser()
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"init_from: '{recipe.init_from}' is not a model folder: it holds no config.json."
            )
        initial_model = fingerprint(folder)
    keys = recipe.model_dump(mode="json", exclude={"corpus", "tokenizer", "init_from", "epochs"})
    return content_key(
        "suite",
        VERSION,
        # what earlier recipes could set is part of the key, so that their suites keep theirs
        {**keys, "clip": 1.0, "compile": False, "schedule": "cosine", "warmup": 1 / 16},
        texts.key(recipe),
        initial_model,
        tokenizer.key(recipe.tokenizer) if recipe.tokenizer else None,
    )


def with_steps(recipe: Recipe, cache: Path) -> Recipe:
    """The recipe with the steps of its epochs; the corpus is tokenized to count it, once for each
    cache folder.

    An epoch is as many sequences as the corpus has: rows, or its tokens divided by the context.
    """
    if recipe.epochs is None:
        return recipe
    count_file = _epoch_file(recipe, cache)
    if not count_file.is_file():
        count_file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=count_file.parent) as folder:
            write_corpus(_of_corpus(recipe), Path(folder))
            files.atomic_write(count_file, str(data.counted(recipe, Path(folder))))
    sequences = int(count_file.read_text(encoding="utf-8"))
    steps = max(1, math.ceil(recipe.epochs * sequences / effective(recipe)))
    return Recipe.model_validate({**recipe.model_dump(exclude={"epochs"}), "steps": steps})


CORPUS_KEYS = {
    "objective",
    "corpus",
    "text",
    "label",
    "context",
    "vocabulary",
    "tokenizer",
    "init_from",
}


def _of_corpus(recipe: Recipe) -> Recipe:
    """The recipe reduced to what decides the corpus and its tokens."""
    return Recipe.model_validate(recipe.model_dump(include=CORPUS_KEYS))


def _epoch_file(recipe: Recipe, cache: Path) -> Path:
    return cache / "epochs" / recipe_key(_of_corpus(recipe))


def epoch(recipe: Recipe, folder: Path, cache: Path) -> int | None:
    """The sequences of an epoch, if the corpus was tokenized into the suite's folder, or counted
    before.
    """
    count_file = _epoch_file(recipe, cache)
    sequences = data.counted(recipe, folder)
    if sequences:
        return sequences
    if count_file.is_file():
        return int(count_file.read_text(encoding="utf-8"))
    return None


def is_complete(folder: Path, revision: str) -> bool:
    """Whether the suite's folder holds the complete revision; its files are not read."""
    return (folder / revision / SUMMARY).is_file()


def summary(folder: Path, revision: str) -> dict[str, Any]:
    """The result of training a revision: ``loss``, ``tokens`` and ``seconds``, as `train_to`
    returns them.
    """
    return dict(json.loads((folder / revision / SUMMARY).read_text(encoding="utf-8")))


def write_corpus(recipe: Recipe, folder: Path) -> None:
    """Tokenize the recipe's corpus into the suite's folder, unless it is there."""
    corpus = folder / "corpus"
    if not corpus.is_dir():
        with files.atomic_folder(corpus) as partial:
            data.write(recipe, partial)
    data.read(recipe, corpus)


def newest_step(folder: Path) -> int:
    """The step of a suite's newest resume state; 0 if there is none."""
    states = resume_states(folder)
    if states:
        return state_step(states[0])
    return 0


def resume_states(folder: Path) -> list[Path]:
    """The resume states in a suite's folder, newest first."""
    states = [
        path for path in (folder / "resume").glob("step*.pt") if step_of(path.stem) is not None
    ]
    return sorted(states, key=state_step, reverse=True)


def state_step(state: Path) -> int:
    """The step after which a resume state was saved."""
    return step_of(state.stem) or 0
