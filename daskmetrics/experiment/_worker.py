"""The functions that run on workers; they import heavy libraries when they are called."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config import Recipe
from daskmetrics.config._checkpoints import Location
from daskmetrics.config._prompts import Prompts
from daskmetrics.config._protocol import ModelProtocol
from daskmetrics.core._outcomes import pack
from daskmetrics.core.errors import UndefinedError
from daskmetrics.core.names import Checkpoint, Key, content_key, seed_of
from daskmetrics.core.status import EQUAL
from daskmetrics.execution import Record
from daskmetrics.experiment._embeddings import LayerEmbeddings, memory_budget

if TYPE_CHECKING:
    from torch import Tensor

    from daskmetrics.metrics import Metric
    from daskmetrics.metrics._engine import Reducer
    from daskmetrics.tasks import Task


@dataclass(frozen=True)
class MeasureSpec:
    """Everything that measuring one checkpoint needs."""

    checkpoint: Checkpoint
    location: Location
    layers: tuple[int, ...]
    metrics: Mapping[Key, Metric]  # the requested metrics, in this order
    protocol: ModelProtocol
    prompts: str  # file, on a disk that all workers share
    store: str
    seed: int
    states_key: Key  # of the states from which metrics are computed
    states: str | None = None  # folder of kept pooled states
    known: Mapping[Key, Column] = field(default_factory=dict)  # of earlier records: only others are computed
    size: Mapping[str, Any] | None = None  # of the network, from an earlier record: see `LoadedModel.size`
    following: Location | None = None  # probably measured next: read ahead, which changes no result


@dataclass(frozen=True)
class EncodeSpec:
    """Everything that encoding a task's texts with a checkpoint needs."""

    key: Key
    location: Location
    protocol: ModelProtocol
    task: Task
    layers: tuple[int, ...]
    scratch: str  # folder that all workers share, for embeddings that exceed the budget
    budget: int  # bytes of embeddings that one process may hold in memory


def train_to(recipe: Recipe, folder: str, revision: str) -> dict[str, float]:
    """Train a suite up to a revision and save it."""
    from daskmetrics import training

    return training.train_to(recipe, Path(folder), revision)


def measure(spec: MeasureSpec) -> dict[str, Any]:
    """All metrics of all layers of one checkpoint, from one load and one forward pass over each view of the prompts.

    There is no forward pass if kept states suffice for the metrics that are not known. The worker writes the
    checkpoint's chunk of the store; the chunk is committed when the returned values are in the journal.
    """
    from daskmetrics import store

    missing = {key: metric for key, metric in spec.metrics.items() if key not in spec.known}
    reduced = _reduce(spec, tuple(missing.values())) if missing else {}
    computed = columns_of({"metrics": list(missing), **reduced}) if missing else {}
    value = value_of({key: computed.get(key) or spec.known[key] for key in spec.metrics})
    store.write(Path(spec.store), "metrics", spec.checkpoint, store.Block.of(value))
    size = reduced.get("size") or spec.size
    return {"states": spec.states_key, "layers": list(spec.layers), **({"size": size} if size else {}), **value}


def _reduce(spec: MeasureSpec, metrics: tuple[Metric, ...]) -> dict[str, Any]:
    """The values of these metrics, as plain JSON values."""
    from daskmetrics import store
    from daskmetrics.metrics import _engine as engine
    from daskmetrics.store import _states as states

    prompts: list[str] = json.loads(Path(spec.prompts).read_text(encoding="utf-8"))
    reducer = engine.Reducer(metrics, spec.layers, len(prompts), halves=spec.states is not None)
    kept = states.read(Path(spec.states), spec.checkpoint, spec.states_key) if spec.states else None
    if kept is not None and all(metric.takes in ("pooled", "layers") for metric in metrics):
        reducer.put_vectors(kept, spec.protocol.base.dtype)
        size = None
    else:
        size = _forward(spec, prompts, reducer)
        if spec.states:
            states.write(Path(spec.states), spec.checkpoint, spec.states_key, spec.layers, reducer.vectors())
    reduced = reducer.finish()
    reasons = [[layer, name, reason] for (layer, name), reason in sorted(reduced.reasons.items())]
    block = store.Block(reduced.values, reduced.stderr, reduced.status)
    return {"names": list(reduced.metrics), **block.as_json(), "reasons": reasons, "size": size}


def _forward(spec: MeasureSpec, prompts: list[str], reducer: Reducer) -> dict[str, Any] | None:
    """One forward pass over each view of the prompts; returns the size of the network."""
    from daskmetrics.metrics import _views as views
    from daskmetrics.models import LoadedModel, Readout

    seed, before = seed_of(spec.seed, "view"), spec.protocol.prompts.of(None)
    with LoadedModel(spec.location, spec.protocol.base, following=spec.following) as model:
        for number in range(reducer.views):
            readout = Readout(model, spec.protocol, [views.view(prompt, seed, number) for prompt in prompts], before)

            def take(
                layer: int, rows: Tensor, states: Tensor, mask: Tensor, number: int = number, readout: Readout = readout
            ) -> None:
                reducer.add(layer, rows, states, mask, readout(rows, states, mask), number)

            model.read(readout.texts, spec.layers, take)
        return model.size(spec.layers)


