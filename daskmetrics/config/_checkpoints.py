"""The places of a model's checkpoints: folders, or the cache of the hub on this machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Key, Suite, content_key, select_revisions, training_order

_WHOLE = 4 << 20  # files up to 4 MiB are read completely
_BLOCK = 1 << 16
_BESIDE_WEIGHTS = (".json", ".txt", ".model")


@dataclass(frozen=True)
class Location:
    """The place of one checkpoint, and a key of its content, which is part of every key."""

    path: str  # a local model folder, or a hub id
    revision: str | None  # the hub's revision; None for a folder
    identity: Key  # of the weights (folder), of the commit (hub), or of the recipe (a trained suite)
    pickled: bool = False  # whether pickled weights may be loaded if there is no .safetensors file


@dataclass(frozen=True)
class LocatedSuite:
    """A suite, and the places of its checkpoints, one for each revision."""

    suite: Suite
    locations: tuple[Location, ...]
    width: int  # hidden size
    missing: tuple[str, ...] = ()  # hub revisions that are not in the local cache


def locate(model: Model) -> LocatedSuite:
    """Find the checkpoints of a model's configuration; nothing is loaded or downloaded."""
    source = model.source or ""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _find_folder(model, folder)
    if is_hub_id(source):
        return _find_on_hub(model)
    raise ConfigError(
        f"Model '{model.name}': no folder '{source}'. Give a model folder (with config.json), a folder with one "
        "model folder per revision (step0, step1000, ...), or a hub id such as EleutherAI/pythia-14m."
    )


def folder_of(location: Location) -> Path | None:
    """The checkpoint's folder on this machine; None if it is not trained yet, or a hub revision that is not cached."""
    folder = Path(location.path)
    if folder.is_dir():
        return folder
    if not is_hub_id(location.path):
        return None
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(location.path, "config.json", revision=location.revision or "main")
    return Path(config).parent if isinstance(config, str) else None


def is_hub_id(source: str) -> bool:
    """Whether a source is ORGANISATION/NAME, and not a folder of this machine."""
    looks_local = source.startswith((".", "/", "~")) or source.count("/") != 1
    return not looks_local and not Path(source).is_dir()


def revisions_of(model: Model, available: Sequence[str] | None) -> tuple[str, ...]:
    """The revisions that a configuration selects from the available ones (None: not known)."""
    try:
        return select_revisions(model.revisions, available)
    except ConfigError as error:
        raise ConfigError(f"Model '{model.name}': {error}") from None


def layers_of(model: Model, depth: int) -> tuple[int, ...]:
    """The layers that a configuration selects, for a model with this many blocks."""
    if model.layers == "all":
        return tuple(range(depth + 1))
    if model.layers == "blocks":
        return tuple(range(1, depth + 1))
    return tuple(sorted(set(model.layers)))


def _find_folder(model: Model, folder: Path) -> LocatedSuite:
    if (folder / "config.json").is_file():
        folders = {"main": folder}
    else:
        folders = {path.name: path for path in folder.iterdir() if (path / "config.json").is_file()}
    if not folders:
        raise ConfigError(f"Model '{model.name}': no model in '{folder}': no config.json in it or in its sub-folders.")
    revisions = revisions_of(model, training_order(folders))
    depth, width = _shape(folders[revisions[0]] / "config.json")
    suite = Suite(model.name, revisions, layers_of(model, depth), depth)
    locations = tuple(
        Location(str(folders[name].resolve()), None, fingerprint(folders[name], model.pickled), model.pickled)
        for name in revisions
    )
    return LocatedSuite(suite, locations, width)


def _find_on_hub(model: Model) -> LocatedSuite:
    from huggingface_hub import try_to_load_from_cache

    assert model.source is not None
    revisions = ("main",) if model.revisions == "all" else revisions_of(model, None)
    found = (try_to_load_from_cache(model.source, "config.json", revision=name) for name in revisions)
    configs = [Path(path) if isinstance(path, str) else None for path in found]
    cached = next(filter(None, configs), None)
    depth, width = _shape(cached) if cached else (model.depth, model.width)
    if depth is None or width is None:
        raise ConfigError(
            f"Model '{model.name}' ({model.source}) is not in the hub's cache on this machine, so its shape is not "
            "known: write 'depth:' and 'width:' into the configuration, or use a local folder as 'source'."
        )
    locations = tuple(
        # the snapshot folder of a cached revision is named by its commit
        Location(model.source, name, content_key(model.source, path.parent.name if path else name), model.pickled)
        for name, path in zip(revisions, configs, strict=True)
    )
    missing = tuple(name for name, path in zip(revisions, configs, strict=True) if path is None)
    return LocatedSuite(Suite(model.name, revisions, layers_of(model, depth), depth), locations, width, missing)


def require_on_hub(model: Model, missing: Sequence[str]) -> None:
    """Check that revisions that are not cached can be fetched from the hub; a `ConfigError` otherwise."""
    if not missing:
        return
    assert model.source is not None
    some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    remedy = f"Fetch them on a machine with a network: hf download {model.source} --revision {missing[0]}"
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise ConfigError(f"Model '{model.name}': {some} not in the hub's cache, and HF_HUB_OFFLINE is set. {remedy}")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        refs = HfApi().list_repo_refs(model.source)
    except RepositoryNotFoundError:
        raise ConfigError(f"Model '{model.name}': the hub has no repository '{model.source}'.") from None
    except Exception as error:  # a missing network can raise anything: proxy, firewall, client
        raise ConfigError(
            f"Model '{model.name}': {some} not in the hub's cache, and the hub cannot be reached "
            f"({type(error).__name__}). {remedy}"
        ) from None
    available = {ref.name for ref in (*refs.branches, *refs.tags)}
    unknown = [name for name in missing if name not in available]
    if unknown:
        known = ", ".join(training_order(available)[:8])
        raise ConfigError(
            f"Model '{model.name}': {model.source} has no revision {', '.join(unknown)}. It has {known}, ..."
        )


def _shape(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size."""
    try:
        data = dict(json.loads(config.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise DataError(f"'{config}' cannot be read as JSON: {error}") from None
    depth, width = (
        next((data[name] for name in names if isinstance(data.get(name), int)), None)
        for names in (("num_hidden_layers", "n_layer", "num_layers"), ("hidden_size", "n_embd", "d_model"))
    )
    if depth is None or width is None:
        raise DataError(f"'{config}' has no depth and width of the model (num_hidden_layers, hidden_size).")
    return depth, width


def fingerprint(folder: Path, pickled: bool = False) -> Key:
    """Key of the content of a model folder: small files as a whole; for large files size, ends and 64 blocks.

    Weights must be there, and pickled ones are an error unless they are allowed.
    """
    paths = sorted(folder.iterdir())
    kinds = {path.suffix for path in paths}
    weights = ".bin" if pickled and ".safetensors" not in kinds else ".safetensors"
    if weights not in kinds:
        raise ConfigError(
            f"'{folder}' has no weights: no .safetensors file. (Pickled .bin files are loaded only with "
            "'pickled: true' for the model, and even then no code in them is run.)"
        )
    return content_key([(path.name, _digest(path)) for path in paths if path.suffix in (weights, *_BESIDE_WEIGHTS)])


def _digest(path: Path) -> str:
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        if size <= _WHOLE:
            digest.update(file.read())
        else:
            for i in range(66):
                file.seek((size - _BLOCK) * i // 65)
                digest.update(file.read(_BLOCK))
    return digest.hexdigest()
