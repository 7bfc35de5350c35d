"""Encoders of a user's own: a function that reads items of any kind, at layers of any network."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daskmetrics.checkpoints.cache import keep, recall
from daskmetrics.checkpoints.digests import digests_of, has_changed, stamps_of
from daskmetrics.checkpoints.folders import revisions_of
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
from daskmetrics.core.text import listed
from daskmetrics.core.user_code import callee_of
from daskmetrics.domain.names import Suite, order_problem, training_order
from daskmetrics.execution.map.function import load, load_function, sent
from daskmetrics.experiment._worker import (
    EncoderProtocol,
    EncodeSpec,
    LayerEmbeddings,
    distinct,
)
from daskmetrics.experiment.vectors import check_pooled, suite_of
from daskmetrics.tasks import Task
from daskmetrics.tasks.file import FileTask

if TYPE_CHECKING:
    from torch import Tensor

#: share of a vector's length by which rounding may change it, also that of half precision
ROUNDING = 0.01
_WILD = set("*?[")  # in a pattern
_FEW = 8  # items that are read together to be compared
_WANTED = (
    "Return an array of one layer, a list of layers or a dict of named layers, each of shape (n, D)"
    " or (n, T, D) for n items, or a pair of these and of a mask (n, T)."
)


def _image(path: Path) -> object:
    from PIL import Image

    with Image.open(path) as image:
        return image.convert("RGB")


def _audio(path: Path) -> tuple[NDArray[np.float32], int]:
    try:
        import soundfile
    except ImportError:
        return _wave(path)
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return samples.mean(1), rate


def _wave(path: Path) -> tuple[NDArray[np.float32], int]:
    import wave

    with wave.open(str(path)) as file:
        frames = file.readframes(file.getnframes())
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
    if width not in (2, 4):
        raise ValueError(f"it has {8 * width} bits for each sample: pip install soundfile")
    samples = np.frombuffer(frames, f"<i{width}").astype(np.float32) / 2 ** (8 * width - 1)
    return samples.reshape(-1, channels).mean(1), rate


#: how the file of an item is read, by what an encoder reads
READERS: Mapping[str, Callable[[Path], object]] = {
    "path": lambda path: path,
    "image": _image,
    "audio": _audio,
    "array": lambda path: np.load(path, allow_pickle=False),
}
TEXT = "text"  # an item that is no file


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

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Its files, by their names in a folder."""
        if self.path is None or self.path.is_file():
            return {"": self.path} if self.path else {}
        paths = filter(Path.is_file, self.path.rglob("*"))
        return {str(path.relative_to(self.path)): path for path in paths}


def encoder_revisions(encoder: Encoder) -> list[Revision]:
    """The checkpoints of an encoder, in the order of training.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if encoder.checkpoints is None:
        return [Revision(encoder, "main", None)]
    *folder, last = expanded(encoder.checkpoints).absolute().parts
    fixed = list(takewhile(_WILD.isdisjoint, folder))
    pattern = "/".join([*folder[len(fixed) :], last])
    root = Path(*fixed)
    suffix = Path(last).suffix
    if not _WILD.isdisjoint(suffix):
        suffix = ""
    by_name = {
        str(path.relative_to(root)).removesuffix(suffix): path for path in root.glob(pattern)
    }
    if not by_name:
        raise ConfigError(
            f"No file or folder matches '{root / pattern}', the checkpoints of '{encoder.name}'."
            " Correct the pattern, such as 'out/*.pth'."
        )
    return [Revision(encoder, name, by_name[name]) for name in training_order(by_name)]


_kept: dict[Key, LoadedEncoder] = {}  # of this process, at most one


@dataclass(frozen=True)
class EncoderReader:
    """A checkpoint that a user's function reads, on any worker."""

    location: Location
    protocol: EncoderProtocol
    make: bytes  # pickled
    checkpoint: Path | None
    batch_size: int
    layers: tuple[int | str, ...]  # what all layers are called

    def encode(self, spec: EncodeSpec) -> LayerEmbeddings:
        key = content_key(self.location.identity, self.protocol.key)
        if key not in _kept:
            _kept.clear()  # before the next one needs its memory
            encoder = Encoder(
                load_function(self.make),
                items=self.protocol.items,
                batch_size=self.batch_size,
                name=self.protocol.encoder,
            )
            loaded = LoadedEncoder(encoder, self.checkpoint)
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


