"""Encoders of a user's own: a function that reads items of any kind, at layers of any network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.checkpoints.cache import keep, recall
from daskmetrics.checkpoints.digests import digests_of, files_of, has_changed, stamps_of
from daskmetrics.checkpoints.folders import matching_checkpoints, revisions_of
from daskmetrics.checkpoints.locations import LocatedSuite, Location
from daskmetrics.config import Model
from daskmetrics.config.prompts import NO_PROMPTS
from daskmetrics.core.errors import (
    NO_ROOM,
    ConfigError,
    DaskmetricsError,
    DataError,
    describe,
    is_out_of_memory,
    require_known,
)
from daskmetrics.core.files import cache_folder, expanded
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.progress import tell
from daskmetrics.core.user_code import callee_of
from daskmetrics.domain.names import order_problem
from daskmetrics.execution.map.function import load, load_function, sent
from daskmetrics.experiment._worker import (
    EncoderProtocol,
    EncodeSpec,
    LayerEmbeddings,
    distinct,
)
from daskmetrics.experiment.items import READERS, TEXT, path_of, require_unchanged
from daskmetrics.experiment.vectors import check_pooled, suite_of
from daskmetrics.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

#: share of a vector's length by which rounding may change it, also that of half precision
ROUNDING = 0.01
_FEW = 8  # items that are read together to be compared
_WANTED = (
    "Return an array of one layer, a list of layers or a dict of named layers, each of shape (n, D)"
    " or (n, T, D) for n items, or a pair of these and of a mask (n, T)."
)


@dataclass(frozen=True)
class Encoder:
    """Any network of your own, as a function that reads items.

    `daskmetrics.layers` scores each of its layers, at each of its checkpoints.

    Parameters
    ----------
    make : callable
        ``make(checkpoint, device)`` loads a checkpoint, once on each worker, and returns a function
        ``encode``. ``device`` is ``"cuda"`` or ``"cpu"``. ``encode(items)`` gets a list of n items
        and returns an array of one layer, a list or tuple of layers, which are numbered from 0, or
        a dict of named layers, whose widths may differ. Each has the shape (n, D), or (n, T, D) of
        which the mean over T is taken. A pair of these and of a mask (n, T), of bools or whole
        numbers, takes the mean over the T that are not 0. Arrays are those of NumPy, torch, JAX or
        any library with DLPack, on any device.
    checkpoints : str or Path, optional
        A pattern of files or folders, such as ``"out/*.pth"``, in the order of the steps in their
        names. Without it, ``make`` is called once, with None.
    items : {"text", "path", "image", "audio", "array"}
        What ``encode`` gets of each item: its text; or of the file with this path a `pathlib.Path`,
        an RGB image of Pillow, a pair of float32 samples (mono) and their rate, or the array of a
        ``.npy``. Paths are relative to the folder of their table.
    batch_size : int
        Items that ``encode`` gets at most.
    name : str
        In results; by default that of the function.

    Raises
    ------
    ConfigError
        If an argument is not valid, or no file matches the pattern.

    Examples
    --------
    >>> def bag(checkpoint, device):
    ...     return lambda texts: {"length": np.array([[len(t), t.count(" ")] for t in texts])}
    >>> Encoder(bag).name
    'bag'
    """

    make: Callable[..., Any]
    checkpoints: str | Path | None = None
    _: KW_ONLY
    items: str = TEXT
    batch_size: int = 32
    name: str = ""

    def __post_init__(self) -> None:
        if not callable(self.make):
            raise ConfigError(
                f"An encoder needs a function make(checkpoint, device), but got {self.make!r:.80}."
            )
        require_known("items of an encoder", self.items, (TEXT, *READERS))
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}. Give at least 1.")
        if not self.name:
            object.__setattr__(self, "name", callee_of(self.make).__name__.strip("<>"))


@dataclass(frozen=True)
class Revision:
    """A checkpoint of an encoder."""

    encoder: Encoder
    name: str
    path: Path | None

    @property
    def items(self) -> str:
        """What the encoder gets of each item."""
        return self.encoder.items


def encoder_revisions(encoder: Encoder) -> list[Revision]:
    """The checkpoints of an encoder, in the order of training.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if encoder.checkpoints is None:
        return [Revision(encoder, "main", None)]
    by_name = matching_checkpoints(encoder.checkpoints)
    if not by_name:
        pattern = expanded(encoder.checkpoints).absolute()
        raise ConfigError(
            f"No file or folder matches '{pattern}', the checkpoints of '{encoder.name}'."
            " Correct the pattern, such as 'out/*.pth'."
        )
    return [Revision(encoder, name, path) for name, path in by_name.items()]


_kept: dict[Key, LoadedEncoder] = {}  # of this process, at most one


