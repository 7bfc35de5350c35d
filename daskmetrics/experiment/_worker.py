"""The functions that run on workers; they import heavy libraries when they are called."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from daskmetrics import training
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import ModelProtocol
from daskmetrics.config import Recipe
from daskmetrics.config.prompts import Prompts
from daskmetrics.core import events
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DataError, UndefinedError, room_for
from daskmetrics.core.events import TRAIN
from daskmetrics.core.files import atomic_write
from daskmetrics.core.fitted import Fitted, fit, joined
from daskmetrics.core.names import Checkpoint, Key, content_key, step_of
from daskmetrics.core.outcomes import pack
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import EQUAL, Measured, NetworkSize, Reading, Row, Scored, Trained
from daskmetrics.execution import Record
from daskmetrics.experiment._embeddings import LayerEmbeddings, memory_budget

if TYPE_CHECKING:
    from daskmetrics.metrics import Metric
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
    # metrics of earlier records: only others are computed
    recorded: Mapping[Key, Column] = field(default_factory=dict)
    size: NetworkSize | None = None  # from an earlier record
    following: Location | None = None  # probably measured next: read ahead, which changes no result

    @property
    def missing(self) -> dict[Key, Metric]:
        """The metrics that no earlier record has; without any, no model is loaded."""
        return {key: metric for key, metric in self.metrics.items() if key not in self.recorded}


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


def train_to(recipe: Recipe, folder: str, revision: str, model: str) -> Trained:
    """Train a suite up to a revision and save it."""
    events = _TrainingEvents(recipe, model)
    return Trained(**training.train_to(recipe, Path(folder), revision, events))


class _TrainingEvents:
    """Logs the steps of a training on this worker, for the live page; a revision's last step is
    always logged.
    """

    def __init__(self, recipe: Recipe, model: str) -> None:
        self.model = model
        self.tokens = recipe.batch * recipe.accumulate * recipe.ranks * recipe.context
        self.last = {step_of(revision) for revision in training.revisions(recipe)}
        self._step, self._time = 0, 0.0  # of the latest event

    def __call__(self, step: int, loss: float) -> None:
        clock = time.perf_counter()
        if step not in self.last and clock - self._time < TRAINING_INTERVAL:
            return
        speed = None
        if self._time:  # loading does not count
            speed = self.tokens * (step - self._step) / (clock - self._time)
        get_worker().log_event(
            TRAIN, {"model": self.model, "step": step, "loss": loss, "tokens_per_second": speed}
        )
        self._step, self._time = step, clock


def measure(spec: MeasureSpec) -> Measured:
    """All metrics of all layers of one checkpoint, from one load and one forward pass over each
    view of the prompts.

    There is no forward pass if all metrics are known. The worker writes the checkpoint's chunk of
    the store; the chunk is committed when the returned values are in the journal. Without metrics
    there is no such chunk.
    """
    from daskmetrics import store

    columns = dict(spec.recorded)
    size, download = spec.size, None
    if spec.missing:
        computed = _reduce(spec, spec.missing)
        columns |= columns_of(computed)
        size, download = computed.size or size, computed.download
    result = measured_of({key: columns[key] for key in spec.metrics}, spec.layers)
    if spec.metrics:
        store.write(Path(spec.store), "metrics", spec.checkpoint, store.Block.of(result))
    return replace(result, states=spec.states_key, size=size, download=download)


def _reduce(spec: MeasureSpec, metrics: Mapping[Key, Metric]) -> Measured:
    """The values of these metrics, by one forward pass over each view of the prompts."""
    from daskmetrics.metrics import engine as engine
    from daskmetrics.models import Encoder, LoadedModel

    prompts: list[str] = json.loads(Path(spec.prompts).read_text(encoding="utf-8"))
    if digest(prompts) != spec.prompts_key:
        raise DataError(
            f"'{spec.prompts}' does not hold the prompts of the run: run the same command again."
        )
    reducer = engine.Reducer(tuple(metrics.values()), spec.layers, len(prompts))
    with (
        rolling.held(spec.location.rolling) as download,
        LoadedModel(spec.location, spec.protocol.base, following=spec.following) as model,
    ):
        Encoder(model, spec.protocol, spec.layers).reduce(prompts, reducer, spec.seed)
        size = model.size(spec.layers)
    reduced = reducer.finish()
    return Measured(
        layers=spec.layers,
        names=tuple(reduced.metrics),
        values=_rows(reduced.values),
        stderr=_rows(reduced.stderr),
        status=tuple(map(tuple, reduced.status.tolist())),
        reasons=tuple((*position, reason) for position, reason in sorted(reduced.reasons.items())),
        metrics=tuple(metrics),
        size=size,
        download=download,
    )


def _rows(numbers: NDArray[np.float64]) -> tuple[Row, ...]:
    """Rows of an array, with None for NaN."""
    cells = numbers.astype(object)
    cells[np.isnan(numbers)] = None
    return tuple(map(tuple, cells.tolist()))


def encode(spec: EncodeSpec) -> LayerEmbeddings:
    """A task's texts as vectors of all layers, in one forward pass."""
    from daskmetrics.models import Encoder, LoadedModel

    with rolling.held(spec.location.rolling):
        started = time.perf_counter()  # without the wait for a download
        with LoadedModel(spec.location, spec.protocol.base) as model:
            embeddings = encode_task(Encoder(model, spec.protocol, spec.layers), spec)
            if spec.sized:
                embeddings.size = model.size(spec.layers)
    embeddings.seconds = time.perf_counter() - started
    with suppress(ValueError):  # outside a cluster
        embeddings.worker = str(get_worker().name)
    return embeddings


