"""One model here and now, in this process: its vectors, metrics and scores, computed as the units
of a run do.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from daskmetrics import config, tasks
from daskmetrics import metrics as catalogue
from daskmetrics.checkpoints import locations as checkpoints
from daskmetrics.checkpoints.folders import is_model, suite_folders
from daskmetrics.checkpoints.hub import known_refs, require_answer
from daskmetrics.checkpoints.layout import MODULES
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.shipped import ModelProtocol, Shipped, protocol_of
from daskmetrics.checkpoints.shipped import read as read_shipped
from daskmetrics.config import Config
from daskmetrics.config.schema import name_of
from daskmetrics.core.errors import ConfigError, DataError, UndefinedError
from daskmetrics.core.files import expanded
from daskmetrics.core.keys import Key, content_key, seed_of
from daskmetrics.core.progress import TimeLeft, heard
from daskmetrics.core.text import score_text
from daskmetrics.domain.costs import CostModel, TextSize
from daskmetrics.domain.names import Arm, Checkpoint, Suite, training_order
from daskmetrics.domain.outcomes import Difference
from daskmetrics.domain.readouts import Readout
from daskmetrics.domain.results import Scored
from daskmetrics.domain.scores import Scores
from daskmetrics.execution.display import Display
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment import prefetch
from daskmetrics.experiment._arguments import file_name, table_rows
from daskmetrics.experiment._worker import Embeddings, EncodeSpec
from daskmetrics.experiment.encoders import (
    Encoder,
    LoadedEncoder,
    Revision,
    encoder_revisions,
)
from daskmetrics.experiment.items import TEXT, tasks_of_items
from daskmetrics.experiment.preparation import check_readouts
from daskmetrics.experiment.vectors import Vectors, check_pooled, suite_of, vectors_of
from daskmetrics.metrics import Metric
from daskmetrics.tasks import Task
from daskmetrics.tasks.file import table_task
from daskmetrics.tasks.registry import RESERVED

if TYPE_CHECKING:
    import xarray
    from torch import nn

    from daskmetrics.models import TextEncoder

# keys that a model sets for itself, which also replace what its folder ships
_MODEL_KEYS = ("pooling", "max_length")
_MAIN = "main"
_WIDTH, _LENGTH = 384, 256  # assumed of models, until their pace is known

Layers: TypeAlias = str | Sequence[int | str]
Keys: TypeAlias = Mapping[str, object]  # of a section


def embed(
    model: str | Path | nn.Module,
    texts: Sequence[str],
    layers: str | Sequence[int] = "all",
    *,
    tokenizer: object = None,
    **protocol: object,
) -> xarray.DataArray:
    """Compute the vectors of texts at all layers of a model.

    This is done as in a run, but in this process, without a cluster.

    Parameters
    ----------
    model : str, Path, SentenceTransformer or PreTrainedModel
        A folder, a hub id (``ID@REVISION`` for another revision than ``main``), or a model in
        memory.
    texts : sequence of str
    layers : "all", "blocks", or sequence of int
        Layer 0 is the embedding output.
    tokenizer : optional
        Of a model in memory, by default the one of the folder or hub id that it came from.
    **protocol
        Keys of the section ``protocol`` of a configuration: ``pooling``, ``padding``,
        ``max_length``, ``state_norm``, ``dtype``, ``batch_tokens``, ``preset``. A model in memory
        keeps its own dtype by default, and one of transformers, which ships no pooling, is read
        with the mean.

    Returns
    -------
    xarray.DataArray
        Of float32, with dimensions (text, layer, dimension).

    Raises
    ------
    ConfigError
        If there is no such model, layer or key.
    DataError
        If the model cannot be read in this way.

    Examples
    --------
    >>> vectors = embed("sentence-transformers/all-MiniLM-L6-v2", ["one text", "another"])  # doctest: +SKIP
    >>> vectors.sel(layer=3).values.shape  # doctest: +SKIP
    (2, 384)
    """
    with TextModel(model, tokenizer, protocol).opened(layers) as (encoder, _):
        return encoder.embed(texts)


def measure(
    model: str | Path | nn.Module,
    texts: Sequence[str],
    metrics: str | Metric | Sequence[str | Metric] = "all",
    layers: str | Sequence[int] = "all",
    *,
    tokenizer: object = None,
    seed: int = 0,
    **protocol: object,
) -> xarray.Dataset:
    """Compute label-free metrics of all layers of a model.

    This is done in this process, without a cluster. The numbers are those of a run with the same
    texts as its prompts.

    Parameters
    ----------
    model, texts, layers, tokenizer, **protocol
        As in `embed`.
    metrics : str, Metric, or a sequence of them
        Names of metrics, of their families, or ``all``; see ``daskmetrics list metrics``.
    seed : int
        Of the views; that of a run is its ``seed``.

    Returns
    -------
    xarray.Dataset
        With dimension layer; for each metric its value, ``NAME_stderr`` and ``NAME_status``. A
        value that is not defined is NaN, with the reason in its attribute ``undefined``.

    Raises
    ------
    ConfigError
        If there is no such model, layer, metric or key.
    DataError
        If the model cannot be read in this way, or there are fewer than two texts.

    Examples
    --------
    >>> measured = measure("sentence-transformers/all-MiniLM-L6-v2", texts, "effective_rank")  # doctest: +SKIP
    >>> measured.effective_rank.plot()  # doctest: +SKIP
    """
    chosen = catalogue.resolve([metrics] if isinstance(metrics, (str, Metric)) else list(metrics))
    with TextModel(model, tokenizer, protocol).opened(layers) as (encoder, _):
        return encoder.measure(texts, chosen, seed)


@dataclass(frozen=True)
class TextModel:
    """What a user calls a model of texts, and how it is to be read."""

    called: Any
    tokenizer: object
    protocol: Keys
    items: ClassVar[str] = TEXT

    def opened(self, layers: Layers) -> AbstractContextManager[tuple[TextEncoder, Checkpoint]]:
        """Its encoder and its checkpoint, within a block.

        A folder or hub id is checked before, and read by the block.
        """
        if not isinstance(self.called, (str, Path)):
            return _in_memory(self.called, layers, self.tokenizer, self.protocol)
        if self.tokenizer is not None:
            raise ConfigError("A folder or a hub id has its own tokenizer; leave out 'tokenizer'.")
        return _loaded(*_located(str(self.called), layers, self.protocol))


@dataclass(frozen=True)
class LayerSource:
    """What gives vectors of a task's items at the layers of a checkpoint."""

    suite: Suite  # the checkpoint, its layers and the readouts that are compared
    key: Key  # of how the vectors are made
    encode: Callable[[EncodeSpec], Embeddings]


