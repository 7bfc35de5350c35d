"""The functions that run on workers; they import heavy libraries when they are called."""

from __future__ import annotations

import io
import json
import secrets
import shutil
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DamageError, UndefinedError, room_for
from daskmetrics.core.events import TRAIN
from daskmetrics.core.files import atomic_write
from daskmetrics.core.fitted import Fitted, fit, joined
from daskmetrics.core.names import Checkpoint, Key, content_key, step_of
from daskmetrics.core.outcomes import pack
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import EQUAL, Measured, NetworkSize, Reading, Row, Scored, Trained
from daskmetrics.core.serialization import readable
from daskmetrics.core.text import plural, score_text
from daskmetrics.execution import Record

if TYPE_CHECKING:
    from daskmetrics.metrics import Metric
    from daskmetrics.models import Encoder
    from daskmetrics.tasks import Task

# bytes of the vectors of a task that stay in memory; a worker holds about eight tasks at a time
MEMORY = 2**27
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
    # earlier results of these states: only metrics that none of them has are computed
    recorded: tuple[Measured, ...] = ()
    following: Location | None = None  # probably measured next: read ahead, which changes no result

    @property
    def missing(self) -> dict[Key, Metric]:
        """The metrics that no earlier record has; without any, no model is loaded."""
        recorded = set(chain.from_iterable(result.metrics for result in self.recorded))
        return {key: metric for key, metric in self.metrics.items() if key not in recorded}


@dataclass(frozen=True)
class EncodeSpec:
    """Everything that encoding a task's texts with a checkpoint needs."""

    key: Key
    location: Location
    protocol: ModelProtocol
    task: Task
    layers: tuple[int, ...]
    scratch: str  # folder that all workers share, for embeddings that are too large for memory
    poolings: tuple[str, ...] = ("",)
    corpus: tuple[str, ...] = ()  # texts on which readouts are fitted, if there are such readouts
    sized: bool = False  # whether scores record the size of the network, since no measuring does


def train_to(recipe: Recipe, folder: str, revision: str, model: str) -> Trained:
    """Train a suite up to a revision and save it."""
    events = _training_events(recipe, model)
    return Trained(**training.train_to(recipe, Path(folder), revision, events))


def _training_events(recipe: Recipe, model: str) -> Callable[[int, float], None]:
    """A function that logs the steps of a training on this worker, for the live page; a revision's
    last step is always logged.
    """
    tokens = recipe.batch * recipe.accumulate * recipe.ranks * recipe.context
    last_steps = {step_of(revision) for revision in training.revisions(recipe)}
    logged_step = 0
    logged_at = 0.0

    def log(step: int, loss: float) -> None:
        nonlocal logged_step, logged_at
        clock = time.perf_counter()
        if step not in last_steps and clock - logged_at < TRAINING_INTERVAL:
            return
        event: dict[str, object] = {"model": model, "step": step, "loss": loss}
        if logged_at:  # loading does not count
            event["tokens_per_second"] = tokens * (step - logged_step) / (clock - logged_at)
        get_worker().log_event(TRAIN, event)
        logged_step = step
        logged_at = clock

    return log


def measure(spec: MeasureSpec) -> Measured:
    """All metrics of all layers of one checkpoint, from one load and one forward pass over each
    view of the prompts.

    There is no forward pass if all metrics are known. The worker writes the checkpoint's chunk of
    the store; the chunk is committed when the returned values are in the journal. Without metrics
    there is no such chunk.
    """
    from daskmetrics import store

    results = spec.recorded
    download = None
    if spec.missing:
        computed = _reduce(spec)
        download = computed.download
        results = (computed, *results)
    size = next((result.size for result in results if result.size), None)
    copies = next((result.copies for result in results if result.copies), None)
    result = joined_results(results, tuple(spec.metrics), spec.layers)
    if spec.metrics:
        # the driver writes a damaged store again from the journal, which gets this result
        with suppress(DamageError):
            store.write(Path(spec.store), "metrics", spec.checkpoint, store.Block.of(result))
    return replace(result, states=spec.states_key, size=size, download=download, copies=copies)


