"""How models are trained, and how the ranks are run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import Discriminator, Field, Tag, model_validator

from daskmetrics.config.section import (
    Section,
    Seed,
    Source,
    TextOrNumber,
    matching,
)

_Pattern = Annotated[
    Source,
    matching(
        r"[^*]*\*[^/]*/?", "a folder, then a name with * for the step, such as out/checkpoint-*"
    ),
]


class Recipe(Section):
    """Arguments of the built-in training program, `daskmetrics.training.recipe`.

    One step learns from ``batch x accumulate x ranks`` sequences, however many processes compute
    it. Equal arguments give equal weights; `save_every`, `loaders` and `stage` do not change them.
    """

    width: int = Field(64, ge=8, le=65_536)
    """Hidden size."""
    depth: int = Field(4, ge=1, le=1000)
    """Number of transformer blocks."""
    heads: int = Field(2, ge=1)
    """Number of attention heads; divides `width`."""
    context: int = Field(64, ge=8, le=1_000_000)
    """Tokens in a training sequence."""
    vocabulary: int = Field(1024, ge=300, le=1_000_000)
    """Size of the byte-level BPE vocabulary that is fitted to the corpus."""
    corpus: Source = "stdlib"
    """Training texts: `stdlib`, a .txt, .jsonl, .csv or .parquet file, or a folder of such files.
    Example: `texts/`
    """
    text: str = "text"
    """Column of the texts. Example: `body`"""
    ranks: int = Field(1, ge=1, le=10_000)
    """Processes that train together, one per worker. Training goes on with fewer if some are lost.
    """
    batch: int = Field(8, ge=1, le=1_000_000)
    """Sequences per rank and forward pass."""
    accumulate: int = Field(1, ge=1, le=1_000_000)
    """Forward passes per optimizer step."""
    steps: int = Field(512, ge=1, le=10**9)
    """Number of optimizer steps."""
    epochs: float | None = Field(None, gt=0, le=10**6)
    """Passes over the corpus, in place of `steps`. The corpus is then counted before anything
    starts.
    """
    checkpoints: (
        Literal["log"] | Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=0)], ...]
    ) = "log"
    """Steps at which a checkpoint is saved: `log` for 0, 1, 2, 4, 8, ..., a number N for every N
    steps, or a list of steps. The last step is always saved.
    Example: `1000`
    """
    learning_rate: float = Field(1e-2, gt=0)
    """Peak learning rate."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of the forward and backward pass."""
    threads: int = Field(1, ge=1, le=1024)
    """CPU threads per rank. The last bits of the weights depend on it."""
    seed: Seed = 0
    """Seed of the initial weights and of the order of the texts."""
    save_every: int = Field(100, ge=1)
    """Steps between two resume states."""
    loaders: int = Field(0, ge=0)
    """Data loader processes per rank."""
    stage: Source | None = None
    """Folder of each node, such as `$TMPDIR`, into which the tokens of the corpus are copied before
    training, where the shared file system is slow. The copy is removed at the end.
    Example: `$TMPDIR`
    """

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments as words of a command line."""
        changed = self.model_dump(mode="json", exclude_defaults=True)
        # YAML, as which the program reads them, does not join what JSON escapes of an emoji
        return tuple(
            f"--{name}={json.dumps(value, ensure_ascii=False)}" for name, value in changed.items()
        )

    @model_validator(mode="after")
    def _check_consistency(self) -> Recipe:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by {self.heads} heads")
        default_steps = type(self).model_fields["steps"].default
        if self.epochs is not None and self.steps != default_steps:
            raise ValueError("'epochs' sets the number of steps: leave out 'steps'")
        if isinstance(self.checkpoints, tuple) and self.epochs is None:
            latest = max(self.checkpoints, default=0)
            if latest > self.steps:
                raise ValueError(f"checkpoint {latest} is after the last step, {self.steps}")
        return self


class Script(Section):
    """A training program of one's own.

    Each process has the environment that ``torchrun`` gives, so that the program needs no change.
    """

    script: Source
    """The program: a Python file, or another command. Example: `train.py`"""
    args: tuple[TextOrNumber, ...] = ()
    """Its arguments. Example: `["--lr", 0.0003]`"""
    ranks: int = Field(1, ge=1, le=10_000)
    """Processes, one per worker and GPU."""
    checkpoints: _Pattern | None = None
    """Where it saves checkpoints, with the step in place of `*`; each becomes a candidate once it
    is complete.
    Example: `out/checkpoint-*`
    """
    max_restarts: int = Field(3, ge=0, le=1000)
    """Failures in a row, without a further step, after which it is started again."""


def is_script(train: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a model's ``train`` is that of a program."""
    return isinstance(train, Mapping) and "script" in train


#: How a model is trained; the tags stand in the places of errors.
Training = Annotated[
    Annotated[Recipe, Tag("(recipe)")] | Annotated[Script, Tag("(script)")],
    Discriminator(
        lambda train: "(script)" if is_script(train) or isinstance(train, Script) else "(recipe)"
    ),
]


class DDP(Section):
    """How ranks are run; nothing here changes the weights."""

    folder: Source | None = None
    """Folder in which each suite gets a sub-folder by its name. By default suites are in the cache.
    Example: `suites`
    """
    timeout: float = Field(60.0, gt=0)
    """Seconds without a sign of life after which a rank counts as lost."""
    patience: float = Field(60.0, ge=0)
    """Seconds to wait for missing ranks before training with fewer."""