@dataclass(frozen=True)
class LayerScores:
    """What was scored here and now.

    Attributes
    ----------
    tasks : tuple of Task
    recorded : Scores
    suites : mapping
        The layers of each checkpoint.
    models : mapping
        The model of each checkpoint; vectors and encoders have none.
    """

    tasks: tuple[Task, ...]
    recorded: Scores
    suites: Mapping[Checkpoint, Suite]
    models: Mapping[Checkpoint, TextModel]

    def layer_name(self, arm: Arm) -> int | str:
        """What an arm's layer is called."""
        return self.suites[arm.checkpoint].layer_name(arm.layer)

    def last_layer(self, arm: Arm) -> Arm:
        """The last scored layer of an arm's checkpoint, read in the same way."""
        layers = [
            other.layer
            for other in self.recorded
            if (other.checkpoint, other.readout) == (arm.checkpoint, arm.readout)
        ]
        return replace(arm, layer=max(layers))

    def gain(self, arm: Arm) -> Difference | None:
        """What an arm gains over its `last_layer` on the tasks that both have scores of, if any."""
        equally = dict.fromkeys(self.recorded.tasks, 1.0)
        return self.recorded.gain(arm, self.last_layer(arm), equally)

    def save(self, arm: Arm, folder: str | Path, card: str) -> Path:
        """Save an arm as a sentence-transformers model that ends at its layer."""
        from daskmetrics.models import TextEncoder

        model = self.models.get(arm.checkpoint)
        if model is None:
            raise ConfigError(
                "Got vectors or an encoder, and a model of texts is needed to save one that ends at"
                " the best layer. Give daskmetrics.layers that model, and the texts."
            )
        with model.opened([arm.layer]) as (encoder, _):
            readout = Readout.parse(arm.readout)
            read_out = TextEncoder(encoder.model, encoder.protocol, encoder.layers, readout)
            return read_out.save(folder, card)


