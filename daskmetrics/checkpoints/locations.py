"""The places of a model's checkpoints: folders, or the cache of the hub on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from daskmetrics.checkpoints import hub
from daskmetrics.checkpoints.content import Content, OnMessage, contents
from daskmetrics.checkpoints.folders import (
    Incomplete,
    files_of,
    is_adapter,
    own_code,
    read_adapter,
    relevant,
    require_agreement,
    revision_folders,
    root_of,
    shape_of,
    tokenizer_folder,
    weight_headers,
)
from daskmetrics.checkpoints.rolling import Rolling, rolling_of
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import (
    Key,
    Suite,
    content_key,
    select_revisions,
    step_of,
    training_order,
)
from daskmetrics.core.text import equal_names, listed

# the code beside weights that transformers would run, by the names that it gives to the files
_CODE = ("modeling_", "configuration_", "tokenization_")
HUB_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")


@dataclass(frozen=True)
class Location:
    """The place of one checkpoint, and a key of its content, which is part of every key."""

    path: str  # a local model folder, or a hub id
    revision: str | None  # the hub's revision; None for a folder
    # of the content; of the recipe (a trained suite), or of the commit if the content is not known
    identity: Key
    pickled: bool = False  # whether pickled weights may be loaded if there is no .safetensors file
    # set if its space on the disk is limited, and it is not in the hub's cache
    rolling: Rolling | None = None
    # of the model to which the weights in the folder, of an adapter, are added
    base: Location | None = None


@dataclass(frozen=True)
class LocatedSuite:
    """A suite, and the places of its checkpoints, one for each revision.

    Of revisions of equal content the suite holds one: the latest step. Final weights are the ones
    that are served under other names, so the arms of the last step keep their name.
    """

    suite: Suite
    locations: tuple[Location, ...]
    width: int  # of the hidden states
    missing: tuple[str, ...] = ()  # hub revisions that are not in the local cache
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The other revisions of equal content, by the revision in the suite."""
    warnings: tuple[str, ...] = ()
    """What is wrong with the weights by their files: equal weights beside other configurations, and
    checkpoints that are not complete and left out."""
    offered: str = ""
    """What kinds of weights the hub has, in words; empty for a folder, or if the hub's lists of files are not known."""


@dataclass(frozen=True)
class _Revision:
    """A revision, where it is, and what it holds."""

    name: str
    location: Location
    content: Content | None  # None if it is not known
    folder: Path | None  # None if it is not on this machine


def locate(model: Model, on_message: OnMessage | None = None, number: int = 0) -> LocatedSuite:
    """Find the checkpoints of a model's configuration; no weights are loaded or downloaded.

    The digests of weights that are new or have changed are computed; ``on_message`` is called
    before if it takes long. The hub is asked for what is not on this machine. Messages name the
    model's settings by its ``number``.
    """
    source = model.source or ""
    folder = Path(source).expanduser()
    if folder.is_dir():
        if model.disk:
            raise ConfigError(
                f"Model '{model.name}': '{folder}' is a folder, and 'disk' is for a hub id: leave"
                " it out."
            )
        return _find_folder(model, folder, on_message)
    if is_hub_id(source):
        return _find_on_hub(model, on_message, number)
    raise ConfigError(
        f"Model '{model.name}': no folder '{source}'. Give a model folder (with config.json), a"
        " folder with one model folder per revision (step0, step1000, ...), or a hub id such as"
        " gpt2 or EleutherAI/pythia-14m."
    )


def folder_of(location: Location) -> Path | None:
    """The checkpoint's folder on this machine; None if it is not trained yet, or a hub revision
    that is not cached.
    """
    if location.rolling:
        if location.rolling.complete.is_file():
            return Path(location.rolling.folder)
        return None
    folder = Path(location.path)
    if folder.is_dir():
        return folder
    if is_hub_id(location.path):
        return _cached(location.path, location.revision or "main")
    return None