@dataclass(frozen=True)
class EncoderReader:
    """A checkpoint that a user's function reads, on any worker."""

    location: Location
    protocol: EncoderProtocol
    revision: Revision
    layers: tuple[int | str, ...]  # what all layers are called

    def encode(self, spec: EncodeSpec) -> LayerEmbeddings:
        key = content_key(self.location.identity, self.protocol.key)
        if key not in _kept:
            _kept.clear()  # before the next one needs its memory
            loaded = LoadedEncoder(self.revision)
            if has_changed(self.location.stamps):
                raise DataError(
                    f"'{self.location.path}' was written again since the run began. Run again,"
                    " which reads what is there."
                )
            loaded.check(spec.task)
            if (*loaded.widths,) != self.layers:
                raise DataError(
                    f"'{self.location.path}' has the layers {[*loaded.widths]}, and the first"
                    f" checkpoint {[*self.layers]}. Return the same layers of each."
                )
            _kept[key] = loaded
        return _kept[key].encode(spec)


def located(
    model: Model, readouts: tuple[str, ...], tasks: Sequence[Task]
) -> tuple[LocatedSuite, list[EncoderReader]]:
    """The checkpoints of a model with an encoder, and what reads each.

    Its layers are found out here by reading an item with the first of them, once for each version.

    Raises
    ------
    ConfigError
        If there is no such function, checkpoint, layer or task, or a readout does not fit.
    DataError
        If the item cannot be read.
    """
    if not tasks:
        raise ConfigError(f"Model '{model.name}' has an encoder, which needs tasks. Give one.")
    name = str(model.encoder)
    code, payload = sent(load(name), model.version)
    protocol = EncoderProtocol(name, model.items, model.version or code)
    encoder = Encoder(
        partial(_call, payload),
        model.checkpoints,
        items=model.items,
        batch_size=model.batch_size,
        name=name,
    )
    by_name = {revision.name: revision for revision in encoder_revisions(encoder)}
    names = revisions_of(model, by_name)
    chosen = [by_name[name] for name in names]
    files = [files_of(revision.path) if revision.path else {} for revision in chosen]
    locations = tuple(
        Location(
            path=str(revision.path or name),
            revision=None,
            identity=content_key("checkpoint", sorted(digests.items())),
            stamps=stamps_of(paths.values()),
        )
        for revision, paths, digests in zip(chosen, files, digests_of(files), strict=True)
    )
    entry = content_key("layers", locations[0].identity, protocol.key, tasks[0].key)
    widths = _widths(chosen[0], tasks[0], cache_folder() / "encoders" / f"{entry}.json")
    suite = suite_of(model.name, names, [*widths], model.layers, readouts)
    width = max(widths.values())
    check_pooled(suite, width)
    warnings = tuple(f"{model.name}: {text}" for text in filter(None, [order_problem(names)]))
    readers = [
        EncoderReader(location, protocol, revision, (*widths,))
        for location, revision in zip(locations, chosen, strict=True)
    ]
    return LocatedSuite(suite, locations, width, warnings), readers


def _widths(revision: Revision, task: Task, cached: Path) -> dict[int | str, int]:
    """The width of each layer, from a file or by reading an item."""
    kept = recall(cached)
    if kept:
        return dict(kept["widths"])
    loaded = LoadedEncoder(revision, device="cpu")
    loaded.read(task, task.texts()[:1])
    keep(cached, {"widths": [*loaded.widths.items()]})
    return loaded.widths


def _call(payload: bytes, checkpoint: str | None, device: str) -> object:
    return load_function(payload)(checkpoint, device)


