"""The folder of a suite, one sub-folder per revision; a revision is there in full or not at all.

::

    corpus/      tokens.npy, tokenizer.json, tokenizer_config.json
    step0/       config.json, model.safetensors, the tokenizer, training.json
    step1/ ...
    resume/      step512.pt: weights, optimizer and step after the newest revision

Every part is written under another name and then renamed, and every part is a function of the recipe alone: a process
that is killed anywhere, or runs twice at once, leaves nothing that differs from one undisturbed run.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics import corpus
from daskmetrics.arms import Key, content_key, log_steps, step_of
from daskmetrics.config import Recipe
from daskmetrics.errors import ConfigError, unknown

if TYPE_CHECKING:
    from daskmetrics.training.learning import Learner

VERSION = 1  # of the code: raise it when equal recipes no longer give equal weights
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_SUMMARY = "training.json"  # what train_to returned; its presence also marks a folder as ours


def revisions(recipe: Recipe) -> tuple[str, ...]:
    """Names of the checkpoints that training saves, oldest first: log-spaced steps and the last one.

    Examples
    --------
    >>> revisions(Recipe(steps=10))
    ('step0', 'step1', 'step2', 'step4', 'step8', 'step10')
    """
    return tuple(f"step{step}" for step in sorted({*log_steps(recipe.steps), recipe.steps}))


def recipe_key(recipe: Recipe) -> Key:
    """The key of a suite: equal keys give equal weights, wherever the corpus file lies.

    Raises
    ------
    ConfigError
        If the corpus cannot be read.
    """
    texts = corpus.digest(corpus.training_texts(recipe.corpus))
    return content_key("suite", VERSION, recipe.model_dump(mode="json", exclude={"corpus"}), texts)


def is_complete(folder: Path, revision: str) -> bool:
    """Whether the revision lies in the suite's folder; files are looked at, not read."""
    return (folder / revision / _SUMMARY).is_file()


def train_to(recipe: Recipe, folder: Path, revision: str) -> dict[str, float]:
    """Train up to a revision and write it, going on from the newest state that does not lie beyond it.

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
        ``loss`` (nats per token, on one batch that is the same for all revisions), ``tokens`` (seen since step 0)
        and ``seconds`` (wall time of the call that wrote the revision).

    Raises
    ------
    ConfigError
        If the recipe has no such revision, or its corpus cannot be read or is too short.
    """
    step = _step(recipe, revision)
    if is_complete(folder, revision):
        return _summary(folder / revision)

    from daskmetrics.training import learning

    started = time.perf_counter()
    tokens = _tokens(recipe, folder)
    with learning.one_thread():
        learner = _resume(recipe, folder / "resume", step)
        learning.advance(learner, recipe, tokens, step)
        loss = learning.loss(learner, recipe, tokens)
    _keep(learner, folder / "resume")
    summary = {
        "loss": round(loss, 6),
        "tokens": float(step * recipe.batch * recipe.context),
        "seconds": round(time.perf_counter() - started, 3),
    }
    _write(learner, folder, revision, summary)
    return _summary(folder / revision)


def _step(recipe: Recipe, revision: str) -> int:
    step = step_of(revision)
    if step is None or revision not in revisions(recipe):
        raise unknown("revision", revision, revisions(recipe))
    return step


def _tokens(recipe: Recipe, folder: Path) -> NDArray[np.int32]:
    """The packed corpus, shape (tokens,); tokenised once per suite, then mapped from disk."""
    path = folder / "corpus" / "tokens.npy"
    if not path.is_file():
        _tokenize(recipe, path.parent)
    tokens: NDArray[np.int32] = np.load(path, mmap_mode="r")
    if len(tokens) <= recipe.context:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' has {len(tokens)} tokens, but a context of {recipe.context} needs more. "
            "Use a longer text or a smaller context."
        )
    return tokens


def _tokenize(recipe: Recipe, folder: Path) -> None:
    from daskmetrics.training import tokenizer

    texts = corpus.training_texts(recipe.corpus)
    with _appears(folder) as part:
        bpe = tokenizer.fit(texts, recipe.vocabulary)
        tokenizer.save(bpe, part, recipe.context)
        np.save(part / "tokens.npy", tokenizer.pack(bpe, texts))


def _resume(recipe: Recipe, states: Path, step: int) -> Learner:
    """The learner after the newest readable state up to `step`, or a new one."""
    from daskmetrics.training import learning

    for path in _states(states):
        if (step_of(path.stem) or 0) <= step:
            # a state may vanish under us (its successor was written elsewhere) or be torn by a crash of the machine;
            # an older one leads to the same weights
            with suppress(OSError, EOFError, RuntimeError, KeyError, ValueError):
                return learning.load(path, recipe)
    return learning.new(recipe)


def _keep(learner: Learner, states: Path) -> None:
    """Save the state, then remove all but the newest."""
    from daskmetrics.training import learning

    states.mkdir(parents=True, exist_ok=True)
    learning.save(learner, states / f"step{learner.step}.pt")
    for path in _states(states)[1:]:
        path.unlink(missing_ok=True)


def _states(states: Path) -> list[Path]:
    """The saved states, newest first."""
    found = [path for path in states.glob("step*.pt") if step_of(path.stem) is not None]
    return sorted(found, key=lambda path: -(step_of(path.stem) or 0))


def _write(learner: Learner, folder: Path, revision: str, summary: dict[str, float]) -> None:
    from daskmetrics.training import learning

    with _appears(folder / revision) as part:
        learning.export(learner, part)
        for name in _TOKENIZER:
            shutil.copy(folder / "corpus" / name, part / name)
        (part / _SUMMARY).write_text(json.dumps(summary) + "\n", encoding="utf-8")


@contextmanager
def _appears(folder: Path) -> Iterator[Path]:
    """A folder to write into that takes its name only when the block is done; the first to finish wins."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield part
        with suppress(OSError):  # it is there already: another process wrote the same content
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / _SUMMARY).read_text(encoding="utf-8")))
