"""The functions that run on workers; they import heavy libraries when they are called."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from daskmetrics.config import Recipe
from daskmetrics.config._checkpoints import Location
from daskmetrics.config._prompts import Prompts
from daskmetrics.config._protocol import ModelProtocol
from daskmetrics.core._corpus import digest
from daskmetrics.core._events import TRAIN, succeeded
from daskmetrics.core._files import atomic_write
from daskmetrics.core._fitted import Fitted, fit, joined
from daskmetrics.core._outcomes import pack
from daskmetrics.core._readouts import Readout
from daskmetrics.core.errors import DataError, UndefinedError, room_for
from daskmetrics.core.names import Checkpoint, Key, content_key
from daskmetrics.core.status import EQUAL
from daskmetrics.execution import Record
from daskmetrics.experiment import _rolling as rolling
from daskmetrics.experiment._embeddings import LayerEmbeddings, memory_budget

if TYPE_CHECKING:
    from daskmetrics.metrics import Metric
    from daskmetrics.metrics._engine import Reducer
    from daskmetrics.models import Encoder
    from daskmetrics.tasks import Task

TRAINING_INTERVAL = 0.25  # seconds between two steps of a training that are shown


@dataclass(frozen=True)
class MeasureSpec:
    """Everything that measuring one checkpoint needs."""

    checkpoint: Checkpoint
    location: Location
    layers: tuple[int, ...]
    metrics: Mapping[Key, Metric]  # the requested metrics, in this order
    protocol: ModelProtocol
    prompts: str  # file, on a disk that all workers share
    prompts_key: Key
    store: str
    seed: int
    states_key: Key  # of the states from which metrics are computed
    states: str | None = None  # folder of kept pooled states
    known: Mapping[Key, Column] = field(default_factory=dict)  # of earlier records: only others are computed
    size: Mapping[str, Any] | None = None  # of the network, from an earlier record: see `LoadedModel.size`
    following: Location | None = None  # probably measured next: read ahead, which changes no result

    @property
    def missing(self) -> dict[Key, Metric]:
        """The metrics that no earlier record has; without any, no model is loaded."""
        return {key: metric for key, metric in self.metrics.items() if key not in self.known}


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
    poolings: tuple[str, ...] = ("",)
    corpus: tuple[str, ...] = ()  # texts on which readouts are fitted, if there are such readouts
    sized: bool = False  # whether scores record the size of the network, since no measuring does


def train_to(recipe: Recipe, folder: str, revision: str, model: str) -> dict[str, float]:
    """Train a suite up to a revision and save it."""
    from daskmetrics import training

    return training.train_to(recipe, Path(folder), revision, _TrainingEvents(recipe, model))


class _TrainingEvents:
    """Logs the steps of a training on this worker, for the live page; the last step of a revision is always logged."""

    def __init__(self, recipe: Recipe, model: str) -> None:
        self.model, self.tokens = model, recipe.batch * recipe.accumulate * recipe.ranks * recipe.context
        self._step, self._time = 0, 0.0  # of the latest event
        self._pending: tuple[int, float] | None = None

    def enter(self, step: int, phase: int) -> None:
        if not self._time:  # from here, so that loading does not count
            self._step, self._time = step - 1, time.perf_counter()

    def step_done(self, step: int, loss: float) -> None:
        self._pending = step, loss
        if time.perf_counter() - self._time >= TRAINING_INTERVAL:
            self.report()

    def report(self, **facts: Any) -> None:
        if self._pending is None:
            return
        (step, loss), now = self._pending, time.perf_counter()
        speed = self.tokens * (step - self._step) / (now - self._time)
        get_worker().log_event(TRAIN, {"model": self.model, "step": step, "loss": loss, "tokens_per_second": speed})
        self._step, self._time, self._pending = step, now, None


def measure(spec: MeasureSpec) -> dict[str, Any]:
    """All metrics of all layers of one checkpoint, from one load and one forward pass over each view of the prompts.

    There is no forward pass if kept states suffice for the metrics that are not known. The worker writes the
    checkpoint's chunk of the store; the chunk is committed when the returned values are in the journal. Without
    metrics there is no such chunk.
    """
    from daskmetrics import store

    missing = spec.missing
    reduced = _reduce(spec, tuple(missing.values())) if missing else {}
    computed = columns_of({"metrics": list(missing), **reduced}) if missing else {}
    value = value_of({key: computed.get(key) or spec.known[key] for key in spec.metrics}, len(spec.layers))
    if spec.metrics:
        store.write(Path(spec.store), "metrics", spec.checkpoint, store.Block.of(value))
    about = {"size": reduced.get("size") or spec.size, "download": reduced.get("download")}
    known = {name: each for name, each in about.items() if each}
    return {"states": spec.states_key, "layers": list(spec.layers), **known, **value}


def _reduce(spec: MeasureSpec, metrics: tuple[Metric, ...]) -> dict[str, Any]:
    """The values of these metrics, as plain JSON values."""
    from daskmetrics import store
    from daskmetrics.metrics import _engine as engine
    from daskmetrics.store import _states as states

    prompts: list[str] = json.loads(Path(spec.prompts).read_text(encoding="utf-8"))
    if digest(prompts) != spec.prompts_key:
        raise DataError(f"'{spec.prompts}' does not hold the prompts of the run: run the same command again.")
    reducer = engine.Reducer(metrics, spec.layers, len(prompts), halves=spec.states is not None)
    kept = states.read(Path(spec.states), spec.checkpoint, spec.states_key) if spec.states else None
    if kept is not None and all(metric.takes in ("pooled", "layers") for metric in metrics):
        reducer.put_vectors(kept, spec.protocol.base.dtype)
        size = download = None
    else:
        with rolling.held(spec.location, spec.following) as download:
            size = _forward(spec, prompts, reducer)
        if spec.states:
            states.write(Path(spec.states), spec.checkpoint, spec.states_key, spec.layers, reducer.vectors())
    reduced = reducer.finish()
    reasons = [[layer, name, reason] for (layer, name), reason in sorted(reduced.reasons.items())]
    block = store.Block(reduced.values, reduced.stderr, reduced.status)
    return {"names": list(reduced.metrics), **block.as_json(), "reasons": reasons, "size": size, "download": download}


def _forward(spec: MeasureSpec, prompts: list[str], reducer: Reducer) -> dict[str, Any] | None:
    """One forward pass over each view of the prompts; returns the size of the network."""
    from daskmetrics.models import Encoder, LoadedModel

    with LoadedModel(spec.location, spec.protocol.base, following=spec.following) as model:
        Encoder(model, spec.protocol, spec.layers).reduce(prompts, reducer, spec.seed)
        return model.size(spec.layers)


def encode(spec: EncodeSpec) -> LayerEmbeddings:
    """A task's texts as vectors of all layers, in one forward pass."""
    from distributed import get_worker

    from daskmetrics.models import Encoder, LoadedModel

    with rolling.held(spec.location):
        started = time.perf_counter()  # without the wait for a download
        with LoadedModel(spec.location, spec.protocol.base) as model:
            embeddings = encode_task(Encoder(model, spec.protocol, spec.layers), spec)
            embeddings.size = model.size(spec.layers) if spec.sized else None
    embeddings.seconds = time.perf_counter() - started
    with suppress(ValueError):  # outside a cluster
        embeddings.worker = str(get_worker().name)
    return embeddings


