"""The model folders of a suite, and what each of them holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.checkpoints.adapters import Adapter, read_adapter
from daskmetrics.checkpoints.checks import (
    refuse_classes,
    require_complete,
    shape_of,
    weights_problem,
)
from daskmetrics.checkpoints.digests import Stamp, stamps_of
from daskmetrics.checkpoints.layout import (
    NETWORK,
    Incomplete,
    is_adapter,
    required_files,
    tokenizer_folder,
    transformer_folder,
)
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import expanded
from daskmetrics.domain.names import select_revisions, step_of, training_order

FINISHED = "training.finished"
"""Name of the file by which a training loop says, in the folder that is followed, that no checkpoint
follows.
"""

# names of the folders that the trainers of transformers and sentence-transformers write
_CHECKPOINT = re.compile(r"checkpoint-\d+")
# what a training writes beside its last model; others may be exports of that model
_BESIDE_MODEL = re.compile(r"[0-9]+|.*(?:step|iter|epoch|update|checkpoint|ckpt).*", re.IGNORECASE)

_WILD = set("*?[")  # in a pattern


def is_model(folder: Path) -> bool:
    """Whether a folder is itself that of a model or adapter."""
    network = transformer_folder(folder)
    return is_adapter(network) or (network / NETWORK).is_file()


@dataclass(frozen=True)
class SuiteFolders:
    """The model folders of a suite, by revision."""

    complete: Mapping[str, Path]  # of their networks
    incomplete: Mapping[str, str]  # why checkpoints of a trainer cannot be read


def suite_folders(folder: Path) -> SuiteFolders:
    """The model folders in a folder of a suite.

    The checkpoints of a training may be beside the model with which it ended, which is then ``main``.
    """
    paths = {path.name: path for path in folder.glob("*/")}
    incomplete = {}
    for name in filter(_CHECKPOINT.fullmatch, paths):
        try:
            require_complete(paths[name])
        except Incomplete as problem:
            incomplete[name] = str(problem)
    inside = paths
    if is_model(folder):
        trained = filter(_BESIDE_MODEL.fullmatch, paths)
        inside = {name: paths[name] for name in trained if step_of(name) is not None}
        inside["main"] = folder
    networks = {
        name: transformer_folder(path) for name, path in inside.items() if name not in incomplete
    }
    complete = {name: path for name, path in networks.items() if is_model(path)}
    return SuiteFolders(complete, incomplete)


def selected_folders(model: Model, folder: Path, suite: SuiteFolders) -> dict[str, Path]:
    """The folders of the selected revisions, in order of training.

    Raises
    ------
    ConfigError
        If there are none, one is not complete, or one has no tokenizer.
    """
    incomplete = suite.incomplete
    names = (model.revisions,) if isinstance(model.revisions, str) else model.revisions
    wrong = [name for name in incomplete if not suite.complete or name in names]
    if wrong:
        raise ConfigError(
            f"Model '{model.name}': '{folder / wrong[0]}' is not complete: {incomplete[wrong[0]]}."
        )
    if not suite.complete:
        raise ConfigError(
            f"Model '{model.name}': no model in '{folder}': no config.json in it or in its"
            " sub-folders."
        )
    paths = {name: suite.complete[name] for name in revisions_of(model, suite.complete)}
    for path in paths.values():
        if tokenizer_folder(path) is None and not is_adapter(path):
            raise ConfigError(
                f"'{path}' has no tokenizer: no tokenizer.json, tokenizer_config.json or"
                " vocabulary. Copy tokenizer.json and tokenizer_config.json of the base model into"
                " it, or write them with"
                f" AutoTokenizer.from_pretrained(BASE).save_pretrained('{path}')."
            )
    return paths


def pattern_folder(pattern: str | Path) -> Path:
    """The deepest folder before a wildcard.

    >>> pattern_folder("/out/run*/*.pth").as_posix()
    '/out'
    """
    parents = expanded(pattern).absolute().parents
    return next(folder for folder in parents if _WILD.isdisjoint(str(folder)))


def matching_checkpoints(pattern: str | Path) -> dict[str, Path]:
    """The files or folders of a pattern, by the part of their path from the first wildcard on."""
    folder = pattern_folder(pattern)
    whole = expanded(pattern).absolute()
    suffix = whole.suffix
    if not _WILD.isdisjoint(suffix):
        suffix = ""
    paths = folder.glob(str(whole.relative_to(folder)))
    by_name = {str(path.relative_to(folder)).removesuffix(suffix): path for path in paths}
    by_name.pop(FINISHED, None)
    return {name: by_name[name] for name in training_order(by_name)}


def revisions_of(model: Model, available: Iterable[str]) -> tuple[str, ...]:
    """The selected ones of the available revisions."""
    try:
        return select_revisions(model.revisions, training_order(available))
    except ConfigError as error:
        raise ConfigError(f"Model '{model.name}': {error}") from None


@dataclass(frozen=True)
class ModelFolder:
    """What the folder of a checkpoint holds; its weights are not read."""

    path: Path
    adapter: Adapter | None  # None for a whole model
    shape: tuple[int, int] | None  # number of blocks and hidden size; None for an adapter
    files: Mapping[str, Path]  # that decide its numbers, by name in its key
    stamps: tuple[Stamp, ...]  # of these files, before they were read
    problem: str  # why its weights cannot be read; empty if they can


def read_folder(path: Path, model: Model) -> ModelFolder:
    """What a folder of a model holds.

    Raises
    ------
    ConfigError
        If it has no weights, has code of its own that is not to be ignored, or its files do not fit
        each other.
    DataError
        If a file cannot be read.
    """
    adapter = read_adapter(path) if is_adapter(path) else None
    shape = None if adapter else shape_of(path / NETWORK)
    refuse_classes(model, path)
    files = required_files(path, model.pickled)
    stamps = stamps_of(files.values())
    return ModelFolder(path, adapter, shape, files, stamps, weights_problem(path))