def joined_results(
    results: Sequence[Measured], metrics: tuple[Key, ...], layers: tuple[int, ...]
) -> Measured:
    """These metrics, in this order, from results that have all of them between them; the earlier
    result counts.

    >>> one = Measured((0,), ("a",), ((0.5,),), ((None,),), ((1,),), metrics=("k",))
    >>> joined_results([one], ("k",), (0,)) == one
    True
    """
    columns = {
        key: (result, column)
        for result in reversed(results)
        for column, key in enumerate(result.metrics)
    }
    chosen = [columns[key] for key in metrics]

    def rows(name: str) -> tuple[tuple[Any, ...], ...]:
        of_metrics = [np.array(getattr(result, name), object)[:, i] for result, i in chosen]
        return tuple(zip(*of_metrics, strict=True)) or ((),) * len(layers)

    names = []
    reasons: list[tuple[int, str, str]] = []
    for result, column in chosen:
        name = result.names[column]
        names.append(name)
        reasons += (reason for reason in result.reasons if reason[1] == name)
    return Measured(
        layers=layers,
        names=tuple(names),
        values=rows("values"),
        stderr=rows("stderr"),
        status=rows("status"),
        reasons=tuple(sorted(reasons)),
        metrics=metrics,
    )


def _reduce(spec: MeasureSpec) -> Measured:
    """The values of the missing metrics, by one forward pass over each view of the prompts."""
    from daskmetrics.metrics import engine
    from daskmetrics.models import Encoder, LoadedModel

    with readable("The prompts of the run", spec.prompts, DamageError):
        prompts: list[str] = json.loads(Path(spec.prompts).read_text(encoding="utf-8"))
        if digest(prompts) != spec.prompts_key:
            raise ValueError("they were changed")
    metrics = spec.missing
    with (
        rolling.held(spec.location.rolling) as download,
        LoadedModel(spec.location, spec.protocol.base, following=spec.following) as model,
    ):
        encoder = Encoder(model, spec.protocol, spec.layers)
        texts = encoder.distinct(prompts)
        reducer = engine.Reducer(tuple(metrics.values()), spec.layers, len(texts))
        encoder.reduce(texts, reducer, spec.seed)
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
        copies=len(prompts) - len(texts) or None,
    )


def _rows(numbers: NDArray[np.float64]) -> tuple[Row, ...]:
    """Rows of an array, with None for NaN."""
    cells = numbers.astype(object)
    cells[np.isnan(numbers)] = None
    return tuple(map(tuple, cells.tolist()))


