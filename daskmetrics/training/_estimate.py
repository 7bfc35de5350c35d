"""The parameters, memory and disk space that a recipe needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.config import Recipe
from daskmetrics.core._files import cache_folder
from daskmetrics.core._json import parse
from daskmetrics.core.errors import ConfigError
from daskmetrics.training._data import effective
from daskmetrics.training._schedule import peak
from daskmetrics.training._suite import epoch, revisions
from daskmetrics.training.ddp._ranks import RankPlacement

PROCESS = 0.4e9  # bytes of a process that has loaded torch and transformers; measured on Linux, without CUDA
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
        raise ConfigError(f"init_from: cannot read the model's shape from '{path}' ({error}).") from None


def memory(recipe: Recipe) -> float:
    """Assumed bytes of a rank: weights and optimizer, activations of one pass, logits, and the process.

    Activations follow Korthikanti et al. (2022, equation 2) in the recipe's precision; with activation checkpointing
    they are the inputs of all blocks and the activations of one block.
    """
    shape, tokens = shape_of(recipe), recipe.batch * recipe.context
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
    shape, saved, sequences = shape_of(recipe), revisions(recipe), effective(recipe)
    scaled = {"none": "", "linear": f", scaled by {recipe.ranks} ranks", "sqrt": f", scaled by √{recipe.ranks} ranks"}
    known = epoch(recipe, folder, cache_folder())
    epochs = f"; {recipe.steps * sequences / known:.3g} epochs of {known:,} sequences" if known else ""
    ranks = f"{recipe.ranks}" if workers >= recipe.ranks else f"{recipe.ranks}, of which {workers} have a worker"
    return [
        ("suite", f"{name}, {shape.parameters:,} parameters, {recipe.objective}"),
        ("ranks", ranks),
        (
            "effective batch",
            f"{sequences} sequences = {recipe.batch} per pass x {recipe.accumulate} passes x {recipe.ranks} ranks; "
            f"{sequences * recipe.context:,} tokens",
        ),
        ("learning rate", f"{peak(recipe):.4g}{scaled[recipe.scale_learning_rate]}, {recipe.schedule}"),
        ("steps", f"{recipe.steps:,}, at most {recipe.steps * sequences * recipe.context:,} tokens{epochs}"),
        ("checkpoints", f"{len(saved)}: {', '.join(saved) if len(saved) < 16 else f'{saved[0]} ... {saved[-1]}'}"),
        ("memory per rank", f"{memory(recipe) / 2**30:.2f} GiB (assumed, {recipe.precision})"),
        ("disk", f"{disk(recipe) / 1e6:,.1f} MB of checkpoints in '{folder}'"),
    ]


def require_memory(recipe: Recipe, placements: Sequence[RankPlacement]) -> None:
    """Check that each machine has the memory for its ranks; ranks on a GPU are not checked."""
    first = {place.host.node: place for place in reversed(placements)}
    for node, count in Counter(place.host.node for place in placements).items():
        needed, free = count * memory(recipe), first[node].host.available
        if first[node].gpu is None and needed > free:
            raise ConfigError(
                f"{count} ranks on {node} need about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free. "
                "Lower 'batch' (and raise 'accumulate'), set activation_checkpointing, or use fewer ranks per node."
            )