def encode_task(encoder: Encoder, spec: EncodeSpec) -> LayerEmbeddings:
    """A task's texts as vectors of all layers of an encoder, by pooling; an empty one is the task's
    or protocol's.
    """
    from daskmetrics.models import Pooler

    prompts, texts, places = _distinct(spec.task, encoder.protocol.prompts)
    pooler = Pooler(encoder.model, encoder.protocol, texts, prompts, _poolings(spec))
    widths = dict(zip(spec.poolings, pooler.widths, strict=True))
    budget = memory_budget(Path(spec.scratch), spec.budget)
    embeddings = LayerEmbeddings(encoder.layers, len(texts), widths, budget, spec.key)
    embeddings.places = places
    tokens = np.zeros(len(texts))

    def keep(
        rows: NDArray[np.intp], pooled: Sequence[NDArray[np.float32]], count: NDArray[np.int64]
    ) -> None:
        embeddings.put(rows, pooled)
        tokens[rows] = count

    started = time.perf_counter()
    pooler.read(encoder.layers, keep)
    embeddings.read_seconds = time.perf_counter() - started
    embeddings.tokens = float(tokens.mean() if places is None else tokens[places].mean())
    if spec.corpus:
        embeddings.corpus = _keep_corpus(encoder, spec)
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
    identity = content_key(
        spec.location.identity, spec.protocol.key, spec.layers, spec.poolings, poolings, texts
    )
    path = Path(spec.scratch) / f"corpus-{identity}.npz"
    if path.exists():
        return path
    prompt = encoder.protocol.prompts.of(None)
    pooler = Pooler(encoder.model, encoder.protocol, texts, prompt, poolings)
    names = (f"{layer}{name}" for name, layer in product(spec.poolings, encoder.layers))
    vectors = chain.from_iterable(pooler.vectors(encoder.layers))
    blocks = dict(zip(names, vectors, strict=True))
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **blocks)
    with room_for(f"the corpus's vectors in '{path}'"):
        path.parent.mkdir(parents=True, exist_ok=True)
        return atomic_write(path, content.getvalue())


def read_out(embeddings: LayerEmbeddings, layer: int, name: str) -> NDArray[np.float32]:
    """What a task sees of its texts (texts, dimensions), with this layer and readout."""
    readout = Readout.parse(name)
    layers = readout.layers_of(layer)
    pooled = {number: embeddings.at(number, readout.pooling) for number in layers}
    fitted = _fitted(embeddings.corpus, layer, name) if readout.principal else fit(readout)
    return fitted(joined(readout, pooled, layer))


@lru_cache(maxsize=32)  # a readout serves one task after the other
def _fitted(corpus: Path | None, layer: int, name: str) -> Fitted:
    readout = Readout.parse(name)
    assert corpus is not None
    try:
        with np.load(corpus) as kept:
            layers = readout.layers_of(layer)
            pooled = {number: kept[f"{number}{readout.pooling}"] for number in layers}
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"Cannot read the vectors of the corpus in '{corpus}': {error}") from None
    return fit(readout, joined(readout, pooled, layer))


def _distinct(
    task: Task, prompts: Prompts
) -> tuple[Sequence[str], Sequence[str], NDArray[np.intp] | None]:
    """Prompts and texts of a task, each pair once, and the place of each of its texts among them;
    None if all differ.

    A text that is both a query and a document is read twice only if its prompts differ.
    """
    from daskmetrics.tasks.task import roles_of

    name, texts = getattr(task, "benchmark_name", task.name), task.texts()
    pairs = [
        (prompts.of(role, name, task.kind), text)
        for role, text in zip(roles_of(task), texts, strict=True)
    ]
    index = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    places = None
    if len(index) < len(pairs):
        places = np.array([index[pair] for pair in pairs])
    return [prompt for prompt, _ in index], [text for _, text in index], places


