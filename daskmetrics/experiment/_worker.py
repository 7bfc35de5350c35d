"""The functions that run on workers; they import heavy libraries when they are called."""

from __future__ import annotations

import json
import secrets
import shutil
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from distributed import get_worker
from numpy.typing import NDArray

from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import ModelProtocol
from daskmetrics.config.prompts import Prompts
from daskmetrics.core.corpus import digest
from daskmetrics.core.errors import DamageError, UndefinedError, room_for
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.serialization import readable
from daskmetrics.core.text import plural, score_text
from daskmetrics.domain.names import Checkpoint
from daskmetrics.domain.outcomes import pack
from daskmetrics.domain.readouts import Readout
from daskmetrics.domain.results import EQUAL, Measured, NetworkSize, Reading, Row, Scored
from daskmetrics.execution import Record

if TYPE_CHECKING:
    from daskmetrics.metrics import Metric
    from daskmetrics.models import TextEncoder
    from daskmetrics.tasks import Task

# bytes of the vectors of a task that stay in memory; a worker holds about eight tasks at a time
MEMORY = 2**27


@dataclass(frozen=True)
class EncodeSpec:
    """What is to be encoded: a task's items, at layers."""

    key: Key
    task: Task
    layers: tuple[int, ...]
    scratch: Path  # folder that all workers share, for embeddings that are too large for memory
    poolings: tuple[str, ...] = ("",)
    sized: bool = False  # whether scores record the size of the network, since no measuring does


class ItemReader(Protocol):
    """A checkpoint that encodes items, on any worker."""

    @property
    def location(self) -> Location:
        """Where the checkpoint is."""

    @property
    def protocol(self) -> ModelProtocol | EncoderProtocol:
        """How items become vectors."""

    def encode(self, spec: EncodeSpec) -> LayerEmbeddings:
        """The vectors of a task's items."""


@dataclass(frozen=True)
class EncoderProtocol:
    """How a user's function makes vectors of items."""

    encoder: str
    items: str
    version: str  # of the code
    shipped: ClassVar[None] = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def key(self) -> Key:
        return content_key(self.encoder, self.items, self.version)

    @property
    def summary(self) -> str:
        return f"{self.items} read by {self.encoder}, version {self.version[:12]}"


@dataclass(frozen=True)
class TextReader:
    """A checkpoint that reads texts as its protocol says."""

    location: Location
    protocol: ModelProtocol

    def encode(self, spec: EncodeSpec) -> LayerEmbeddings:
        from daskmetrics.models import LoadedModel, TextEncoder

        with LoadedModel(self.location, self.protocol.base) as model:
            embeddings = encode_task(TextEncoder(model, self.protocol, spec.layers), spec)
            if spec.sized and (size := model.size(spec.layers)):
                embeddings.size = replace(size, layers=spec.layers)
        return embeddings


@dataclass(frozen=True)
class MeasureSpec:
    """Everything that measuring one checkpoint needs."""

    checkpoint: Checkpoint
    reader: ItemReader  # of texts, where there are metrics
    layers: tuple[int, ...]
    metrics: Mapping[Key, Metric]  # the requested metrics, in this order
    prompts: Path  # file, on a disk that all workers share
    prompts_key: Key
    store: Path
    seed: int
    states_key: Key  # of the states from which metrics are computed
    # earlier results of these states: only metrics that none of them has are computed
    recorded: tuple[Measured, ...] = ()
    following: Location | None = None  # probably measured next: read ahead, which changes no result

    @property
    def missing(self) -> dict[Key, Metric]:
        """The metrics that no earlier record has.

        Without any, no model is loaded.
        """
        recorded = set(chain.from_iterable(result.metrics for result in self.recorded))
        return {key: metric for key, metric in self.metrics.items() if key not in recorded}


