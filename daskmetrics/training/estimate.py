"""The parameters, memory and disk space that a recipe needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import cache_folder
from daskmetrics.core.serialization import parse
from daskmetrics.training.data import effective
from daskmetrics.training.suite import epoch, revisions

# bytes of a process that has loaded torch and transformers; measured on Linux, without CUDA
PROCESS = 0.4e9
_STATE = 16  # bytes per parameter: weight, gradient, and two moments of AdamW
_SAVED = 12  # bytes per parameter in a resume state


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a transformer."""

    width: int
    depth: int
    heads: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """Parameters of a GPT-NeoX with untied embeddings.

        >>> ModelShape(512, 6, 8, 50304).parameters  # Pythia's 70m
        70426624
        """
        block = 12 * self.width**2 + 13 * self.width
        return 2 * self.vocabulary * self.width + self.depth * block + 2 * self.width


def shape_of(recipe: Recipe) -> ModelShape:
    """The shape of the trained model: the recipe's, or that of the model in ``init_from``."""
    if recipe.init_from is None:
        return ModelShape(recipe.width, recipe.depth, recipe.heads, recipe.vocabulary)
    path = Path(recipe.init_from).expanduser() / "config.json"
    try:
        config: dict[str, Any] = parse(path.read_text(encoding="utf-8"))
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
        return ModelShape(*(int(config[name]) for name in names))
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"init_from: cannot read the model's shape from '{path}' ({error})."
        ) from None


def memory(recipe: Recipe) -> float:
    """Assumed bytes of a rank: weights and optimizer, activations of one pass, logits, and the
    process.

    Activations follow Korthikanti et al. (2022, equation 2) in the recipe's precision; with
    activation checkpointing they are the inputs of all blocks and the activations of one block.
    """
    shape = shape_of(recipe)
    tokens = recipe.batch * recipe.context
    half = 1 if recipe.precision == "float32" else 0.5
    block = 2 * half * tokens * (34 * shape.width + 5 * shape.heads * recipe.context)
    if recipe.activation_checkpointing:
        activations = block + shape.depth * 4 * half * tokens * shape.width
    else:
        activations = shape.depth * block
    copies = _STATE + (4 if recipe.ranks > 1 else 0)  # the buckets in which gradients travel
    return PROCESS + copies * shape.parameters + activations + 12.0 * tokens * shape.vocabulary


def disk(recipe: Recipe) -> float:
    """Bytes of all checkpoints and of two resume states: one exists while the next one is written."""
    return shape_of(recipe).parameters * (4.0 * len(revisions(recipe)) + 2 * _SAVED)


def rows(name: str, recipe: Recipe, folder: Path, workers: int) -> list[tuple[str, str]]:
    """What training would do, as names and values for the user."""
    saved, sequences = revisions(recipe), effective(recipe)
    ranks = str(recipe.ranks)
    if workers < recipe.ranks:
        ranks += f", of which {workers} have a worker"
    steps = f"{recipe.steps:,}, at most {recipe.steps * sequences * recipe.context:,} tokens"
    corpus = epoch(recipe, folder, cache_folder())
    if corpus:
        epochs = recipe.steps * sequences / corpus
        steps += f"; {epochs:.3g} epochs of {corpus:,} sequences"
    names = ", ".join(saved)
    if len(saved) >= 16:
        names = f"{saved[0]} ... {saved[-1]}"
    return [
        ("suite", f"{name}, {shape_of(recipe).parameters:,} parameters, {recipe.objective}"),
        ("ranks", ranks),
        (
            "effective batch",
            (
                f"{sequences} sequences = {recipe.batch} per pass x {recipe.accumulate} passes x "
                f"{recipe.ranks} ranks; {sequences * recipe.context:,} tokens"
            ),
        ),
        ("learning rate", f"{recipe.learning_rate:.4g}, cosine"),
        ("steps", steps),
        ("checkpoints", f"{len(saved)}: {names}"),
        ("memory per rank", f"{memory(recipe) / 2**30:.2f} GiB (estimated, {recipe.precision})"),
        ("disk", f"{disk(recipe) / 1e6:,.1f} MB of checkpoints in '{folder}'"),
    ]