def _cached(source: str, revision: str) -> Path | None:
    """The folder of a revision in the hub's cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(source, "config.json", revision=revision)
    if isinstance(config, str):
        return Path(config).parent
    return None


def source_of(location: Location) -> dict[str, str]:
    """From where transformers loads a checkpoint: its folder, or a hub id and revision."""
    if location.rolling:
        return {"pretrained_model_name_or_path": location.rolling.folder}
    return {"pretrained_model_name_or_path": location.path, "revision": location.revision or "main"}


def recorded(location: Location) -> dict[str, Any]:
    """Where a checkpoint is, as a run records it for those who load it later."""
    record: dict[str, Any] = {"path": location.path, "revision": location.revision}
    tokenizer = tokenizer_of(location)
    if tokenizer and tokenizer != folder_of(location):
        record["tokenizer"] = str(tokenizer)
    if location.base:
        record["base"] = recorded(location.base)
    return record


def tokenizer_of(location: Location) -> Path | None:
    """The folder of a checkpoint's tokenizer on this machine: its own, that of its suite, or of an
    adapter's base.
    """
    folder = folder_of(location)
    tokenizer = None
    if folder:
        tokenizer = tokenizer_folder(folder)
    if tokenizer is None and location.base:
        return tokenizer_of(location.base)
    return tokenizer


def shipped_folder(location: Location) -> Path | None:
    """The folder that says how the states of a checkpoint become vectors; for an adapter perhaps
    that of its base.
    """
    folder = folder_of(location)
    if location.base and folder and root_of(folder) is None:
        return folder_of(location.base)
    return folder


def is_hub_id(source: str) -> bool:
    """Whether a source is NAME or ORGANISATION/NAME, and nothing on this machine.

    >>> is_hub_id("gpt2"), is_hub_id("EleutherAI/pythia-14m"), is_hub_id("./gpt2")
    (True, True, False)
    """
    return HUB_ID.fullmatch(source) is not None and not Path(source).exists()


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
    folders, incomplete = revision_folders(folder)
    listed_names = model.revisions
    if isinstance(listed_names, str):
        listed_names = (listed_names,)
    wrong = [name for name in incomplete if not folders or name in listed_names]
    if wrong:
        raise ConfigError(
            f"Model '{model.name}': '{folder / wrong[0]}' is not complete: {incomplete[wrong[0]]}."
        )
    if not folders:
        raise ConfigError(
            f"Model '{model.name}': no model in '{folder}': no config.json in it or in its"
            " sub-folders."
        )
    revisions = revisions_of(model, training_order(folders))
    chosen = [folders[name] for name in revisions]
    bases = _bases(model, chosen)
    network = folder_of(bases[0]) if bases[0] else chosen[0]
    assert network is not None
    shape = shape_of(network / "config.json")
    for path, base in zip(chosen, bases, strict=True):
        if tokenizer_of(Location(str(path), None, "", base=base)) is None:
            raise ConfigError(
                f"'{path}' has no tokenizer: no tokenizer.json, tokenizer_config.json or"
                " vocabulary. Copy tokenizer.json and tokenizer_config.json of the base model into"
                " it, or write them with"
                f" AutoTokenizer.from_pretrained(BASE).save_pretrained('{path}')."
            )
    checkpoints = []
    for name, path, content, base in zip(
        revisions, chosen, contents(chosen, model.pickled, on_message), bases, strict=True
    ):
        key = content.key
        if base:
            key = content_key("adapter", base.identity, content.key)
        location = Location(str(path.resolve()), None, key, model.pickled, base=base)
        checkpoints.append(_Revision(name, location, content, path))
    left_out = [
        f"{name} is left out, since it is not complete: {incomplete[name]}"
        for name in training_order(incomplete)
    ]
    return _located(model, checkpoints, *shape, left_out)


def _bases(model: Model, folders: Sequence[Path]) -> list[Location | None]:
    """The location of the base of each adapter among these folders, and None for those of whole
    models.
    """
    adapters = {folder: read_adapter(folder) for folder in folders if is_adapter(folder)}
    networks = [folder for folder in folders if folder not in adapters]
    if model.base and networks:
        raise ConfigError(
            f"Model '{model.name}' has a 'base', which is for LoRA adapters, but '{networks[0]}'"
            " has no adapter (no adapter_config.json). Leave out 'base'."
        )
    sources = {(adapter.base, adapter.revision) for adapter in adapters.values()}
    if model.base:
        sources = {(model.base, "main")}
    if not adapters:
        return [None] * len(folders)
    (source, revision), *others = sorted(sources)
    if others:
        raise ConfigError(
            f"Model '{model.name}' has adapters of"
            f" {listed(sorted(source for source, _ in sources))}, which are several base models."
            " Give each a suite of its own."
        )
    if Path(source or "?").expanduser().is_dir():
        revision = "main"
    elif folder_of(Location(source or "?", revision, "")) is None:
        remedy = "Write its folder as 'base' of the model"
        if is_hub_id(source):
            remedy += f", or fetch it: hf download {source} --revision {revision}"
        raise ConfigError(
            f"Model '{model.name}': the base model '{source}' of the adapter in"
            f" '{next(iter(adapters))}' is not on this machine. {remedy}."
        )
    whole = Model(name=model.name, source=source, revisions=revision, pickled=model.pickled)
    (base,) = locate(whole).locations
    return [base if folder in adapters else None for folder in folders]


def _find_on_hub(model: Model, on_message: OnMessage | None, number: int) -> LocatedSuite:
    source = model.source or ""
    refs, silence = hub.refs_of(model)
    is_open_range = refs is not None
    available = training_order(refs.branches) if refs else None
    names = tuple(dict.fromkeys(revisions_of(model, available)))
    cached = {name: folder for name in names if (folder := _cached(source, name))}
    shape = model.depth, model.width
    if cached:
        shape = shape_of(next(iter(cached.values())) / "config.json")
    depth, width = shape
    if depth is None or width is None:
        hub.require_answer(source)
        raise ConfigError(
            f"Model '{model.name}' ({source}) is not in the hub's cache on this machine, so"
            " its shape is not known: write 'depth:' and 'width:' into the configuration, or fetch"
            f" it: hf download {source} --revision {names[0]}"
        )
    folders = {name: folder for name, folder in cached.items() if files_of(folder, model.pickled)}
    if refs is None and len(folders) < len(names):
        refs, silence = hub.refs(source)
    for name in cached.keys() - folders.keys():
        if silence and files_of(cached[name], pickled=True):
            # raises: there are pickled weights, and the hub offers no others
            contents([cached[name]])
    commits = dict(refs.commits) if refs else {}
    # the snapshot folder of a cached revision is named by its commit
    commits |= {name: folder.name for name, folder in folders.items()}
    commits = {name: commits[name] for name in names if name in commits}
    cached_commits = [commits[name] for name in folders]
    by_commit = hub.listings(source, cached_commits, ask=False)
    by_commit |= hub.listings(source, set(commits.values()).difference(cached_commits), not silence)
    listings = {name: by_commit[commit] for name, commit in commits.items() if commit in by_commit}
    if not model.ignore_code:
        for name, listing in listings.items():
            code = sorted(
                file for file in listing if file.startswith(_CODE) and file.endswith(".py")
            )
            _refuse_code(model, f"{source}@{name}", ", ".join(code[:3]))
    by_revision = _hub_contents(model, listings, folders, on_message)
    empty = [name for name in names if name in by_revision and not by_revision[name].digests]
    offered, remedy = hub.offered(source, listings, model.pickled, f"models.{number}.pickled: true")
    if empty and (not is_open_range or len(empty) == len(names)):
        raise ConfigError(f"Model '{model.name}': {offered}: {remedy}.")
    checkpoints = []
    for name in names:
        if name in empty:
            continue
        content, commit = by_revision.get(name), commits.get(name, name)
        identity = content_key(source, commit)
        if content:
            identity = content.key
        location = Location(source, name, identity, model.pickled)
        if model.disk and name not in folders and name in commits and not silence:
            files = rolling_of(model, identity, commit, content, listings.get(name))
            location = replace(location, rolling=files)
        checkpoints.append(_Revision(name, location, content, folders.get(name)))
    warnings = []
    if "pickled:" in remedy:
        warnings = [f"{offered}: {remedy}"]
    located = _located(model, checkpoints, depth, width, warnings)
    return replace(located, offered=offered)


def _hub_contents(
    model: Model,
    listings: Mapping[str, hub.Listing],
    folders: Mapping[str, Path],
    on_message: OnMessage | None,
) -> dict[str, Content]:
    """The content of revisions, as far as it is known: of their files here, and of those that the
    hub lists.

    A listed file counts before and after it is downloaded, so that the download does not change the
    key.
    """
    local = contents(tuple(folders.values()), model.pickled, on_message)
    here = dict(zip(folders, local, strict=True))
    by_revision = {}
    for name in {**listings, **folders}:
        listing = listings.get(name, {})
        digests = {file: listing[file][0] for file in relevant(listing, model.pickled)}
        if name in here:
            digests |= here[name].digests
        by_revision[name] = Content.of(digests)
    return by_revision


def _located(
    model: Model,
    revisions: Sequence[_Revision],
    depth: int,
    width: int,
    warnings: Sequence[str] = (),
) -> LocatedSuite:
    """The suite of these revisions, with one of those of equal content."""
    groups: dict[Key, list[_Revision]] = {}
    for revision in revisions:
        groups.setdefault(revision.location.identity, []).append(revision)
    named = {}
    for group in groups.values():
        named[max((revision.name for revision in group), key=_precedence)] = group
    chosen: dict[str, _Revision] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    for name in (revision.name for revision in revisions if revision.name in named):
        # any of them that is on this machine, else the one that names the group
        usable = [revision for revision in named[name] if revision.folder] or named[name]
        chosen[name] = next((revision for revision in usable if revision.name == name), usable[0])
        others = tuple(revision.name for revision in named[name] if revision.name != name)
        if others:
            aliases[name] = others
    texts = list(warnings)
    for revision in chosen.values():
        if revision.folder and not model.ignore_code:
            _refuse_code(model, str(revision.folder), own_code(revision.folder))
    for name, revision in chosen.items():
        try:
            if revision.folder:
                require_agreement(revision.folder, weight_headers(revision.folder))
        except Incomplete as problem:
            texts.append(
                f"{name} cannot be read and will be recorded as an error: {problem}; copy its "
                "weights again"
            )
    texts += _equal_weights(chosen)
    return LocatedSuite(
        suite=Suite(model.name, tuple(chosen), layers_of(model, depth), depth),
        locations=tuple(revision.location for revision in chosen.values()),
        width=width,
        missing=tuple(name for name, revision in chosen.items() if revision.folder is None),
        aliases=aliases,
        warnings=tuple(f"{model.name}: {text}" for text in texts),
    )


def _refuse_code(model: Model, where: str, code: str) -> None:
    if code:
        raise ConfigError(
            f"Model '{model.name}': '{where}' has code of its own ({code}), which is not run, and"
            " the class that transformers has for this type may compute something else. If that"
            " class is meant, write 'ignore_code: true' into the model; otherwise load it yourself"
            " and pass it to daskmetrics.layers (docs/models.md)."
        )


def _precedence(name: str) -> tuple[int, bool]:
    """The latest step comes first, then ``main``."""
    step = step_of(name)
    return -1 if step is None else step, name == "main"


def _equal_weights(revisions: Mapping[str, _Revision]) -> Iterator[str]:
    """A warning for each group of checkpoints with equal weights beside other files."""
    groups: dict[Key, dict[str, Content]] = {}
    for name, revision in revisions.items():
        if revision.content:
            groups.setdefault(revision.content.weights, {})[name] = revision.content
    for group in groups.values():
        files = [set(content.digests.items()) for content in group.values()]
        different = dict(files[0].union(*files) - files[0].intersection(*files))
        if different:
            name, *others = group
            yield (
                f"{equal_names(name, others)} in weights, but not in {listed(sorted(different))}; "
                "each is measured"
            )
