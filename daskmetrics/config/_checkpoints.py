"""The places of a model's checkpoints: folders, or the cache of the hub on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daskmetrics.config import Model, _hub
from daskmetrics.config._content import Content, OnMessage, contents, files_of, relevant, sample
from daskmetrics.config._hub import HubUnreachable, Refs
from daskmetrics.config._order import out_of_order
from daskmetrics.config._shipped import read_json, transformer_folder
from daskmetrics.core._files import cache_folder
from daskmetrics.core._text import equal_names, listed
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.names import Key, Suite, content_key, select_revisions, step_of, training_order

#: Patterns of the files of a tokenizer
TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "*.model", "*.spm", "*.tiktoken", "*.codes", "tekken.json")
_VOCABULARY = ("vocab_size", "n_words", "num_hash_buckets")  # the last is CANINE's, which reads characters
_OTHER_INPUTS = {"image_size": "images", "num_mel_bins": "sound", "feat_extract_norm": "sound"}


@dataclass(frozen=True)
class Location:
    """The place of one checkpoint, and a key of its content, which is part of every key."""

    path: str  # a local model folder, or a hub id
    revision: str | None  # the hub's revision; None for a folder
    identity: Key  # of the content; of the recipe (a trained suite), or of the commit if the content is not known
    pickled: bool = False  # whether pickled weights may be loaded if there is no .safetensors file


@dataclass(frozen=True)
class LocatedSuite:
    """A suite, and the places of its checkpoints, one for each revision.

    Of revisions of equal content the suite holds one: the latest step. Final weights are the ones that are served under
    other names, so the arms of the last step keep their name.
    """

    suite: Suite
    locations: tuple[Location, ...]
    width: int  # of the hidden states
    missing: tuple[str, ...] = ()  # hub revisions that are not in the local cache
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The other revisions of equal content, by the revision in the suite."""
    warnings: tuple[str, ...] = ()
    """What is wrong with the weights by their files: equal weights beside other configurations, steps out of order."""


@dataclass(frozen=True)
class _Found:
    """A revision, where it is, and what it holds."""

    name: str
    location: Location
    content: Content | None  # None if it is not known
    folder: Path | None  # None if it is not on this machine


def locate(model: Model, on_message: OnMessage | None = None) -> LocatedSuite:
    """Find the checkpoints of a model's configuration; no weights are loaded or downloaded.

    The digests of weights that are new or have changed are computed; ``on_message`` is called before if it takes long.
    The hub is asked for what is not on this machine.
    """
    source = model.source or ""
    folder = Path(source).expanduser()
    if folder.is_dir():
        return _find_folder(model, folder, on_message)
    if is_hub_id(source):
        return _find_on_hub(model, on_message)
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


def _find_folder(model: Model, folder: Path, on_message: OnMessage | None) -> LocatedSuite:
    if (transformer_folder(folder) / "config.json").is_file():
        folders = {"main": transformer_folder(folder)}
    else:
        inside = {path.name: transformer_folder(path) for path in folder.iterdir()}
        folders = {name: path for name, path in inside.items() if (path / "config.json").is_file()}
    if not folders:
        raise ConfigError(f"Model '{model.name}': no model in '{folder}': no config.json in it or in its sub-folders.")
    revisions = revisions_of(model, training_order(folders))
    shape = _shape(folders[revisions[0]] / "config.json")
    for name in revisions:
        _check_tokenizer(folders[name])
    known = contents([folders[name] for name in revisions], model.pickled, on_message)
    found = [
        _Found(name, Location(str(folders[name].resolve()), None, content.key, model.pickled), content, folders[name])
        for name, content in zip(revisions, known, strict=True)
    ]
    return _located(model, found, *shape)