def score_layers(
    called: object,
    data: object,
    columns: Mapping[str, str],
    layers: Layers,
    tokenizer: object,
    seed: int,
    protocol: Keys,
    readouts: Keys,
    display: Display,
) -> LayerScores:
    """Score every layer and readout of checkpoints, or of vectors, on every task."""
    names = _readout_names(readouts)
    columns = {role: str(column) for role, column in columns.items()}  # 0 in a table without names
    models: Sequence[TextModel | Revision | Vectors]
    if vectors := vectors_of(called, layers, names):
        models = [vectors]
        chosen: tuple[Task, ...] = (vectors.task(data, columns),)
    else:
        readers = _models(called, tokenizer, protocol)
        models = readers
        chosen = tasks_of_items(tasks_of(data, columns), {reader.items for reader in readers})
    reads_texts = any(isinstance(model, TextModel) for model in models)
    if (protocol or tokenizer is not None) and not reads_texts:
        raise ConfigError(
            f"Vectors are read as they are: leave out {next(iter(protocol), 'tokenizer')}."
        )
    for task in chosen:
        for text in task.warnings:
            warnings.warn(f"{task.name}: {text}", stacklevel=3)
    recorded: dict[Arm, dict[str, Scored]] = {}
    suites: dict[Checkpoint, Suite] = {}
    display.phase("layers", 100, unit="%")
    with closing(_sources(models, chosen[0], layers, names)) as sources:
        for number, source in enumerate(sources):
            (checkpoint,) = source.suite.checkpoints()
            if checkpoint in suites:
                raise ConfigError(
                    f"Two models are called '{checkpoint.model}'. Rename the folder of one of them,"
                    " or give an Encoder a name."
                )
            suites[checkpoint] = source.suite
            arms = source.suite.arms()
            recorded |= {arm: {} for arm in arms}
            costs = [_costs(source, task) for task in chosen]
            reading = sum(read for read, _ in costs)
            scoring = len(arms) * sum(score for _, score in costs)
            pace = TimeLeft({"read": reading, "score": scoring})
            shown = _Progress(display, pace, number, len(models))
            for task, cost in zip(chosen, costs, strict=True):
                display.advance("layers", f"{checkpoint} reads {task.name}", 0.01)
                for arm, value in _scores(source, task, seed, cost, shown):
                    recorded[arm][task.name] = value
    display.advance("layers", "", 100)
    scores = Scores(recorded, [task.name for task in chosen])
    # no vectors, which would stay in memory, or their file open
    of_texts = {
        checkpoint: model
        for checkpoint, model in zip(suites, models, strict=True)
        if isinstance(model, TextModel)
    }
    return LayerScores(chosen, scores, suites, of_texts)


@dataclass(frozen=True)
class _Progress:
    """Shows how far one of several sources is, and the time that all still take."""

    display: Display
    pace: TimeLeft
    number: int
    sources: int

    def did(self, kind: str, cost: float, latest: str) -> None:
        self.pace.did(kind, cost)
        whole = self.pace.elapsed + self.pace.left
        share = (self.number + self.pace.elapsed / (whole or 1.0)) / self.sources
        left = self.pace.left + (self.sources - self.number - 1) * whole
        self.display.advance("layers", latest, 100 * share, left)