def measure(spec: MeasureSpec) -> Measured:
    """Compute all metrics of all layers of one checkpoint.

    It is loaded once, with one forward pass over each view of the prompts. There is no forward pass
    if all metrics are known. The worker writes the checkpoint's chunk of the store; the chunk is
    committed when the returned values are in the journal. Without metrics there is no such chunk.
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
            store.write(spec.store, "metrics", spec.checkpoint, store.Block.of(result))
    return replace(result, states=spec.states_key, size=size, download=download, copies=copies)


def joined_results(
    results: Sequence[Measured], metrics: tuple[Key, ...], layers: tuple[int, ...]
) -> Measured:
    """These metrics, in this order, joined from several results.

    They have all of these between them; the earlier result counts.

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
    from daskmetrics.metrics import engine
    from daskmetrics.models import LoadedModel, TextEncoder

    with readable("The prompts of the run", spec.prompts, DamageError):
        prompts: list[str] = json.loads(spec.prompts.read_text(encoding="utf-8"))
        if digest(prompts) != spec.prompts_key:
            raise ValueError("they were changed")
    metrics = spec.missing
    assert isinstance(spec.reader, TextReader)
    location, protocol = spec.reader.location, spec.reader.protocol
    with (
        rolling.held(location.rolling) as download,
        LoadedModel(location, protocol.base, following=spec.following) as model,
    ):
        encoder = TextEncoder(model, protocol, spec.layers)
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


class Embeddings(ABC):
    """Vectors of a task's texts at some layers, and what encoding them took."""

    layers: tuple[int, ...]
    texts = 0  # that were read
    nbytes = 0  # of the vectors, in memory or in files
    seconds = 0.0
    read_seconds = 0.0  # of these, without loading the model
    worker: str | None = None
    tokens: float | None = None  # read per text of the task, in the mean
    size: NetworkSize | None = None  # of the network

    @abstractmethod
    def at(self, layer: int, pooling: str = "") -> NDArray[np.floating[Any]]:
        """The vectors of a layer (texts, D), in the order of the task's texts."""


class LayerEmbeddings(Embeddings):
    """Vectors (texts, D) of float32 by pooling and layer.

    They are in memory if they are small, otherwise in files, each of one layer and pooling, with
    rows in the order of the batches: files are only appended to, and scoring a layer reads its file
    alone. Files outlive this object, since Dask may delete it and keep a copy; the driver removes
    them with `remove` when no unit can need them any more. The content key is part of their names.
    """

    def __init__(
        self,
        layers: Sequence[int],
        texts: int,
        widths: Mapping[str, Sequence[int]],  # of each layer, by pooling
        folder: Path,
        key: Key,
    ) -> None:
        self.layers = tuple(layers)
        self.texts = texts
        self.widths = {name: tuple(of_layers) for name, of_layers in widths.items()}
        self.nbytes = 4 * texts * sum(map(sum, self.widths.values()))
        self.places = np.arange(texts)  # of the task's texts, some of which may share a vector
        self._rows = np.arange(texts)
        self._checksums: Counter[Path] = Counter()  # of the files
        # by pooling, of each layer
        self._vectors: dict[str, list[NDArray[np.float32]]] | None = None
        self._folder = folder / f"{key}-{secrets.token_hex(4)}"
        if self.nbytes <= MEMORY:
            self._vectors = {
                pooling: [np.empty((texts, width), np.float32) for width in of_layers]
                for pooling, of_layers in self.widths.items()
            }
        else:
            with room_for(f"embeddings in '{self._folder}'"):
                self._folder.mkdir(parents=True)

    def put(self, texts: NDArray[np.intp], pooled: Sequence[Iterable[NDArray[np.float32]]]) -> None:
        """Add the vectors (B, D) of B texts, of each layer by pooling.

        They replace earlier ones of these texts.
        """
        if self._vectors is not None:
            for vectors, block in zip(chain(*self._vectors.values()), chain(*pooled), strict=True):
                vectors[texts] = block
            return
        with room_for(f"embeddings in '{self._folder}'"):
            for pooling, blocks in zip(self.widths, pooled, strict=True):
                for layer, block in zip(self.layers, blocks, strict=True):
                    path = self._file(layer, pooling)
                    content = np.ascontiguousarray(block, dtype=np.float32).tobytes()
                    with path.open("ab") as file:
                        start = file.tell() // (4 * block.shape[1])
                        file.write(content)
                    self._checksums[path] = zlib.crc32(content, self._checksums[path])
        self._rows[texts] = start + np.arange(len(texts))

    def at(self, layer: int, pooling: str = "") -> NDArray[np.float32]:
        """The vectors of a layer (texts, D), by `places`.

        Raises
        ------
        DamageError
            If their file cannot be read.
        """
        number = self.layers.index(layer)
        if self._vectors is not None:
            vectors: NDArray[np.float32] = self._vectors[pooling][number]
        else:
            path = self._file(layer, pooling)
            with readable("Embeddings", path, DamageError):
                content = path.read_bytes()
                if zlib.crc32(content) != self._checksums[path]:
                    raise ValueError("they were changed")
            vectors = np.frombuffer(content, np.float32).reshape(-1, self.widths[pooling][number])
        return vectors[self._rows[self.places]]

    def _file(self, layer: int, pooling: str) -> Path:
        return self._folder / f"{layer}{pooling}.f32"

    def __sizeof__(self) -> int:
        """Bytes in memory, from which Dask estimates transfers."""
        return 0 if self._vectors is None else self.nbytes