def _find_on_hub(model: Model, on_message: OnMessage | None) -> LocatedSuite:
    from huggingface_hub import try_to_load_from_cache

    assert model.source is not None
    source, (refs, silence) = model.source, _refs(model)
    is_open_range = refs is not None
    names = tuple(dict.fromkeys(revisions_of(model, training_order(refs.branches) if refs else None)))
    cached = ((name, try_to_load_from_cache(source, "config.json", revision=name)) for name in names)
    configs = {name: Path(path) for name, path in cached if isinstance(path, str)}
    shape = _hub_shape(model, configs)
    folders = {name: path.parent for name, path in configs.items() if files_of(path.parent, model.pickled)}
    if refs is None and len(folders) < len(names):
        refs, silence = _hub.refs(source)
    for name in configs.keys() - folders.keys() if silence else ():
        if files_of(configs[name].parent, pickled=True):
            contents([configs[name].parent])  # raises: there are pickled weights, and the hub offers no others
    # the snapshot folder of a cached revision is named by its commit
    commits = {**(refs.commits if refs else {}), **{name: folder.name for name, folder in folders.items()}}
    commits = {name: commits[name] for name in names if name in commits}
    known = _hub_contents(model, commits, folders, not silence, on_message)
    empty = [name for name, content in known.items() if not content.digests]
    if empty and (not is_open_range or len(empty) == len(names)):
        raise ConfigError(f"Model '{model.name}': {source} has no .safetensors file in {', '.join(empty)}.")
    found = []
    for name in names:
        if name not in empty:
            content = known.get(name)
            identity = content.key if content else content_key(source, commits.get(name, name))
            found.append(_Found(name, Location(source, name, identity, model.pickled), content, folders.get(name)))
    return _located(model, found, *shape)


def _hub_shape(model: Model, configs: Mapping[str, Path]) -> tuple[int, int]:
    """Number of blocks and hidden size, from a cached revision or the configuration."""
    if configs:
        return _shape(next(iter(configs.values())))
    if model.depth is None or model.width is None:
        raise ConfigError(
            f"Model '{model.name}' ({model.source}) is not in the hub's cache on this machine, so its shape is not "
            "known: write 'depth:' and 'width:' into the configuration, or use a local folder as 'source'."
        )
    return model.depth, model.width


def _hub_contents(
    model: Model, commits: Mapping[str, str], folders: Mapping[str, Path], ask: bool, on_message: OnMessage | None
) -> dict[str, Content]:
    """The content of revisions, as far as it is known: of their files here, and of those that the hub lists.

    A listed file counts before and after it is downloaded, so that the download does not change the key.
    """
    assert model.source is not None
    listings = _hub.listings(model.source, [commits[name] for name in folders], ask=False)
    listings |= _hub.listings(model.source, [commits[name] for name in commits if name not in folders], ask)
    here = dict(zip(folders, contents(tuple(folders.values()), model.pickled, on_message), strict=True))
    known = {}
    for name, commit in commits.items():
        listing = listings.get(commit, {})
        digests = {file: listing[file] for file in relevant(listing, model.pickled)}
        if listing or name in here:
            known[name] = Content.of({**digests, **(here[name].digests if name in here else {})})
    return known


def _refs(model: Model) -> tuple[Refs | None, str]:
    """The branches, if the revisions are a range without an end, and why the hub did not answer."""
    assert model.source is not None
    try:
        select_revisions(model.revisions, None)
        return None, "it was not asked"
    except ConfigError:
        pass
    refs, silence = _hub.refs(model.source)
    if refs is None:
        raise ConfigError(
            f"Model '{model.name}': 'revisions: {model.revisions}' needs the list of branches of {model.source}, which "
            f"is not on this machine, and {silence}. 'daskmetrics prefetch CONFIG' on a machine with a network keeps "
            f"the list in '{cache_folder()}'. Or name the revisions: 'main', a list, or a range with an end such as "
            "'every 1000 to 143000'."
        )
    return refs, silence


def _located(model: Model, found: Sequence[_Found], depth: int, width: int) -> LocatedSuite:
    """The suite of these revisions, with one of those of equal content."""
    groups: dict[Key, list[_Found]] = {}
    for each in found:
        groups.setdefault(each.location.identity, []).append(each)
    named = {max((each.name for each in group), key=_precedence): group for group in groups.values()}
    kept = {each.name: named[each.name] for each in found if each.name in named}
    # any of them that is on this machine, else the one that names the group
    chosen = {name: min(group, key=lambda e: (e.folder is None, e.name != name)) for name, group in kept.items()}
    return LocatedSuite(
        suite=Suite(model.name, tuple(kept), layers_of(model, depth), depth),
        locations=tuple(each.location for each in chosen.values()),
        width=width,
        missing=tuple(name for name, each in chosen.items() if each.folder is None),
        aliases={n: tuple(e.name for e in group if e.name != n) for n, group in kept.items() if len(group) > 1},
        warnings=tuple(f"{model.name}: {text}" for text in (*_equal_weights(chosen), *_misplaced(chosen))),
    )


