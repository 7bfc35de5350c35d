"""The folder of a suite, one sub-folder per complete revision.

::

    corpus/         tokens.npy, the tokenizer
    step0/          config.json, model.safetensors, the tokenizer, training.json
    step1/ ...
    resume/         step512.pt: weights, optimizer, step and random state of the newest step saved
    progress.jsonl  loss by step

Every part is written under a temporary name and then renamed, and depends on the recipe alone. A
process that is killed at any time, or that runs twice at once, therefore leaves the same files as
one undisturbed run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from daskmetrics.config import Recipe
from daskmetrics.core.keys import Key, content_key
from daskmetrics.domain.names import log_steps, step_of
from daskmetrics.training import data as data

VERSION = 1  # of the code: raise it when equal recipes no longer give equal weights
SUMMARY = "training.json"  # of a revision: loss, tokens, seconds; it marks it as complete
PROGRESS = "progress.jsonl"  # the loss by step; a step that was repeated has two lines
_SAVED = 12  # bytes per parameter in a resume state
# arguments that do not change the weights: the corpus counts by its content, epochs are steps
WITHOUT_EFFECT = {"corpus", "epochs", "save_every", "loaders", "stage"}


def revisions(recipe: Recipe) -> tuple[str, ...]:
    """Names of the checkpoints that training saves, oldest first.

    The last step is always one.

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
    """The key of a suite; equal keys give equal weights.

    Raises
    ------
    ConfigError
        If the corpus cannot be read.
    """
    keys = recipe.model_dump(mode="json", exclude=WITHOUT_EFFECT)
    return content_key("suite", VERSION, keys, data.key(recipe))


def steps_to(recipe: Recipe, revision: str) -> int:
    """The steps from the revision before to this one."""
    step = step_of(revision) or 0
    saved = [step_of(other) or 0 for other in revisions(recipe)]
    return step - max((other for other in saved if other < step), default=0)


def is_complete(folder: Path, revision: str) -> bool:
    """Whether the folder holds the revision; files are not read."""
    return (folder / revision / SUMMARY).is_file()


def missing_revisions(recipe: Recipe, folder: Path, until: float = math.inf) -> tuple[str, ...]:
    """The revisions until a step that the suite's folder does not hold yet, oldest first."""
    wanted = [name for name in revisions(recipe) if (step_of(name) or 0) <= until]
    return tuple(name for name in wanted if not is_complete(folder, name))


def summary(folder: Path, revision: str) -> dict[str, Any]:
    """The result of training a revision.

    ``loss`` in nats per token, on examples that are the same for all revisions; ``tokens`` seen
    since step 0, at most; ``seconds`` since the previous revision, or the start.
    """
    return dict(json.loads((folder / revision / SUMMARY).read_text(encoding="utf-8")))


def trained_at(folder: Path, revision: str) -> float:
    """When a complete revision was written, in seconds since 1970."""
    return (folder / revision / SUMMARY).stat().st_mtime


def resume_states(folder: Path, until: float = math.inf) -> list[Path]:
    """The states that were saved until a step, newest first."""
    states = {step_of(path.stem) or 0: path for path in (folder / "resume").glob("step*.pt")}
    return [states[step] for step in sorted(states, reverse=True) if step <= until]


def parameters(recipe: Recipe) -> int:
    """Parameters of the recipe's GPT-NeoX, whose embeddings are untied.

    >>> parameters(Recipe(width=512, depth=6, heads=8, vocabulary=50304))  # Pythia's 70m
    70426624
    """
    width = recipe.width
    block = 12 * width**2 + 13 * width
    return 2 * recipe.vocabulary * width + recipe.depth * block + 2 * width


def disk(recipe: Recipe) -> float:
    """Bytes of all checkpoints and of two resume states.

    One of these exists while the next one is written.
    """
    return parameters(recipe) * (4.0 * len(revisions(recipe)) + 2 * _SAVED)
