"""The functions that run on workers. Heavy libraries are imported inside: the driver only names these functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.arms import Checkpoint, seed_of
from daskmetrics.config import Protocol, Recipe
from daskmetrics.errors import UndefinedError
from daskmetrics.suites import Location

if TYPE_CHECKING:
    from torch import Tensor

    from daskmetrics.metrics import Metric
    from daskmetrics.tasks import Task


@dataclass(frozen=True)
class MeasureJob:
    """Everything that measuring one checkpoint needs; the prompts lie in a file that all workers see.

    `following` is what the same worker will probably measure next, so that it can be read ahead; it decides nothing.
    """

    checkpoint: Checkpoint
    location: Location
    layers: tuple[int, ...]
    metrics: tuple[Metric, ...]
    protocol: Protocol
    prompts: str
    store: str
    seed: int
    following: Location | None = None


@dataclass(frozen=True)
class Embeddings:
    """Vectors (layers, texts, D) of a task's texts, and the seconds that it took to make them."""

    layers: tuple[int, ...]
    vectors: np.ndarray
    seconds: float


def train_to(recipe: Recipe, folder: str, revision: str) -> dict[str, float]:
    """Train a suite up to a revision and save it."""
    from daskmetrics import training

    return training.train_to(recipe, Path(folder), revision)


def measure(job: MeasureJob) -> dict[str, Any]:
    """All metrics of all layers of one checkpoint: one load, one forward pass over each view of the prompts.

    The worker writes the checkpoint's own chunk of the store; the returned values, once journaled, commit it.
    """
    from daskmetrics import store
    from daskmetrics.metrics import engine, views
    from daskmetrics.models import Model, pool

    prompts: list[str] = json.loads(Path(job.prompts).read_text(encoding="utf-8"))
    reducer = engine.Reducer(job.metrics, job.layers, len(prompts))
    seed = seed_of(job.seed, "view")
    with Model(job.location, job.protocol, following=job.following) as model:
        for number in range(reducer.views):

            def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor, number: int = number) -> None:
                reducer.add(layer, rows, states, mask, pool(states, mask, job.protocol.pooling), number)

            model.read([views.view(prompt, seed, number) for prompt in prompts], job.layers, take)
    reduced = reducer.finish()
    block = store.Block(reduced.values, reduced.stderr, reduced.status)
    store.write(Path(job.store), "metrics", job.checkpoint, block)
    reasons = [[layer, name, reason] for (layer, name), reason in sorted(reduced.reasons.items())]
    return {"layers": list(job.layers), "names": list(reduced.metrics), **block.as_json(), "reasons": reasons}


def encode(location: Location, protocol: Protocol, task: Task, layers: Sequence[int]) -> Embeddings:
    """A task's texts as vectors of all layers, in one pass."""
    import time

    from daskmetrics.models import Model

    started = time.perf_counter()
    with Model(location, protocol) as model:
        vectors = model.encode(task.texts(), layers, task.pooling or protocol.pooling)
    return Embeddings(tuple(layers), vectors, time.perf_counter() - started)


def score(embeddings: Embeddings, task: Task, layer: int, seed: int) -> dict[str, float]:
    """The task's score of one layer.

    Raises
    ------
    UndefinedError
        If the vectors or the score are not finite.
    """
    vectors = embeddings.vectors[embeddings.layers.index(layer)]
    if not np.isfinite(vectors).all():
        raise UndefinedError(f"The embeddings of layer {layer} are not finite.")
    result = task.evaluate(vectors, seed)
    if not np.isfinite(result.value):
        raise UndefinedError(f"{task.name} gave {result.value} at layer {layer}.")
    return {
        "score": float(result.value),
        "stderr": float(result.stderr),
        "n": result.n,
        "encode_seconds": embeddings.seconds,
    }