def _precedence(name: str) -> tuple[int, bool]:
    """The latest step comes first, then ``main``."""
    step = step_of(name)
    return -1 if step is None else step, name == "main"


def _equal_weights(found: Mapping[str, _Found]) -> Iterator[str]:
    """A warning for each group of checkpoints with equal weights beside other files."""
    groups: dict[Key, dict[str, Content]] = {}
    for name, each in found.items():
        if each.content:
            groups.setdefault(each.content.weights, {})[name] = each.content
    for group in groups.values():
        files, *others = (set(content.digests.items()) for content in group.values())
        if different := {name for each in others for name, _ in files ^ each}:
            first, *rest = group
            yield f"{equal_names(first, rest)} in weights, but not in {listed(sorted(different))}; each is measured"


def _misplaced(found: Mapping[str, _Found]) -> list[str]:
    """A warning for each numbered step whose weights do not lie between those of its neighbours."""
    steps = sorted((step, name) for name in found if (step := step_of(name)) is not None)
    samples: dict[Key, tuple[str, NDArray[np.float32]]] = {}
    for _, name in steps:
        folder, content = found[name].folder, found[name].content
        drawn = sample(folder, content) if folder and content and len(steps) > 2 else None
        if content and drawn is not None:
            samples[content.weights] = name, drawn
    return out_of_order([name for name, _ in samples.values()], [drawn for _, drawn in samples.values()])


def require_on_hub(model: Model, missing: Sequence[str]) -> None:
    """Check that revisions that are not cached can be fetched from the hub; a `ConfigError` otherwise."""
    if not missing:
        return
    assert model.source is not None
    some = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
    try:
        available = _hub.ask_refs(model.source).commits
    except HubUnreachable as error:
        raise ConfigError(
            f"Model '{model.name}': {some} not in the hub's cache, and {error}. Fetch them on a machine with a "
            f"network: hf download {model.source} --revision {missing[0]}"
        ) from None
    unknown = [name for name in missing if name not in available]
    if unknown:
        known = ", ".join(training_order(available)[:8])
        raise ConfigError(
            f"Model '{model.name}': {model.source} has no revision {', '.join(unknown)}. It has {known}, ..."
        )


def _check_tokenizer(folder: Path) -> None:
    # tokenizer_config.json alone is enough: tokenizers of bytes have no vocabulary
    if not any(path for pattern in TOKENIZER for path in folder.glob(pattern)):
        raise ConfigError(
            f"'{folder}' has no tokenizer: no tokenizer.json, tokenizer_config.json or vocabulary. Copy tokenizer.json "
            "and tokenizer_config.json of the base model into it, or write them with "
            f"AutoTokenizer.from_pretrained(BASE).save_pretrained('{folder}')."
        )


def _shape(config: Path) -> tuple[int, int]:
    """Number of blocks and hidden size of a model that reads text."""
    data = read_json(config, dict)
    other = next((what for name, what in _OTHER_INPUTS.items() if name in data), None)
    if other or not any(name in data for name in _VOCABULARY):
        kind = data.get("model_type", "model of an unknown type")
        reason = f"it reads {other}" if other else "it has no vocabulary (vocab_size)"
        raise ConfigError(f"'{config}' is of a {kind}, which is no model that reads text: {reason}.")
    depth, width = (
        next((data[name] for name in names if isinstance(data.get(name), int)), None)
        for names in (
            ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"),
            ("hidden_size", "n_embd", "d_model", "dim", "emb_dim"),
        )
    )
    if depth is None or width is None:
        raise DataError(f"'{config}' has no depth and width of the model (num_hidden_layers, hidden_size).")
    return depth, width