def _costs(source: LayerSource, task: Task) -> tuple[float, float]:
    """Assumed seconds of reading a task's items, and of scoring a layer."""
    costs = CostModel("cpu")
    size = TextSize.of(map(len, task.texts()), _LENGTH)
    reading = costs.forward_seconds(_WIDTH, source.suite.depth, size)
    return reading, costs.score_seconds(_WIDTH, size)


def _readout_names(readouts: Keys) -> tuple[str, ...]:
    model = {"name": "model", "source": "."}
    settings = config.parse(
        {"name": "direct", "models": [model], "readouts": dict(readouts)}, where="arguments"
    )
    return settings.readouts.names


def _models(called: object, tokenizer: object, protocol: Keys) -> list[TextModel | Revision]:
    """The models of a list, with each checkpoint of a folder or an encoder by itself."""
    models: list[TextModel | Revision] = []
    for model in called if isinstance(called, (list, tuple)) else [called]:
        if isinstance(model, Encoder):
            models += encoder_revisions(model)
            continue
        revisions: Mapping[str, Path] = {}
        if isinstance(model, (str, Path)):
            folder = expanded(model)
            if folder.is_dir() and not is_model(folder):
                revisions = suite_folders(folder).complete
        names: list[object] = [f"{model}@{revision}" for revision in training_order(revisions)]
        models += [TextModel(name, tokenizer, protocol) for name in names or [model]]
    if not models:
        raise ConfigError("The list of models is empty: give at least one model.")
    return models


def _sources(
    models: Sequence[TextModel | Revision | Vectors],
    task: Task,
    layers: Layers,
    readouts: tuple[str, ...],
) -> Generator[LayerSource]:
    """What reads each model, of which one at a time is loaded, after all have been checked."""
    opened = iter([model.opened(layers) for model in models if isinstance(model, TextModel)])
    for model in models:
        match model:
            case Vectors():
                yield LayerSource(model.suite, "vectors", model.encode)
            case Revision():
                loaded = LoadedEncoder(model)
                loaded.check(task)
                names = (model.name,)
                suite = suite_of(model.encoder.name, names, [*loaded.widths], layers, readouts)
                check_pooled(suite, max(loaded.widths.values()))
                yield LayerSource(suite, "encoder", loaded.encode)
            case TextModel():
                with next(opened) as (encoder, checkpoint):
                    revisions, depth = (checkpoint.revision,), encoder.model.depth
                    suite = Suite(checkpoint.model, revisions, encoder.layers, depth, readouts)
                    check_readouts(suite, encoder.protocol, encoder.model.width)
                    yield LayerSource(
                        suite, encoder.protocol.key, partial(worker.encode_task, encoder)
                    )


def _scores(
    source: LayerSource, task: Task, seed: int, cost: tuple[float, float], shown: _Progress
) -> Iterator[tuple[Arm, Scored]]:
    """Score each arm, if it can be; a `DataError` if none can."""
    from threadpoolctl import threadpool_limits

    task_seed = seed_of("score", task.key, seed)
    arms = source.suite.arms()
    reasons = []
    reading, scoring = cost
    reads = f"{source.suite.model} reads {task.name}"
    with TemporaryDirectory() as scratch:
        key = content_key("direct", task.key)
        spec = EncodeSpec(key, task, source.suite.layers, Path(scratch), source.suite.poolings)
        with heard(lambda part: shown.did("read", part * reading, reads)):
            embeddings = source.encode(spec)
        for arm in arms:
            try:
                # threads of small fits wait for each other, on a busy machine for most of the time
                with threadpool_limits(1):
                    value = worker.score(
                        embeddings, task, arm.layer, task_seed, source.key, arm.readout
                    )
            except UndefinedError as error:
                reasons.append(f"layer {source.suite.layer_name(arm.layer)}: {error}")
            else:
                name = source.suite.arm_name(arm)
                shown.did("score", scoring, f"{name}:{task.name}  {score_text(value.score)}")
                yield arm, value
    if len(reasons) == len(arms):
        raise DataError(f"No layer has a score on {task.name}: {reasons[0]}")
    for reason in reasons:
        warnings.warn(f"{task.name}, {reason}", stacklevel=4)


