"""A suite's training examples as arrays on disk, memory-mapped by every rank, and the batch of
every step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import seed_of
from daskmetrics.training import _texts as texts
from daskmetrics.training import _tokenizer as tokenizer

TOLERATED = 0.05  # share of a step's time that reading may take without loaders
Batch = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Windows:
    """Windows of consecutive tokens."""

    tokens: NDArray[np.int32]  # (tokens,)
    context: int

    def __len__(self) -> int:
        return len(self.tokens) - self.context

    def take(self, which: NDArray[np.int64]) -> Batch:
        """Windows of ``context + 1`` tokens: all but the last are inputs, all but the first are
        targets.
        """
        return {"ids": self.tokens[which[:, None] + np.arange(self.context + 1)].astype(np.int64)}


@dataclass(frozen=True)
class PaddedTexts:
    """Labelled texts, truncated to the context and padded."""

    ids: NDArray[np.int32]  # (texts, context)
    lengths: NDArray[np.int32]  # (texts,)
    labels: NDArray[np.int32]  # (texts,)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: NDArray[np.int64]) -> Batch:
        """The texts, padded to the longest of them."""
        longest = int(self.lengths[which].max())
        mask = np.arange(longest) < self.lengths[which][:, None]
        return {
            "ids": self.ids[which, :longest].astype(np.int64),
            "mask": mask.astype(np.int64),
            "labels": self.labels[which].astype(np.int64),
        }


def write(recipe: Recipe, folder: Path) -> None:
    """Write a recipe's examples and its tokenizer into a folder."""
    source = recipe.init_from or recipe.tokenizer
    if recipe.objective == "classification":
        labelled = texts.read_labelled(recipe)
        bpe = tokenizer.load(source) if source else tokenizer.fit(labelled.texts, recipe.vocabulary)
        ids, lengths = tokenizer.rows(bpe, labelled.texts, recipe.context)
        np.save(folder / "ids.npy", ids)
        np.save(folder / "lengths.npy", lengths)
        np.save(folder / "labels.npy", np.array(labelled.labels, np.int32))
        (folder / "classes.json").write_text(json.dumps(labelled.classes) + "\n", encoding="utf-8")
    else:
        lines = texts.read(recipe)
        bpe = tokenizer.load(source) if source else tokenizer.fit(lines, recipe.vocabulary)
        np.save(folder / "tokens.npy", tokenizer.pack(bpe, lines))
    if source:
        tokenizer.copy(Path(source).expanduser(), folder)
    else:
        tokenizer.save(bpe, folder, recipe.context)


def read(recipe: Recipe, folder: Path) -> Windows | PaddedTexts:
    """The examples that `write` wrote, memory-mapped; a corpus that is too short for the context is
    an error.
    """
    if recipe.objective == "classification":
        ids, lengths, labels = (
            np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "lengths", "labels")
        )
        return PaddedTexts(ids, lengths, labels)
    tokens: NDArray[np.int32] = np.load(folder / "tokens.npy", mmap_mode="r")
    if len(tokens) <= recipe.context:
        raise ConfigError(
            f"Corpus '{recipe.corpus}' has {len(tokens)} tokens, but a context of {recipe.context} "
            "needs more. Use a longer text or a smaller context."
        )
    return Windows(tokens, recipe.context)


def counted(recipe: Recipe, folder: Path) -> int | None:
    """The sequences of one epoch, from the corpus in a suite's folder; None before it is written."""
    if not (folder / "corpus").is_dir():
        return None
    source = read(recipe, folder / "corpus")
    if isinstance(source, PaddedTexts):
        return len(source)
    return len(source.tokens) // recipe.context


def classes(folder: Path) -> tuple[str, ...]:
    """The names of the classes; empty for packed tokens."""
    path = folder / "classes.json"
    if path.is_file():
        return tuple(json.loads(path.read_text(encoding="utf-8")))
    return ()


def effective(recipe: Recipe) -> int:
    """The effective batch: the number of sequences in a step.

    >>> effective(Recipe(batch=8, accumulate=2, ranks=4))
    64
    """
    return recipe.batch * recipe.accumulate * recipe.ranks


def examples(recipe: Recipe, count: int, step: int) -> NDArray[np.int64]:
    """The examples of a step, shape (effective batch,), each from 0 to ``count - 1``.

    Windows of packed tokens are drawn at random; labelled texts are shuffled again for every pass
    over them. Step 0 gives the examples on which all revisions are evaluated.

    >>> recipe = Recipe(objective="classification", corpus="reviews.csv", batch=4)
    >>> sorted(np.concatenate([examples(recipe, 8, step) for step in (1, 2)]).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    size = effective(recipe)
    if step == 0 or recipe.objective == "next-token":
        generator = np.random.default_rng(seed_of("batch", recipe.seed, step))
        return generator.integers(0, count, size=size)
    passes_before, indices = np.divmod(np.arange((step - 1) * size, step * size), count)
    drawn = np.empty(size, dtype=np.int64)
    for number in np.unique(passes_before).tolist():
        generator = np.random.default_rng(seed_of("pass", recipe.seed, number))
        in_pass = passes_before == number
        drawn[in_pass] = generator.permutation(count)[indices[in_pass]]
    return drawn


def share(size: int, rank: int, world: int) -> slice:
    """The consecutive examples of a step that a rank takes; shares differ by one example at most.

    >>> [share(8, rank, 3) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    """
    base, extra = divmod(size, world)
    start = rank * base + min(rank, extra)
    return slice(start, start + base + (rank < extra))


def passes(count: int, batch: int) -> list[slice]:
    """A rank's examples, divided into passes of at most ``batch`` examples.

    >>> passes(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(start, min(start + batch, count)) for start in range(0, count, batch)]


def advised(rates: Mapping[int, float], computing: float, most: int) -> int:
    """The fewest loaders, at most ``most``, that keep up with a rank; or the fastest number of
    those, if none does.

    Parameters
    ----------
    rates : mapping of int to float
        Samples per second by the number of loaders; 0 is the rank itself, whose reading delays each
        step.
    computing : float
        Samples per second that the rank computes.
    most : int

    Examples
    --------
    >>> rates = {0: 900.0, 1: 600.0, 2: 1100.0, 4: 1900.0, 8: 2000.0}
    >>> [advised(rates, computing, most=4) for computing in (10.0, 1000.0, 5000.0)]
    [0, 2, 4]
    """
    usable = {count: rate for count, rate in sorted(rates.items()) if count <= most}
    enough = [
        count for count, rate in usable.items() if rate * (1 if count else TOLERATED) >= computing
    ]
    if enough:
        return enough[0]
    return max(usable, key=lambda count: usable[count])