def locate(model: Model, tasks: Sequence[Task]) -> LocatedSuite:
    """The checkpoints of a model with an encoder.

    Its layers are found out here by reading an item with the first of them, once for each version.

    Raises
    ------
    ConfigError
        If there is no such function, checkpoint, layer or task.
    DataError
        If the item cannot be read.
    """
    if not tasks:
        raise ConfigError(f"Model '{model.name}' has an encoder, which needs tasks. Give one.")
    by_name = {revision.name: revision for revision in encoder_revisions(_encoder_of(model))}
    chosen = [by_name[name] for name in revisions_of(model, by_name)]
    locations = tuple(
        Location(
            path=str(revision.path or model.encoder),
            revision=None,
            identity=content_key("checkpoint", sorted(digests.items())),
            stamps=stamps_of(revision.files.values()),
        )
        for revision, digests in zip(
            chosen, digests_of([revision.files for revision in chosen]), strict=True
        )
    )
    protocol, _ = _sent(model)
    entry = content_key("layers", locations[0].identity, protocol.key, tasks[0].key)
    cached = cache_folder() / "encoders" / f"{entry}.json"
    widths = dict((recall(cached) or {}).get("widths", ()))
    if not widths:
        loaded = LoadedEncoder(chosen[0].encoder, chosen[0].path, device="cpu")
        loaded.read(tasks[0], tasks[0].texts()[:1])
        widths = loaded.widths
        keep(cached, {"widths": [*widths.items()]})
    names = tuple(revision.name for revision in chosen)
    unordered = filter(None, [order_problem(names)])
    return LocatedSuite(
        suite=suite_of(model.name, names, [*widths], model.layers, ("",)),
        locations=locations,
        width=max(widths.values()),
        warnings=tuple(f"{model.name}: {text}" for text in unordered),
    )


def readers_of(model: Model, suite: Suite, located: LocatedSuite) -> list[EncoderReader]:
    """What reads each checkpoint of a suite with an encoder."""
    check_pooled(suite, located.width)
    protocol, make = _sent(model)
    layers = tuple(map(suite.layer_name, range(suite.depth + 1)))
    return [
        EncoderReader(
            location,
            protocol,
            make,
            Path(location.path) if model.checkpoints else None,
            model.batch_size,
            layers,
        )
        for location in located.locations
    ]


def _encoder_of(model: Model) -> Encoder:
    return Encoder(
        load(str(model.encoder)),
        model.checkpoints,
        items=model.items,
        batch_size=model.batch_size,
        name=model.name,
    )


def _sent(model: Model) -> tuple[EncoderProtocol, bytes]:
    """How a model reads items, and its function for the workers."""
    code, make = sent(load(str(model.encoder)), model.version)
    return EncoderProtocol(str(model.encoder), model.items, model.version or code), make


def tasks_of_items(tasks: tuple[Task, ...], kinds: Collection[str]) -> tuple[Task, ...]:
    """The tasks as models read them, by the kinds of items of these.

    Raises
    ------
    ConfigError
        If the kinds differ, or a task does not have such items.
    """
    if len({*kinds}) > 1:
        raise ConfigError(
            f"The models read items of several kinds: {listed(sorted({*kinds}))}. Compare those of"
            " one kind."
        )
    if TEXT in kinds:
        return tasks
    return tuple(map(_of_files, tasks))


def _of_files(task: Task) -> Task:
    """A task whose texts are paths of files: their content is part of its key.

    Raises
    ------
    ConfigError
        If the texts are not those of a table, or a file is missing.
    """
    if not isinstance(task, FileTask):
        raise ConfigError(
            f"The encoder reads files, and '{task.name}' has texts. Give a table with the paths of"
            " the files, such as file:scans.csv(text=file, label=grade)."
        )
    files = {text: _path(task, text) for text in task.texts()}
    for text, path in files.items():
        if not path.is_file():
            raise ConfigError(
                f"'{task.name}' names '{text}', and there is no file '{path}'. Write paths that are"
                " absolute, or relative to the folder of the table."
            )
    (digests,) = digests_of([files])
    return replace(task, items=content_key(sorted(digests.items())))


def _path(task: Task, text: str) -> Path:
    folder = Path(task.path).parent if isinstance(task, FileTask) else Path()
    return folder / expanded(text)


class LoadedEncoder:
    """What a user's function made of a checkpoint, which reads items in batches.

    Raises
    ------
    DataError
        If the function fails, or returns none.
    """

    def __init__(
        self, encoder: Encoder, checkpoint: Path | None, device: str | None = None
    ) -> None:
        import torch

        self._encoder = encoder
        self._where = f"'{encoder.name}'"
        if checkpoint:
            self._where += f" of '{checkpoint}'"
        self.widths: dict[int | str, int] = {}  # of each layer
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        with _user_errors(f"The encoder {self._where} cannot be made"):
            self._encode = encoder.make(checkpoint and str(checkpoint), device)
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
        texts = distinct(task, NO_PROMPTS)[1][: min(_FEW, self._encoder.batch_size)]
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
        embeddings = LayerEmbeddings(spec.layers, len(texts), widths, Path(spec.scratch), spec.key)
        embeddings.places = places
        size = self._encoder.batch_size
        started = time.perf_counter()
        for start in range(0, len(texts), size):
            batch = texts[start : start + size]
            vectors = self.read(spec.task, batch)
            rows = np.arange(start, start + len(batch))
            embeddings.put(rows, [[vectors[name] for name in names]])
            tell(len(batch) / len(texts))
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
        path = _path(task, text)
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