def encode_task(encoder: Encoder, spec: EncodeSpec) -> LayerEmbeddings:
    """A task's texts as vectors of all layers of an encoder, by pooling; an empty one is the task's or protocol's."""
    from daskmetrics.models import Pooler

    (prompts, texts), places = _distinct(spec.task, encoder.protocol.prompts)
    pooler = Pooler(encoder.model, encoder.protocol, texts, prompts, _poolings(spec))
    widths = dict(zip(spec.poolings, pooler.widths, strict=True))
    budget = memory_budget(Path(spec.scratch), spec.budget)
    embeddings = LayerEmbeddings(encoder.layers, len(texts), widths, budget, spec.key)
    embeddings.places = places
    tokens = np.zeros(len(texts))

    def keep(rows: NDArray[np.intp], pooled: Sequence[NDArray[np.float32]], count: NDArray[np.int64]) -> None:
        embeddings.put(rows, pooled)
        tokens[rows] = count

    started = time.perf_counter()
    pooler.read(encoder.layers, keep)
    embeddings.read_seconds = time.perf_counter() - started
    embeddings.tokens = float(tokens.mean() if places is None else tokens[places].mean())
    embeddings.corpus = _keep_corpus(encoder, spec) if spec.corpus else None
    return embeddings


def _poolings(spec: EncodeSpec) -> list[str]:
    """Poolings with the task's own in place of the default."""
    return [name or spec.task.pooling or "" for name in spec.poolings]


def _keep_corpus(encoder: Encoder, spec: EncodeSpec) -> Path:
    """Write the corpus's vectors of all layers to a file, by pooling; readouts are fitted on these.

    One task after the other needs the same file, which is then there.
    """
    from daskmetrics.models import Pooler

    poolings, texts = _poolings(spec), spec.corpus
    identity = content_key(spec.location.identity, spec.protocol.key, spec.layers, spec.poolings, poolings, texts)
    path = Path(spec.scratch) / f"corpus-{identity}.npz"
    if path.exists():
        return path
    pooler = Pooler(encoder.model, encoder.protocol, texts, encoder.protocol.prompts.of(None), poolings)
    kept = zip(spec.poolings, pooler.vectors(encoder.layers), strict=True)
    blocks = {f"{layer}{name}": v for name, vs in kept for layer, v in zip(encoder.layers, vs, strict=True)}
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **blocks)
    with room_for(f"the corpus's vectors in '{path}'"):
        path.parent.mkdir(parents=True, exist_ok=True)
        return atomic_write(path, content.getvalue())


