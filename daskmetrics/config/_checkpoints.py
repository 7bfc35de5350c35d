"""Where the checkpoints of a model lie: in folders, or in the hub's cache on this machine."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Key, Suite, content_key, select_revisions, training_order

_WHOLE = 4 << 20  # files up to 4 MiB are read whole for their fingerprint
_BLOCK = 1 << 16
_BESIDE_WEIGHTS = (".json", ".txt", ".model")


@dataclass(frozen=True)
class Location:
    """Where one checkpoint can be loaded from, and what is there.

    Attributes
    ----------
    path : str
        A local model folder, or a hub id.
    revision : str or None
        The hub's revision; None for a folder.
    identity : str
        Content of the weights (folder), commit (hub), or recipe (a suite trained here): part of every key.
    pickled : bool
        Whether pickled weights may be loaded where there are no safetensors.
    """

    path: str
    revision: str | None
    identity: Key
    pickled: bool = False


@dataclass(frozen=True)
class LocatedSuite:
    """A suite, and where its checkpoints lie.

    Attributes
    ----------
    suite : Suite
    locations : tuple of Location
        One for each revision of the suite.
    width : int
        Hidden size.
    missing : tuple of str
        Hub revisions that are not on this machine yet.
    """

    suite: Suite
    locations: tuple[Location, ...]
    width: int
    missing: tuple[str, ...] = ()


def locate(model: Model) -> LocatedSuite:
    """Look up the checkpoints that a model's configuration names; nothing is loaded or downloaded.

    Raises
    ------
    ConfigError
        If the folder is missing, holds no model, or a revision does not exist.
    """
    source = model.source or ""
    looks_local = source.startswith((".", "/", "~")) or source.count("/") != 1
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _find_folder(model, folder)
    if looks_local:
        raise ConfigError(
            f"Model '{model.name}': no folder '{source}'. Give a model folder (with config.json), a folder with one "
            "model folder per revision (step0, step1000, ...), or a hub id such as EleutherAI/pythia-14m."
        )
    return _find_on_hub(model)


def revisions_of(model: Model, available: Sequence[str] | None) -> tuple[str, ...]:
    """The revisions that a configuration asks for, of those there are (None: not known).

    Raises
    ------
    ConfigError
        If one does not exist, naming the model.
    """
    try:
        return select_revisions(model.revisions, available)
    except ConfigError as error:
        raise ConfigError(f"Model '{model.name}': {error}") from None


def layers_of(model: Model, depth: int) -> tuple[int, ...]:
    """The layers that a configuration asks for, of a model with this many blocks."""
    if model.layers == "all":
        return tuple(range(depth + 1))
    if model.layers == "blocks":
        return tuple(range(1, depth + 1))
    return tuple(sorted(set(model.layers)))


def _find_folder(model: Model, folder: Path) -> LocatedSuite:
    if (folder / "config.json").is_file():
        places = {"main": folder}
    else:
        places = {path.name: path for path in folder.iterdir() if (path / "config.json").is_file()}
    if not places:
        raise ConfigError(f"Model '{model.name}': '{folder}' holds no model: no config.json in it or one level below.")
    revisions = revisions_of(model, training_order(places))
    depth, width = _shape(places[revisions[0]] / "config.json")
    suite = Suite(model.name, revisions, layers_of(model, depth), depth)
    locations = tuple(
        Location(str(places[name].resolve()), None, fingerprint(places[name], model.pickled), model.pickled)
        for name in revisions
    )
    return LocatedSuite(suite, locations, width)


def _find_on_hub(model: Model) -> LocatedSuite:
    from huggingface_hub import try_to_load_from_cache

    assert model.source is not None
    revisions = _hub_revisions(model)
    configs = [try_to_load_from_cache(model.source, "config.json", revision=name) for name in revisions]
    cached = [Path(path) for path in configs if isinstance(path, str)]
    depth, width = _shape(cached[0]) if cached else (model.depth, model.width)
    if depth is None or width is None:
        raise ConfigError(
            f"Model '{model.name}' ({model.source}) is not in the hub's cache on this machine, so that its shape is "
            "unknown: write 'depth:' and 'width:' into the configuration, or a local folder as 'source'."
        )
    locations = tuple(
        # the snapshot folder of a cached revision is named by its commit
        Location(
            model.source,
            name,
            content_key(model.source, Path(path).parent.name if isinstance(path, str) else name),
            model.pickled,
        )
        for name, path in zip(revisions, configs, strict=True)
    )
    missing = tuple(name for name, path in zip(revisions, configs, strict=True) if not isinstance(path, str))
    return LocatedSuite(Suite(model.name, revisions, layers_of(model, depth), depth), locations, width, missing)


def _hub_revisions(model: Model) -> tuple[str, ...]:
    if model.revisions == "all":
        return ("main",)
    return revisions_of(model, None)


def require_on_hub(model: Model, missing: Sequence[str]) -> None:
    """Make sure that revisions which are not cached can be fetched from the hub.

    Raises
    ------
    ConfigError
        If the hub is switched off or cannot be reached, or a revision does not exist there.
    """
    if not missing:
        return
    assert model.source is not None
    some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    remedy = f"Fetch them where there is a network: hf download {model.source} --revision {missing[0]}"
    if os.environ.get("HF_HUB_OFFLINE", "") not in ("", "0"):
        raise ConfigError(f"Model '{model.name}': {some} not in the hub's cache, and HF_HUB_OFFLINE is set. {remedy}")
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        refs = HfApi().list_repo_refs(model.source)
    except RepositoryNotFoundError:
        raise ConfigError(f"Model '{model.name}': the hub has no repository '{model.source}'.") from None
    except Exception as error:  # whatever a proxy, a firewall or the client makes of "no network"
        reason = f"{type(error).__name__}"
        raise ConfigError(
            f"Model '{model.name}': {some} not in the hub's cache, and the hub cannot be reached ({reason}). {remedy}"
        ) from None
    there = {ref.name for ref in (*refs.branches, *refs.tags)}
    absent = [name for name in missing if name not in there]
    if absent:
        known = ", ".join(training_order(there)[:8])
        raise ConfigError(
            f"Model '{model.name}': {model.source} has no revision {', '.join(absent)}. It has {known}, ..."
        )


def _shape(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size."""
    data = _json(config)
    depth, width = (
        next((data[name] for name in names if isinstance(data.get(name), int)), None)
        for names in (("num_hidden_layers", "n_layer", "num_layers"), ("hidden_size", "n_embd", "d_model"))
    )
    if depth is None or width is None:
        raise DataError(f"'{config}' does not say how deep and wide the model is (num_hidden_layers, hidden_size).")
    return depth, width


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise DataError(f"'{path}' cannot be read as JSON: {error}") from None


def fingerprint(folder: Path, pickled: bool = False) -> Key:
    """A key of the content of a model folder: small files whole; of large ones size, ends and 64 blocks between.

    Raises
    ------
    ConfigError
        If there are no weights, or pickled ones that were not allowed.
    """
    there = sorted(folder.iterdir())
    kinds = {path.suffix for path in there}
    weights = ".bin" if pickled and ".safetensors" not in kinds else ".safetensors"
    if weights not in kinds:
        raise ConfigError(
            f"'{folder}' holds no weights: no .safetensors file. (Pickled .bin files are loaded only if the model says "
            "'pickled: true', and even then no code in them is run.)"
        )
    return content_key([(path.name, _digest(path)) for path in there if path.suffix in (weights, *_BESIDE_WEIGHTS)])


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
