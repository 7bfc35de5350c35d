"""The folder of a suite, one sub-folder per revision; a revision is complete or absent. And what a
recipe needs: parameters, disk space.

::

    corpus/         tokens.npy, the tokenizer
    step0/          config.json, model.safetensors, the tokenizer, training.json
    step1/ ...
    recipe.json     what a process group was asked to train
    resume/         step512.pt: weights, optimizer and step after the newest revision
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
from daskmetrics.core.names import Key, content_key, log_steps, step_of
from daskmetrics.training import data as data

VERSION = 1  # of the code: raise it when equal recipes no longer give equal weights
SUMMARY = "training.json"  # what train_to returned; its presence marks a revision as complete
_SAVED = 12  # bytes per parameter in a resume state


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
    """The key of a suite: equal keys give equal weights, wherever the corpus is stored.

    Raises
    ------
    ConfigError
        If the corpus cannot be read.
    """
    keys = recipe.model_dump(mode="json", exclude={"corpus", "epochs"})
    return content_key("suite", VERSION, keys, data.key(recipe))


def is_complete(folder: Path, revision: str) -> bool:
    """Whether the suite's folder holds the complete revision; its files are not read."""
    return (folder / revision / SUMMARY).is_file()


def summary(folder: Path, revision: str) -> dict[str, Any]:
    """The result of training a revision: ``loss``, ``tokens`` and ``seconds``, as `train_to`
    returns them.
    """
    return dict(json.loads((folder / revision / SUMMARY).read_text(encoding="utf-8")))


def resume_states(folder: Path, until: float = math.inf) -> list[Path]:
    """The resume states in a suite's folder that were saved until a step, newest first."""
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
    """Bytes of all checkpoints and of two resume states: one exists while the next one is
    written.
    """
    return parameters(recipe) * (4.0 * len(revisions(recipe)) + 2 * _SAVED)