def read_out(embeddings: LayerEmbeddings, layer: int, name: str) -> NDArray[np.float32]:
    """What a task sees of its texts (texts, dimensions), with this layer and readout."""
    readout = Readout.parse(name)
    pooled = {each: embeddings.at(each, readout.pooling) for each in readout.layers_of(layer)}
    fitted = _fitted(embeddings.corpus, layer, name) if readout.is_fitted else fit(readout)
    return fitted(joined(readout, pooled, layer))


@lru_cache(maxsize=32)  # a readout serves one task after the other
def _fitted(corpus: Path | None, layer: int, name: str) -> Fitted:
    readout = Readout.parse(name)
    assert corpus is not None
    try:
        with np.load(corpus) as kept:
            pooled = {each: kept[f"{each}{readout.pooling}"] for each in readout.layers_of(layer)}
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"Cannot read the vectors of the corpus in '{corpus}': {error}") from None
    return fit(readout, joined(readout, pooled, layer))


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


def score(
    embeddings: LayerEmbeddings, task: Task, layer: int, seed: int, protocol: Key, readout: str = ""
) -> dict[str, Any]:
    """The task's score of one layer and readout, with its outcomes, the protocol and versions behind it.

    Raises `UndefinedError` if there is no score.
    """
    vectors = read_out(embeddings, layer, readout)
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
        "dimensions": vectors.shape[1],
        "tokens": embeddings.tokens,
        "reading": {"texts": embeddings.texts, "layer": max(embeddings.layers), "seconds": embeddings.read_seconds},
        "protocol": protocol,
        "versions": _scoring_versions(),
        **({"size": _size_for(layer, embeddings)} if embeddings.size else {}),
        **({"detail": result.detail} if result.detail else {}),
        **({} if result.outcomes is None else {"outcomes": pack(result.outcomes, result.value, _items(task, seed))}),
    }


def _size_for(layer: int, embeddings: LayerEmbeddings) -> dict[str, Any]:
    """The size of the network, and what this layer and the deepest one that was read take of it."""
    assert embeddings.size is not None
    layers = sorted({layer, max(embeddings.layers)})
    places = [embeddings.layers.index(each) for each in layers]
    taken = {part: [embeddings.size[part][place] for place in places] for part in ("parameters", "computed")}
    return {**embeddings.size, **taken, "layers": layers}


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


def value_of(columns: Mapping[Key, Column], layers: int) -> dict[str, Any]:
    """The inverse of `columns_of`, with a row for each of so many layers; columns keep their order."""

    def rows(part: str) -> list[list[Any]]:
        numbers = [getattr(column, part) for column in columns.values()]
        return [list(row) for row in zip(*numbers, strict=True)] or [[]] * layers

    parts = {part: rows(part) for part in ("values", "stderr", "status")}
    reasons = sorted(reason for column in columns.values() for reason in column.reasons)
    names = [column.name for column in columns.values()]
    return {"names": names, "metrics": list(columns), **parts, "reasons": [list(reason) for reason in reasons]}


def known_sizes(records: Iterable[Record]) -> dict[Key, Mapping[str, Any]]:
    """The sizes of networks, by the key of the states that they gave."""
    values = (record.value or {} for record in succeeded(records, "measure"))
    return {value["states"]: value["size"] for value in values if "size" in value}


def known_columns(records: Iterable[Record]) -> dict[Key, dict[Key, Column]]:
    """All recorded columns, by the key of the states from which they were computed."""
    known: dict[Key, dict[Key, Column]] = {}
    for record in succeeded(records, "measure"):
        if "states" in (record.value or {}):  # older records name none
            columns = known.setdefault(record.value["states"], {})
            columns.update({key: column for key, column in columns_of(record.value).items() if key not in columns})
    return known


def record_text(record: Record) -> str:
    """A record in a few words: its name and its first values."""
    if not record.ok:
        return f"{record.name}  {record.status}"
    if record.kind == "train":
        return f"{record.name}  loss {record.value['loss']:.2f}"
    if record.kind in ("score", "fresh"):
        return f"{record.name}  {record.value['score']:.3f}"
    last = list(zip(record.value["names"], record.value["values"][-1], strict=True))
    return "  ".join([record.name, *(f"{name} {number:.3g}" for name, number in last[:2] if number is not None)])