def score(
    embeddings: LayerEmbeddings, task: Task, layer: int, seed: int, protocol: Key, readout: str = ""
) -> Scored:
    """The task's score of one layer and readout, with its outcomes, the protocol and versions
    behind it.

    Raises `UndefinedError` if there is no score.
    """
    vectors = read_out(embeddings, layer, readout)
    if not np.isfinite(vectors).all():
        raise UndefinedError(f"The embeddings of layer {layer} are not finite.")
    if len(vectors) > 1 and np.ptp(vectors, axis=0).max() <= EQUAL * np.abs(vectors).max():
        raise UndefinedError(
            f"The embeddings of layer {layer} are equal for all {len(vectors)} texts."
        )
    result = task.evaluate(vectors, seed)
    if not np.isfinite(result.value):
        raise UndefinedError(f"{task.name} gave {result.value} at layer {layer}.")
    outcomes = None
    if result.outcomes is not None:
        # outcomes with equal keys are about the same items and draws, in the same order
        items = content_key("items", task.key, seed)
        outcomes = pack(result.outcomes, result.value, items)
    return Scored(
        score=float(result.value),
        stderr=float(result.stderr),
        n=result.n,
        encode_seconds=embeddings.seconds,
        encoded_on=embeddings.worker,
        bytes=embeddings.nbytes,
        dimensions=vectors.shape[1],
        tokens=embeddings.tokens,
        reading=Reading(embeddings.texts, max(embeddings.layers), embeddings.read_seconds),
        protocol=protocol,
        versions=_scoring_versions(),
        size=_size_for(layer, embeddings),
        detail=result.detail or None,
        outcomes=outcomes,
    )


def _size_for(layer: int, embeddings: LayerEmbeddings) -> NetworkSize | None:
    """The size of the network, and what this layer and the deepest one that was read take of it."""
    size = embeddings.size
    if size is None:
        return None
    layers = sorted({layer, max(embeddings.layers)})
    rows = list(map(embeddings.layers.index, layers))
    return replace(
        size,
        parameters=tuple(map(size.parameters.__getitem__, rows)),
        computed=tuple(map(size.computed.__getitem__, rows)),
        layers=tuple(layers),
    )


@cache
def _scoring_versions() -> dict[str, str]:
    """Versions of the libraries that score; the journal holds this worker's other versions beside
    its name.
    """
    from importlib.metadata import distributions

    names = ("scikit-learn", "mteb", "xgboost-cpu", "xgboost", "lightgbm")
    return {d.name: d.version for d in distributions() if d.name in names}


@dataclass(frozen=True)
class Column:
    """One metric at all layers of a checkpoint; None for an undefined number."""

    name: str
    values: Row
    stderr: Row
    status: tuple[int, ...]
    reasons: tuple[tuple[int, str, str], ...]  # layer, metric and why it is undefined


def columns_of(result: Measured) -> dict[Key, Column]:
    """The columns of a result, by metric key.

    >>> columns_of(Measured((0,), ("a",), ((0.5,),), ((None,),), ((1,),), metrics=("k",)))["k"].values
    (0.5,)
    """
    columns = {}
    for i, (key, name) in enumerate(zip(result.metrics, result.names, strict=True)):
        columns[key] = Column(
            name,
            values=tuple(row[i] for row in result.values),
            stderr=tuple(row[i] for row in result.stderr),
            status=tuple(row[i] for row in result.status),
            reasons=tuple(reason for reason in result.reasons if reason[1] == name),
        )
    return columns


def measured_of(columns: Mapping[Key, Column], layers: tuple[int, ...]) -> Measured:
    """The inverse of `columns_of`; columns keep their order."""

    def rows(attribute: str) -> Any:
        numbers = [getattr(column, attribute) for column in columns.values()]
        return tuple(zip(*numbers, strict=True)) or ((),) * len(layers)

    return Measured(
        layers=layers,
        names=tuple(column.name for column in columns.values()),
        values=rows("values"),
        stderr=rows("stderr"),
        status=rows("status"),
        reasons=tuple(sorted(chain.from_iterable(column.reasons for column in columns.values()))),
        metrics=tuple(columns),
    )


def known_sizes(records: Iterable[Record]) -> dict[Key, NetworkSize]:
    """The sizes of networks, by the key of the states that they gave."""
    results = [result for _, result in events.measured(records)]
    return {result.states: result.size for result in results if result.states and result.size}


def known_columns(records: Iterable[Record]) -> dict[Key, dict[Key, Column]]:
    """All recorded columns, by the key of the states from which they were computed."""
    by_states: dict[Key, dict[Key, Column]] = {}
    for _, result in events.measured(records):
        if result.states:  # older records name none
            columns = by_states.setdefault(result.states, {})
            for key, column in columns_of(result).items():
                columns.setdefault(key, column)
    return by_states


def record_text(record: Record) -> str:
    """A record in a few words: its name and its first values."""
    if not record.ok:
        return f"{record.name}  {record.status}"
    match record.value:
        case Trained(loss=loss):
            return f"{record.name}  loss {loss:.2f}"
        case Scored(score=score):
            return f"{record.name}  {score:.3f}"
        case Measured(names=names, values=(*_, deepest)):
            metrics = zip(names[:2], deepest, strict=False)
            shown = (f"  {name} {number:.3g}" for name, number in metrics if number is not None)
            return record.name + "".join(shown)
    return record.name
