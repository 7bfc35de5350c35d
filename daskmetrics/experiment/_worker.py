"""The functions that run on workers. Heavy libraries are imported inside: the driver only names these functions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.config import Protocol, Recipe
from daskmetrics.config._checkpoints import Location
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.names import Checkpoint, Key, seed_of
from daskmetrics.experiment._columns import Column, columns_of, value_of
from daskmetrics.experiment._embeddings import Embeddings, shelf

if TYPE_CHECKING:
    from torch import Tensor

    from daskmetrics.metrics import Metric
    from daskmetrics.metrics._engine import Reducer
    from daskmetrics.tasks import Task


@dataclass(frozen=True)
class MeasureJob:
    """Everything that measuring one checkpoint needs; the prompts lie in a file that all workers see.

    Attributes
    ----------
    metrics : mapping of Key to Metric
        What is wanted, in this order.
    known : mapping of Key to Column
        What earlier records hold of it: only the rest is computed.
    states_key : Key
        Names the states that the metrics are taken from.
    states : str or None
        Where pooled states are kept; None if they are not.
    following : Location or None
        What the same worker will probably measure next, so that it can be read ahead; it decides nothing.
    """

    checkpoint: Checkpoint
    location: Location
    layers: tuple[int, ...]
    metrics: Mapping[Key, Metric]
    protocol: Protocol
    prompts: str
    store: str
    seed: int
    states_key: Key
    states: str | None = None
    known: Mapping[Key, Column] = field(default_factory=dict)
    following: Location | None = None


@dataclass(frozen=True)
class EncodeJob:
    """Everything that encoding a task's texts with a checkpoint needs.

    Attributes
    ----------
    scratch : str
        A folder that all workers see, for embeddings beyond the budget.
    budget : int
        Bytes of embeddings that one process may hold in memory.
    """

    key: Key
    location: Location
    protocol: Protocol
    task: Task
    layers: tuple[int, ...]
    scratch: str
    budget: int


def train_to(recipe: Recipe, folder: str, revision: str) -> dict[str, float]:
    """Train a suite up to a revision and save it."""
    from daskmetrics import training

    return training.train_to(recipe, Path(folder), revision)


def measure(job: MeasureJob) -> dict[str, Any]:
    """All metrics of all layers of one checkpoint: one load, one forward pass over each view of the prompts.

    Where all that is not known yet can be taken from states that were kept, there is no forward pass. The worker
    writes the checkpoint's own chunk of the store; the returned values, once journaled, commit it.
    """
    from daskmetrics import store

    lacking = {key: metric for key, metric in job.metrics.items() if key not in job.known}
    computed = columns_of({"metrics": list(lacking), **_reduce(job, tuple(lacking.values()))}) if lacking else {}
    value = value_of({key: computed.get(key) or job.known[key] for key in job.metrics})
    store.write(Path(job.store), "metrics", job.checkpoint, store.Block.of(value))
    return {"states": job.states_key, "layers": list(job.layers), **value}


def _reduce(job: MeasureJob, metrics: tuple[Metric, ...]) -> dict[str, Any]:
    """The values of these metrics, as plain JSON values."""
    from daskmetrics import store
    from daskmetrics.metrics import _engine as engine
    from daskmetrics.store import _states as states

    prompts: list[str] = json.loads(Path(job.prompts).read_text(encoding="utf-8"))
    reducer = engine.Reducer(metrics, job.layers, len(prompts), halves=job.states is not None)
    kept = states.read(Path(job.states), job.checkpoint, job.states_key) if job.states else None
    if kept is not None and all(metric.takes in ("pooled", "layers") for metric in metrics):
        reducer.put_vectors(kept)
    else:
        _read(job, prompts, reducer)
        if job.states:
            states.write(Path(job.states), job.checkpoint, job.states_key, job.layers, reducer.vectors())
    reduced = reducer.finish()
    reasons = [[layer, name, reason] for (layer, name), reason in sorted(reduced.reasons.items())]
    block = store.Block(reduced.values, reduced.stderr, reduced.status)
    return {"names": list(reduced.metrics), **block.as_json(), "reasons": reasons}


def _read(job: MeasureJob, prompts: list[str], reducer: Reducer) -> None:
    """One forward pass over each view of the prompts."""
    from daskmetrics.metrics import _views as views
    from daskmetrics.models import LoadedModel, pool

    seed = seed_of(job.seed, "view")
    with LoadedModel(job.location, job.protocol, following=job.following) as model:
        for number in range(reducer.views):

            def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor, number: int = number) -> None:
                reducer.add(layer, rows, states, mask, pool(states, mask, job.protocol.pooling), number)

            model.read([views.view(prompt, seed, number) for prompt in prompts], job.layers, take)


def encode(job: EncodeJob) -> Embeddings:
    """A task's texts as vectors of all layers, in one pass."""
    import torch

    from daskmetrics.models import LoadedModel, pool

    started = time.perf_counter()
    pooling = job.task.pooling or job.protocol.pooling
    texts = job.task.texts()
    with LoadedModel(job.location, job.protocol) as model:
        found = Embeddings(job.layers, len(texts), model.width, shelf(Path(job.scratch), job.budget), job.key)
        batch: list[Tensor] = []

        def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor) -> None:
            if layer == job.layers[0]:
                batch.clear()  # one that did not fit into memory begins anew
            batch.append(pool(states, mask, pooling).float())
            if layer == job.layers[-1]:  # one wait for the device per batch, and none per layer
                found.put(rows.cpu().numpy(), torch.stack(batch).cpu().numpy())

        model.read(texts, job.layers, take)
    found.seconds, found.worker = time.perf_counter() - started, _worker_name()
    return found


def _worker_name() -> str | None:
    """Where this runs; None outside a cluster."""
    from distributed import get_worker

    try:
        return str(get_worker().name)
    except ValueError:
        return None


def score(embeddings: Embeddings, task: Task, layer: int, seed: int, protocol: Key) -> dict[str, Any]:
    """The task's score of one layer, and what it was made with.

    Raises
    ------
    UndefinedError
        If the vectors or the score are not finite.
    """
    vectors = embeddings.at(layer)
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
        "encoded_on": embeddings.worker,
        "bytes": embeddings.nbytes,
        "protocol": protocol,
        "versions": _scorers(),
        **({"detail": result.detail} if result.detail else {}),
    }


@cache
def _scorers() -> dict[str, str]:
    """What this worker scores with; the rest of its versions stand in the journal beside its name."""
    from importlib.metadata import distributions

    wanted = ("scikit-learn", "mteb", "xgboost-cpu", "xgboost", "lightgbm")
    return {d.name: d.version for d in distributions() if d.name in wanted}