def tasks_of(data: object, columns: Mapping[str, str]) -> tuple[Task, ...]:
    """The tasks of a file, a table in memory, or a list of names.

    ``columns`` are the options of a file task: the columns of its roles, ``kind`` and ``probe``.
    """
    if isinstance(data, (str, Path)):
        prefixes = {name.partition(":")[0] for name in (*tasks.catalogue(), *RESERVED)}
        prefix, colon, _ = str(data).partition(":")
        if isinstance(data, Path) or not (colon and prefix in prefixes):
            return tasks.resolve([file_name(data, columns)])
        data = [data]
    if isinstance(data, (list, tuple)) and data and all(isinstance(name, str) for name in data):
        if columns:
            raise ConfigError(
                f"{', '.join(columns)} name columns of one's own data, but the data are tasks:"
                f" {', '.join(data)}. Write them into the name, such as"
                " file:reviews.csv(text=body, label=stars)."
            )
        return tasks.resolve(data)
    return (table_task(Path("data"), table_rows(data), columns, "data"),)


@contextmanager
def _loaded(
    location: Location, read: ModelProtocol, suite: Suite
) -> Iterator[tuple[TextEncoder, Checkpoint]]:
    from daskmetrics.models import LoadedModel, TextEncoder

    (checkpoint,) = suite.checkpoints()
    with TextEncoder(LoadedModel(location, read.base), read, suite.layers) as encoder:
        yield encoder, checkpoint


@contextmanager
def _in_memory(
    model: Any, layers: Layers, tokenizer: object, protocol: Keys
) -> Iterator[tuple[TextEncoder, Checkpoint]]:
    """As `TextModel.opened`, of a model that is in evaluation mode within the block.

    After it, each of its modules is in training again.
    """
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    is_known = not libraries.isdisjoint(["transformers", "sentence_transformers"])
    if not is_known or not hasattr(model, "modules"):
        raise ConfigError(
            f"A {type(model).__name__} is no model: give a folder, a hub id such as"
            " EleutherAI/pythia-14m, or a model of transformers or sentence-transformers; of any"
            " other network a daskmetrics.Encoder. Metrics"
            " of states that you have are functions: see docs/metric_functions.md."
        )
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with TemporaryDirectory() as folder:  # of what a SentenceTransformer would save
            network: nn.Module = model
            shipped = None
            if "sentence_transformers" in libraries:
                network, shipped = _shipped_by(network, Path(folder))
                tokenizer = tokenizer or model.tokenizer
            encoder, checkpoint = _from_transformers(network, layers, tokenizer, protocol, shipped)
            with encoder:
                yield encoder, checkpoint
    finally:
        for module in training:
            module.training = True


def _settings(
    name: str,
    source: str,
    revision: str,
    layers: Layers,
    protocol: Keys,
) -> Config:
    if not isinstance(layers, str):
        layers = np.asarray(layers).tolist()  # numbers of Python; 1.5 stays what it is
    model: dict[str, object] = {
        "name": name,
        "source": source,
        "revisions": revision,
        "layers": layers,
    }
    model |= {key: protocol[key] for key in _MODEL_KEYS if key in protocol}
    return config.parse(
        {"name": "direct", "models": [model], "protocol": dict(protocol)}, where="arguments"
    )