class LayerEmbeddings:
    """Vectors (layers, texts, D) of float32 by pooling, with the seconds, the worker and the tokens
    of their encoding.

    They are in memory if they are small, otherwise in files, each of one layer and pooling, with
    rows in the order of the batches: files are only appended to, and scoring a layer reads its file
    alone. Files outlive this object, since Dask may delete it and keep a copy; the driver removes them
    with `remove` when no unit can need them any more. The content key is part of their names.
    """

    def __init__(
        self,
        layers: Sequence[int],
        texts: int,
        widths: Mapping[str, int],
        folder: Path,
        key: Key,
    ) -> None:
        self.layers = tuple(layers)
        self.texts = texts
        self.widths = dict(widths)
        self.seconds = 0.0
        self.read_seconds = 0.0  # of these, without loading the model
        self.worker: str | None = None
        self.tokens: float | None = None  # read per text of the task, in the mean
        self.size: NetworkSize | None = None  # of the network
        self.places = np.arange(texts)  # of the task's texts, some of which may share a vector
        # file of the corpus's vectors, if readouts are fitted on them
        self.corpus: Path | None = None
        self._rows = np.arange(texts)
        self._checksums: Counter[Path] = Counter()  # of the files
        self._vectors: dict[str, NDArray[np.float32]] | None = None  # by pooling
        self._folder = folder / f"{key}-{secrets.token_hex(4)}"
        if self.nbytes <= MEMORY:
            self._vectors = {
                pooling: np.empty((len(self.layers), texts, width), dtype=np.float32)
                for pooling, width in self.widths.items()
            }
        else:
            with room_for(f"embeddings in '{self._folder}'"):
                self._folder.mkdir(parents=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors, in memory or in files."""
        return 4 * len(self.layers) * self.texts * sum(self.widths.values())

    def put(self, texts: NDArray[np.intp], pooled: Sequence[NDArray[np.float32]]) -> None:
        """Add the vectors (layers, B, D) of B texts, by pooling, replacing earlier ones of these
        texts.
        """
        if self._vectors is not None:
            for kept, vectors in zip(self._vectors.values(), pooled, strict=True):
                kept[:, texts] = vectors
            return
        with room_for(f"embeddings in '{self._folder}'"):
            for (pooling, width), vectors in zip(self.widths.items(), pooled, strict=True):
                for layer, block in zip(self.layers, vectors, strict=True):
                    path = self._file(layer, pooling)
                    content = np.ascontiguousarray(block, dtype=np.float32).tobytes()
                    with path.open("ab") as file:
                        start = file.tell() // (4 * width)
                        file.write(content)
                    self._checksums[path] = zlib.crc32(content, self._checksums[path])
        self._rows[texts] = start + np.arange(len(texts))

    def at(self, layer: int, pooling: str = "") -> NDArray[np.float32]:
        """The vectors of a layer, shape (texts, D), by `places`; `DamageError` if their file cannot
        be read.
        """
        if self._vectors is not None:
            vectors: NDArray[np.float32] = self._vectors[pooling][self.layers.index(layer)]
        else:
            path = self._file(layer, pooling)
            with readable("Embeddings", path, DamageError):
                content = path.read_bytes()
                if zlib.crc32(content) != self._checksums[path]:
                    raise ValueError("they were changed")
            vectors = np.frombuffer(content, np.float32).reshape(-1, self.widths[pooling])
        return vectors[self._rows[self.places]]

    def _file(self, layer: int, pooling: str) -> Path:
        return self._folder / f"{layer}{pooling}.f32"

    def __sizeof__(self) -> int:
        """Bytes in memory, for Dask's estimate of the cost of a transfer."""
        return 0 if self._vectors is None else self.nbytes


def remove(folder: Path, key: Key) -> None:
    """Remove all files of the embeddings of this key."""
    for path in folder.glob(f"{key}-*"):
        shutil.rmtree(path, ignore_errors=True)


def encode(spec: EncodeSpec) -> LayerEmbeddings:
    """A task's texts as vectors of all layers, in one forward pass."""
    from daskmetrics.models import Encoder, LoadedModel

    with rolling.held(spec.location.rolling):
        started = time.perf_counter()  # without the wait for a download
        with LoadedModel(spec.location, spec.protocol.base) as model:
            embeddings = encode_task(Encoder(model, spec.protocol, spec.layers), spec)
            if spec.sized and (size := model.size(spec.layers)):
                embeddings.size = replace(size, layers=spec.layers)
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
    embeddings = LayerEmbeddings(encoder.layers, len(texts), widths, Path(spec.scratch), spec.key)
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
    embeddings.tokens = float(tokens[places].mean())
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

    poolings = _poolings(spec)
    texts = spec.corpus
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
    with readable("The vectors of the corpus", corpus, DamageError), np.load(corpus) as kept:
        layers = readout.layers_of(layer)
        pooled = {number: kept[f"{number}{readout.pooling}"] for number in layers}
    return fit(readout, joined(readout, pooled, layer))


def _distinct(
    task: Task, prompts: Prompts
) -> tuple[Sequence[str], Sequence[str], NDArray[np.intp]]:
    """Prompts and texts of a task, each pair once, and the place of each of its texts among them.

    A text that is both a query and a document is read twice only if its prompts differ.
    """
    from daskmetrics.tasks.task import roles_of

    name = getattr(task, "benchmark_name", task.name)
    texts = task.texts()
    pairs = [
        (prompts.of(role, name, task.kind), text)
        for role, text in zip(roles_of(task), texts, strict=True)
    ]
    index = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
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
        size=embeddings.size,
        detail=result.detail or None,
        outcomes=outcomes,
    )


@cache
def _scoring_versions() -> dict[str, str]:
    """Versions of the libraries that score; the journal holds this worker's other versions beside
    its name.
    """
    from importlib.metadata import distributions

    names = ("scikit-learn", "mteb", "xgboost-cpu", "xgboost", "lightgbm")
    packages = chain.from_iterable(distributions(name=name) for name in names)
    return {package.name: package.version for package in packages}


def record_text(record: Record) -> str:
    """A record in a few words: its name and its first values."""
    if not record.ok:
        return f"{record.name}  {record.status}"
    match record.value:
        case Trained(loss=loss):
            return f"{record.name}  loss {loss:.2f}"
        case Scored(score=score):
            return f"{record.name}  {score_text(score)}"
        case Measured(names=names, values=(*_, deepest), copies=copies):
            metrics = zip(names[:2], deepest, strict=False)
            shown = [f"  {name} {number:.3g}" for name, number in metrics if number is not None]
            if copies:
                shown.append(
                    f"  (without {plural(copies, 'prompt')} with the tokens of another one)"
                )
            return record.name + "".join(shown)
    return record.name