class LoadedEncoder:
    """What a user's function made of a checkpoint, which reads items in batches.

    Raises
    ------
    DataError
        If the function fails, or returns none.
    """

    def __init__(self, revision: Revision, device: str | None = None) -> None:
        import torch

        self._encoder = revision.encoder
        checkpoint = revision.path and str(revision.path)
        self._where = f"'{self._encoder.name}'"
        if checkpoint:
            self._where += f" of '{checkpoint}'"
        self.widths: dict[int | str, int] = {}  # of each layer
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with _user_errors(f"The encoder {self._where} cannot be made"):
            self._encode = self._encoder.make(checkpoint, device)
        if not callable(self._encode):
            raise DataError(
                f"The encoder {self._where} returned a {type(self._encode).__name__}. Return a"
                " function encode(items) -> layers."
            )

    def check(self, task: Task) -> None:
        """Read some items of a task alone, twice, and together; this finds out the layers.

        Raises
        ------
        DataError
            If they have other vectors then.
        """
        texts = [*dict.fromkeys(task.texts())][: min(_FEW, self._encoder.batch_size)]
        # the shortest text has the most padding
        row = min(range(len(texts)), key=lambda i: len(texts[i]))
        together = self.read(task, texts)
        alone = self.read(task, [texts[row]])
        again = self.read(task, [texts[row]])
        for layer, (vector,) in alone.items():
            others = {
                "gives other numbers the second time": again[layer][0],
                "depends on its batch": together[layer][row],
            }
            for problem, other in others.items():
                length = float(np.linalg.norm([vector, other], axis=1).max())
                change = float(np.linalg.norm(vector - other))
                if change > ROUNDING * length:
                    raise DataError(
                        f"Layer '{layer}' of the encoder {self._where} {problem}: the vector of"
                        f" '{texts[row]:.80}' changes by {change / length:.1%}. Call eval() of the"
                        " network, draw nothing at random, and return the mask of what is padded."
                    )

    def encode(self, spec: EncodeSpec) -> LayerEmbeddings:
        """The vectors of a task's items at all layers, in batches."""
        _, texts, places = distinct(spec.task, NO_PROMPTS)
        all_names = [*self.widths]
        names = [all_names[layer] for layer in spec.layers]
        widths = {"": [self.widths[name] for name in names]}
        embeddings = LayerEmbeddings(spec.layers, len(texts), widths, spec.scratch, spec.key)
        embeddings.places = places
        size = self._encoder.batch_size
        started = time.perf_counter()
        for start in range(0, len(texts), size):
            batch = texts[start : start + size]
            vectors = self.read(spec.task, batch)
            rows = np.arange(start, start + len(batch))
            embeddings.put(rows, [[vectors[name] for name in names]])
            tell(len(batch) / len(texts))
        require_unchanged(spec.task)
        embeddings.read_seconds = time.perf_counter() - started
        return embeddings

    def read(self, task: Task, texts: Sequence[str]) -> dict[int | str, NDArray[np.float32]]:
        """The vectors (n, D) of some items of a task by layer, always of the same widths."""
        import torch

        items = [self._item(task, text) for text in texts]
        with _user_errors(f"The encoder {self._where} fails"), torch.no_grad():
            pooled = _pooled_layers(self._encode(items))
            # copies, since the function may use its memory again
            vectors = {layer: states.cpu().numpy().copy() for layer, states in pooled.items()}
        widths = {}
        for layer, array in vectors.items():
            if array.ndim != 2 or len(array) != len(texts) or not array.size:
                raise DataError(
                    f"The encoder {self._where} returned an array of shape {array.shape} as layer"
                    f" '{layer}' of {len(texts)} items. {_WANTED}"
                )
            widths[layer] = array.shape[1]
        if not widths or widths != (self.widths or widths):
            raise DataError(
                f"The encoder {self._where} returned layers of the widths {widths}, after"
                f" {self.widths}. {_WANTED}"
            )
        self.widths = widths
        return vectors

    def _item(self, task: Task, text: str) -> object:
        kind = self._encoder.items
        if kind == TEXT:
            return text
        path = path_of(task, text)
        with _user_errors(f"'{path}' cannot be read as {kind}"):
            return READERS[kind](path)


@contextmanager
def _user_errors(what: str) -> Iterator[None]:
    """Name what failed; no memory and no disk space stay what they are, for the worker."""
    try:
        yield
    except DaskmetricsError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or getattr(error, "errno", None) in NO_ROOM:
            raise
        raise DataError(f"{what}: {describe(error).rstrip('.')}.") from error


def _pooled_layers(returned: Any) -> dict[int | str, Tensor]:
    """The layers that a user's function returned, each with its mean over T."""
    layers, mask = returned, None
    if isinstance(returned, tuple) and len(returned) == 2:
        states, second = map(_by_layer, returned)
        shapes = [_tensor(array).shape[:2] for array in states.values()]
        possible = _tensor(second.get(0, ()))
        if possible.shape in shapes and not possible.is_floating_point():
            layers, mask = returned[0], possible
    return {name: _pooled(_tensor(states), mask) for name, states in _by_layer(layers).items()}


def _by_layer(returned: Any) -> dict[int | str, Any]:
    if isinstance(returned, Mapping):
        return {str(name): states for name, states in returned.items()}
    if isinstance(returned, list | tuple):
        return dict(enumerate(returned))
    return {0: returned}


def _tensor(values: Any) -> Tensor:
    import torch

    if isinstance(values, torch.Tensor):
        return values.detach()
    if hasattr(values, "__dlpack__") and not isinstance(values, np.ndarray):
        return torch.utils.dlpack.from_dlpack(values)
    array = np.asarray(values)
    if not np.can_cast(array.dtype, np.float64):
        raise TypeError(f"it returned {array.dtype}. {_WANTED}")
    if array.dtype.kind not in "biu":
        array = array.astype(np.promote_types(array.dtype, np.float32))
    return torch.tensor(array)


def _pooled(states: Tensor, mask: Tensor | None) -> Tensor:
    from daskmetrics.models import pool

    if states.ndim != 3:
        return states.float()
    if mask is None:
        return states.float().mean(1)
    return pool(states, mask.to(states.device).bool(), "mean")