def remove(folder: Path, key: Key) -> None:
    """Remove all files of the embeddings of this key."""
    for path in folder.glob(f"{key}-*"):
        shutil.rmtree(path, ignore_errors=True)


def encode(reader: ItemReader, spec: EncodeSpec) -> LayerEmbeddings:
    """Encode a task's items at all layers, each once."""
    with rolling.held(reader.location.rolling):
        started = time.perf_counter()  # without the wait for a download
        embeddings = reader.encode(spec)
    embeddings.seconds = time.perf_counter() - started
    with suppress(ValueError):  # outside a cluster
        embeddings.worker = str(get_worker().name)
    return embeddings


def encode_task(encoder: TextEncoder, spec: EncodeSpec) -> LayerEmbeddings:
    """Encode a task's texts at all layers, by pooling.

    An empty pooling is the task's or protocol's.
    """
    from daskmetrics.models import Pooler

    prompts, texts, places = distinct(spec.task, encoder.protocol.prompts)
    poolings = [name or spec.task.pooling or "" for name in spec.poolings]
    pooler = Pooler(encoder.model, encoder.protocol, texts, prompts, poolings)
    widths = {
        pooling: [width] * len(encoder.layers)
        for pooling, width in zip(spec.poolings, pooler.widths, strict=True)
    }
    embeddings = LayerEmbeddings(encoder.layers, len(texts), widths, spec.scratch, spec.key)
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
    return embeddings


def distinct(task: Task, prompts: Prompts) -> tuple[Sequence[str], Sequence[str], NDArray[np.intp]]:
    """Distinct pairs of prompt and text, and each text's place among them.

    A text that is both a query and a document is read twice only if its prompts differ.
    """
    from daskmetrics.tasks.task import roles_of

    name = task.benchmark_name
    texts = task.texts()
    pairs = [
        (prompts.of(role, name, task.kind), text)
        for role, text in zip(roles_of(task), texts, strict=True)
    ]
    index = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    places = np.array([index[pair] for pair in pairs])
    return [prompt for prompt, _ in index], [text for _, text in index], places


def score(
    embeddings: Embeddings, task: Task, layer: int, seed: int, protocol: Key, readout: str = ""
) -> Scored:
    """Score one layer and readout on a task.

    The result has the outcomes, and the protocol and versions behind them. Raises `UndefinedError`
    if there is no score.
    """
    reading = Readout.parse(readout)
    vectors = reading.of(embeddings.at(layer, reading.pooling))
    if not np.isfinite(vectors).all():
        raise UndefinedError("The embeddings are not finite.")
    if len(vectors) > 1 and np.ptp(vectors, axis=0).max() <= EQUAL * np.abs(vectors).max():
        raise UndefinedError(f"The embeddings are equal for all {len(vectors)} texts.")
    result = task.evaluate(vectors, seed)
    if not np.isfinite(result.value):
        raise UndefinedError(f"{task.name} gave {result.value}.")
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
    # the journal holds this worker's other versions beside its name
    from importlib.metadata import distributions

    names = ("scikit-learn", "mteb", "xgboost-cpu", "xgboost", "lightgbm")
    packages = chain.from_iterable(distributions(name=name) for name in names)
    return {package.name: package.version for package in packages}


def record_text(record: Record) -> str:
    """A record in a few words: name and first values."""
    if not record.ok:
        return f"{record.name}  {record.status}"
    match record.value:
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