def _located(model: str, layers: Layers, protocol: Keys) -> tuple[Location, ModelProtocol, Suite]:
    source = model
    revision = ""
    if not expanded(model).is_dir():
        source, _, revision = model.partition("@")
    on_hub = checkpoints.is_hub_id(source)
    # a trainer's checkpoints may lie in the folder of the model with which it ended
    is_one = on_hub or is_model(expanded(source))
    revisions = revision or (_MAIN if is_one else "all")
    settings = _settings(name_of(source), source, revisions, layers, protocol)
    if on_hub and checkpoints.folder_of(Location(source, revision or _MAIN, "")) is None:
        _download(source, revision or _MAIN)
    (section,) = settings.models
    located = checkpoints.locate(section)
    if len(located.suite.revisions) > 1:
        names = located.suite.revisions
        raise ConfigError(
            f"'{model}' has {len(names)} checkpoints. Name one, such as '{model}@{names[-1]}'."
        )
    (location,) = located.locations
    (checkpoint,) = located.suite.checkpoints()
    if location.is_missing:
        _download(source, checkpoint.revision)
    read = protocol_of(settings.protocol, section, checkpoints.shipped_folder(location))
    return location, read, located.suite


def _download(source: str, revision: str) -> None:
    require_answer(source, known_refs(source).silence)
    missing = prefetch.checkpoint(source, revision)
    for _, reason in prefetch.fetch([missing]):
        if reason:
            raise ConfigError(f"'{source}' cannot be downloaded: {reason}")


def _from_transformers(
    model: nn.Module,
    layers: Layers,
    tokenizer: object,
    protocol: Keys,
    shipped: Shipped | None,
) -> tuple[TextEncoder, Checkpoint]:
    from daskmetrics.models import InMemory, LoadedModel, TextEncoder

    name = name_of(str(getattr(model, "name_or_path", "") or type(model).__name__))
    keys = {"dtype": str(model.dtype).removeprefix("torch."), **protocol}
    if keys.get("pooling") == "as_shipped":
        if shipped is None:
            raise ConfigError(
                "A model of transformers ships no pooling: choose 'mean', 'last' or 'cls'."
            )
        del keys["pooling"]
    settings = _settings(name, f"./{name}", _MAIN, layers, keys)
    (section,) = settings.models
    read = protocol_of(settings.protocol, section, None, shipped)
    network = InMemory(model.base_model, tokenizer or _tokenizer_of(model), name)
    loaded = LoadedModel(network, read.base)
    chosen = checkpoints.layers_of(section, loaded.depth)
    suite = Suite(name, (_MAIN,), chosen, loaded.depth)  # checks the layers
    return TextEncoder(loaded, read, suite.layers), Checkpoint(name, _MAIN)


def _tokenizer_of(model: object) -> Any:
    from transformers import AutoTokenizer

    with suppress(OSError, ValueError):
        if source := getattr(model, "name_or_path", ""):
            return AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    raise ConfigError(
        f"No tokenizer was found beside this {type(model).__name__}: give it as 'tokenizer'."
    )


def _shipped_by(model: Any, folder: Path) -> tuple[Any, Shipped | None]:
    """The network of a SentenceTransformer, and what its other modules do.

    That is read from the files that these save into the folder.
    """
    transformer = model[0]
    network = getattr(transformer, "auto_model", None) or getattr(transformer, "model", None)
    if network is None:
        raise ConfigError(
            f"The first module of this SentenceTransformer is a {type(transformer).__name__}, no"
            " Transformer."
        )
    entries = []
    for i, module in enumerate(model):
        library = type(module).__module__.partition(".")[0]
        kind = f"{library}.models.{type(module).__name__}"
        entries.append({"idx": i, "path": str(i or ""), "type": kind})
        if i:
            (folder / str(i)).mkdir()
            module.save(str(folder / str(i)))
    settings = {
        "prompts": dict(model.prompts or {}),
        "default_prompt_name": model.default_prompt_name,
        "similarity_fn_name": model.similarity_fn_name,
        "truncate_dim": model.truncate_dim,
    }
    for name, content in ((MODULES, entries), ("config_sentence_transformers.json", settings)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    network.config.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    transformer.save_config(str(folder))
    shipped = read_shipped(folder)
    assert shipped is not None
    return network, replace(shipped, max_length=model.max_seq_length)