def encode(spec: EncodeSpec) -> LayerEmbeddings:
    """A task's texts as vectors of all layers, in one forward pass."""
    import torch
    from distributed import get_worker

    from daskmetrics.models import LoadedModel, Readout

    started = time.perf_counter()
    (prompts, texts), places = _distinct(spec.task, spec.protocol.prompts)
    budget = memory_budget(Path(spec.scratch), spec.budget)
    with LoadedModel(spec.location, spec.protocol.base) as model:
        readout = Readout(model, spec.protocol, texts, prompts, spec.task.pooling)
        embeddings = LayerEmbeddings(spec.layers, len(texts), readout.width, budget, spec.key)
        embeddings.places = places
        batch: list[Tensor] = []
        tokens = np.zeros(len(texts))

        def take(layer: int, rows: Tensor, states: Tensor, mask: Tensor) -> None:
            if layer == spec.layers[0]:
                batch.clear()  # a batch that did not fit into memory is repeated
            batch.append(readout(rows, states, mask))
            if layer == spec.layers[-1]:  # one transfer from the device per batch, not per layer
                index = rows.cpu().numpy()
                embeddings.put(index, torch.stack(batch).cpu().numpy())
                tokens[index] = mask.sum(1).cpu().numpy()

        model.read(readout.texts, spec.layers, take)
    embeddings.seconds = time.perf_counter() - started
    embeddings.tokens = float(tokens.mean() if places is None else tokens[places].mean())
    with suppress(ValueError):  # outside a cluster
        embeddings.worker = str(get_worker().name)
    return embeddings


def _distinct(task: Task, prompts: Prompts) -> tuple[tuple[Sequence[str], Sequence[str]], NDArray[np.intp] | None]:
    """Prompts and texts of a task, each pair once, and the place of each of its texts among them; None if all differ.

    A text that is both a query and a document is read twice only if its prompts differ.
    """
    from daskmetrics.tasks._task import roles_of

    name, texts = getattr(task, "benchmark_name", task.name), task.texts()
    pairs = [(prompts.of(role, name, task.kind), text) for role, text in zip(roles_of(task), texts, strict=True)]
    index = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    before, distinct = ([pair[side] for pair in index] for side in (0, 1))
    return (before, distinct), None if len(index) == len(pairs) else np.array([index[pair] for pair in pairs])


def score(embeddings: LayerEmbeddings, task: Task, layer: int, seed: int, protocol: Key) -> dict[str, Any]:
    """The task's score of one layer, with its outcomes, the protocol and versions behind it.

    Raises `UndefinedError` if there is no score.
    """
    vectors = embeddings.at(layer)
    if not np.isfinite(vectors).all():
        raise UndefinedError(f"The embeddings of layer {layer} are not finite.")
    if len(vectors) > 1 and np.ptp(vectors, axis=0).max() <= EQUAL * np.abs(vectors).max():
        raise UndefinedError(f"The embeddings of layer {layer} are equal for all {len(vectors)} texts.")
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
        "dimensions": embeddings.shape[1],
        "tokens": embeddings.tokens,
        "protocol": protocol,
        "versions": _scoring_versions(),
        **({"detail": result.detail} if result.detail else {}),
        **({} if result.outcomes is None else {"outcomes": pack(result.outcomes, result.value, _items(task, seed))}),
    }


def _items(task: Task, seed: int) -> Key:
    """Key of the items and draws of a task; outcomes with equal keys are about the same ones, in the same order."""
    return content_key("items", task.key, seed)


@cache
def _scoring_versions() -> dict[str, str]:
    """Versions of the libraries that score; the journal holds this worker's other versions beside its name."""
    from importlib.metadata import distributions

    names = ("scikit-learn", "mteb", "xgboost-cpu", "xgboost", "lightgbm")
    return {d.name: d.version for d in distributions() if d.name in names}


@dataclass(frozen=True)
class Column:
    """One metric at all layers of a checkpoint, as plain JSON values; None for an undefined number."""

    name: str
    values: tuple[float | None, ...]
    stderr: tuple[float | None, ...]
    status: tuple[int, ...]
    reasons: tuple[tuple[int, str, str], ...]  # layer, metric and why it is undefined


def columns_of(value: Mapping[str, Any]) -> dict[Key, Column]:
    """The columns of a recorded value, by metric key.

    >>> parts = {"values": [[0.5]], "stderr": [[None]], "status": [[1]], "reasons": []}
    >>> columns_of({"names": ["a"], "metrics": ["k"], **parts})["k"].values
    (0.5,)
    """
    columns = {}
    for i, (key, name) in enumerate(zip(value["metrics"], value["names"], strict=True)):
        values, stderr, status = (tuple(row[i] for row in value[part]) for part in ("values", "stderr", "status"))
        reasons = tuple((layer, metric, reason) for layer, metric, reason in value["reasons"] if metric == name)
        columns[key] = Column(name, values, stderr, status, reasons)
    return columns


def value_of(columns: Mapping[Key, Column]) -> dict[str, Any]:
    """The inverse of `columns_of`; columns keep their order."""
    parts = {
        part: [list(row) for row in zip(*(getattr(column, part) for column in columns.values()), strict=True)]
        for part in ("values", "stderr", "status")
    }
    reasons = sorted(reason for column in columns.values() for reason in column.reasons)
    names = [column.name for column in columns.values()]
    return {"names": names, "metrics": list(columns), **parts, "reasons": [list(reason) for reason in reasons]}


def known_sizes(records: Iterable[Record]) -> dict[Key, Mapping[str, Any]]:
    """The sizes of networks, by the key of the states that they gave."""
    values = [record.value for record in records if record.kind == "measure" and record.ok]
    return {value["states"]: value["size"] for value in values if "size" in (value or {})}


def known_columns(records: Iterable[Record]) -> dict[Key, dict[Key, Column]]:
    """All recorded columns, by the key of the states from which they were computed."""
    known: dict[Key, dict[Key, Column]] = {}
    for record in records:
        if record.kind == "measure" and record.ok and "states" in (record.value or {}):  # older records name none
            columns = known.setdefault(record.value["states"], {})
            columns.update({key: column for key, column in columns_of(record.value).items() if key not in columns})
    return known
