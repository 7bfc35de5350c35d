"""The places of a model's checkpoints: folders, or the cache of the hub on this machine."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from daskmetrics.checkpoints import hub
from daskmetrics.checkpoints.checks import refuse_code, shape_of
from daskmetrics.checkpoints.digests import Stamp, digests_of, has_changed, weights_key
from daskmetrics.checkpoints.folders import (
    ModelFolder,
    read_folder,
    selected_folders,
    suite_folders,
)
from daskmetrics.checkpoints.layout import (
    NETWORK,
    has_weights,
    is_adapter,
    relevant,
    required_files,
    root_of,
    tokenizer_folder,
    weight_files,
)
from daskmetrics.checkpoints.rolling import Rolling, rolling_of
from daskmetrics.config import Model
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.files import expanded
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.text import OnMessage, listed, shortened
from daskmetrics.domain.names import Suite, order_problem, step_of, training_order

# the code beside weights that transformers would run, by the names that it gives to the files
_CODE = ("modeling_", "configuration_", "tokenization_")
# as the hub allows it
HUB_ID = re.compile(r"(?!.*(--|\.\.|\.git$|[.-](/|$)))(\w[\w.-]*/)?\w[\w.-]*(?<!.{97})", re.ASCII)


@dataclass(frozen=True)
class Location:
    """The place of a checkpoint, with a key of its content."""

    path: str  # a local model folder, or a hub id
    revision: str | None  # the hub's revision; None for a folder
    # of the content; of the recipe (a trained suite), or of the commit if the content is not known
    identity: Key
    pickled: bool = False  # whether pickled weights may be loaded if there is no .safetensors file
    # set if its space on the disk is limited, and it is not in the hub's cache
    rolling: Rolling | None = None
    # of the model to which the weights in the folder, of an adapter, are added
    base: Location | None = None
    is_missing: bool = False  # a revision of the hub that is not on this machine
    aliases: tuple[str, ...] = ()  # the other revisions of equal content
    problem: str = ""  # why its weights cannot be read; empty if they can
    # of the files of a folder whose content is its identity
    stamps: tuple[Stamp, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class LocatedSuite:
    """A suite, and the place of each of its checkpoints.

    Of revisions of equal content the suite holds one: the latest step. Final weights are the ones
    that are served under other names, so the arms of the last step keep their name.
    """

    suite: Suite
    locations: tuple[Location, ...]
    width: int  # of the hidden states
    # what is wrong with the weights by their files: checkpoints that cannot be read, or are not
    # complete and left out
    warnings: tuple[str, ...] = ()


def locate(model: Model, on_message: OnMessage | None = None) -> LocatedSuite:
    """Find the checkpoints of a model; nothing is loaded or downloaded.

    The digests of weights that are new or have changed are computed; ``on_message`` is called
    before if it takes long. The hub is asked for what is not on this machine.
    """
    source = model.source or ""
    folder = expanded(source)
    if folder.is_dir():
        if model.disk:
            raise ConfigError(
                f"Model '{model.name}': '{folder}' is a folder, and 'disk' is for a hub id: leave"
                " it out."
            )
        return _in_folder(model, folder, on_message)
    if is_hub_id(source):
        return _on_hub(model, on_message)
    raise ConfigError(
        f"Model '{model.name}': no folder '{source}'. Give a model folder (with config.json), a"
        " folder with one model folder per revision (step0, step1000, ...), or a hub id such as"
        " gpt2 or EleutherAI/pythia-14m."
    )


def folder_of(location: Location) -> Path | None:
    """The checkpoint's folder on this machine, if it is there.

    None if it is not trained yet, or a hub revision that is not cached.
    """
    if location.rolling:
        entry = location.rolling.entry
        return entry.folder if entry.complete.is_file() else None
    folder = Path(location.path)
    if folder.is_dir():
        return folder
    if is_hub_id(location.path):
        return hub.snapshot(location.path, location.revision or "main")
    return None


def fetched(location: Location) -> Path:
    """The checkpoint's folder on this machine, downloaded if needed."""
    folder = folder_of(location)
    is_there = folder is not None and has_weights(folder, location.pickled)
    if not is_there and is_hub_id(location.path) and not location.rolling:
        return hub.fetch(location.path, location.revision or "main", location.pickled)
    if folder is None:
        raise DataError(f"'{location.path}' is not on this machine.")
    return folder


@contextmanager
def weights_alone(location: Location) -> Iterator[Path]:
    """A folder of links to the configuration and weights.

    A loader that is given it reads what is part of the key, whatever else lies in the folder.
    """
    folder = fetched(location)
    with TemporaryDirectory() as links:
        for name in (NETWORK, *weight_files(folder, location.pickled)):
            Path(links, name).symlink_to((folder / name).absolute())
        yield Path(links)


def recorded(location: Location) -> dict[str, Any]:
    """Where a checkpoint is, for those who load it later."""
    names = ("path", "revision", "identity")
    record: dict[str, Any] = {name: getattr(location, name) for name in names}
    tokenizer = tokenizer_of(location)
    if tokenizer and tokenizer != folder_of(location):
        record["tokenizer"] = str(tokenizer)
    if location.base:
        record["base"] = recorded(location.base)
    return record


def require_content(record: Mapping[str, Any], pickled: bool) -> None:
    """Check that a `recorded` folder has its content of then.

    Also that of its base.

    Raises
    ------
    DataError
        If it is gone, or its files are others: its scores are those of another model.
    """
    base = record.get("base")
    if base:
        require_content(base, pickled)
    if record["revision"] is not None:
        return
    folder = Path(record["path"])
    if not folder.is_dir():
        raise DataError(
            f"The model folder '{folder}' is gone. Restore it, or run again without it."
        )
    identity = record.get("identity")
    if identity is None:  # of a folder that no run has recorded
        return
    (digests,) = digests_of([required_files(folder, pickled)])
    if weights_key(digests, base and base["identity"]) != identity:
        raise DataError(
            f"'{folder}' has other weights, or another configuration or tokenizer, than when the"
            " run began. Restore the folder, or run again, which reads what is there."
        )


def require_unchanged(location: Location) -> None:
    """Check that a folder has the content of its identity.

    It is a `DataError` otherwise, as of `require_content`. Its files are read again only if they
    were written since.
    """
    stamps = location.stamps
    if location.base:
        stamps += location.base.stamps
    if has_changed(stamps):
        require_content(recorded(location), location.pickled)


def tokenizer_of(location: Location) -> Path | None:
    """The folder of a checkpoint's tokenizer on this machine.

    Its own, that of its suite, or of an adapter's base.
    """
    folder = folder_of(location)
    tokenizer = folder and tokenizer_folder(folder)
    if tokenizer is None and location.base:
        return tokenizer_of(location.base)
    return tokenizer


def shipped_folder(location: Location) -> Path | None:
    """The folder that says how states become vectors.

    For an adapter perhaps that of its base.
    """
    folder = folder_of(location)
    if location.base and folder and root_of(folder) is None:
        return folder_of(location.base)
    return folder


def is_hub_id(source: str) -> bool:
    """Whether a source is NAME or ORGANISATION/NAME, and no path.

    >>> is_hub_id("gpt2"), is_hub_id("EleutherAI/pythia-14m"), is_hub_id("./gpt2")
    (True, True, False)
    """
    return HUB_ID.fullmatch(source) is not None and not Path(source).exists()


def layers_of(model: Model, depth: int) -> tuple[int, ...]:
    """The layers that a configuration selects, by the depth."""
    if model.layers == "all":
        return tuple(range(depth + 1))
    if model.layers == "blocks":
        return tuple(range(1, depth + 1))
    return tuple(sorted(map(int, {*model.layers})))


def _in_folder(model: Model, folder: Path, on_message: OnMessage | None) -> LocatedSuite:
    suite = suite_folders(folder)
    paths = selected_folders(model, folder, suite)
    folders = [read_folder(path, model) for path in paths.values()]
    # what takes long comes last
    digests = digests_of([read.files for read in folders], on_message)
    base_suite = _base_of(model, folders)
    locations = {}
    for name, read, by_file in zip(paths, folders, digests, strict=True):
        base = base_suite.locations[0] if base_suite and read.adapter else None
        locations[name] = Location(
            path=str(read.path.resolve()),
            revision=None,
            identity=weights_key(by_file, base.identity if base else None),
            pickled=model.pickled,
            base=base,
            problem=read.problem,
            stamps=read.stamps,
        )
    shape = folders[0].shape
    if base_suite:
        shape = base_suite.suite.depth, base_suite.width
    assert shape is not None
    left_out = [
        f"{name} is left out, since it is not complete: {suite.incomplete[name]}"
        for name in training_order(suite.incomplete)
    ]
    return _located(model, locations, *shape, left_out)


def _base_of(model: Model, folders: Collection[ModelFolder]) -> LocatedSuite | None:
    adapters = {read.path: read.adapter for read in folders if read.adapter}
    networks = [read.path for read in folders if not read.adapter]
    if model.base and networks:
        raise ConfigError(
            f"Model '{model.name}' has a 'base', which is for LoRA adapters, but '{networks[0]}'"
            " has no adapter (no adapter_config.json). Leave out 'base'."
        )
    if not adapters:
        return None
    sources = {(adapter.base, adapter.revision) for adapter in adapters.values()}
    if model.base:
        sources = {(model.base, "main")}
    (source, revision), *others = sorted(sources)
    if others:
        raise ConfigError(
            f"Model '{model.name}' has adapters of"
            f" {listed(sorted(source for source, _ in sources))}, which are several base models."
            " Give each a suite of its own."
        )
    what = (
        f"Model '{model.name}': the base model '{source}' of the adapter in"
        f" '{next(iter(adapters))}'"
    )
    folder = expanded(source or "?")
    if is_adapter(folder):
        raise ConfigError(
            f"{what} is an adapter itself. Merge it into its own base with"
            " merge_and_unload() of peft, and write that folder as 'base' of the model."
        )
    if folder.is_dir():
        revision = "main"
    elif folder_of(Location(source or "?", revision, "")) is None:
        remedy = "Write its folder as 'base' of the model"
        if is_hub_id(source):
            remedy += f", or fetch it: hf download {source} --revision {revision}"
        raise ConfigError(f"{what} is not on this machine. {remedy}.")
    base = Model(name=model.name, source=source, revisions=revision, pickled=model.pickled)
    return locate(base)


def _on_hub(model: Model, on_message: OnMessage | None) -> LocatedSuite:
    suite = hub.read_revisions(model)
    depth, width = _shape_on_hub(model, suite)
    complete = {}
    for revision in suite.revisions:
        snapshot = revision.snapshot
        if snapshot and revision.is_complete:
            complete[revision.name] = snapshot
        elif snapshot and suite.silence and has_weights(snapshot, pickled=True):
            # raises: there are pickled weights, and the hub offers no others
            required_files(snapshot, pickled=False)
        _refuse_code_of(model, revision)
    folders = {name: read_folder(path, model) for name, path in complete.items()}
    read = digests_of([folder.files for folder in folders.values()], on_message)
    digests_here = dict(zip(folders, read, strict=True))
    locations = {}
    without_weights = []
    for revision in suite.revisions:
        # a listed file counts before and after it is downloaded, so that the key stays the same
        listing = revision.listing
        digests = {file: listing[file][0] for file in relevant(listing, model.pickled)}
        digests |= digests_here.get(revision.name, {})
        folder = folders.get(revision.name)
        if listing and not digests:
            without_weights.append(revision)
            continue
        identity = content_key(model.source, revision.commit or revision.name)
        if digests:
            identity = weights_key(digests)
        rolling = None
        if model.disk and not folder and revision.commit and not suite.silence:
            rolling = rolling_of(model, identity, revision.commit, digests, listing)
        locations[revision.name] = Location(
            path=str(model.source),
            revision=revision.name,
            identity=identity,
            pickled=model.pickled,
            rolling=rolling,
            is_missing=folder is None,
            problem=folder.problem if folder else "",
        )
    pickled = [revision for revision in without_weights if relevant(revision.listing, pickled=True)]
    names = [revision.name for revision in pickled or without_weights]
    problem = (
        f"{shortened(names)} of {model.source} without weights in .safetensors files: leave them"
        " out of 'revisions', or set 'pickled: true' for the model (no code in them is run)"
    )
    if without_weights and (not suite.is_open or not locations):
        raise ConfigError(f"Model '{model.name}': {problem}.")
    return _located(model, locations, depth, width, [problem] if pickled else [])


def _shape_on_hub(model: Model, suite: hub.HubSuite) -> tuple[int, int]:
    for revision in suite.revisions:
        if revision.snapshot:
            return shape_of(revision.snapshot / NETWORK)
    if model.depth is not None and model.width is not None:
        return model.depth, model.width
    source = str(model.source)
    hub.require_answer(source, suite.silence)
    raise ConfigError(
        f"Model '{model.name}' ({source}) is not in the hub's cache on this machine, so"
        " its shape is not known: write 'depth:' and 'width:' into the configuration, or fetch"
        f" it: hf download {source} --revision {suite.revisions[0].name}"
    )


def _refuse_code_of(model: Model, revision: hub.HubRevision) -> None:
    files = sorted(revision.listing)
    code = [file for file in files if file.startswith(_CODE) and file.endswith(".py")]
    if code:
        refuse_code(model, f"{model.source}@{revision.name}", ", ".join(code[:3]))


def _located(
    model: Model,
    locations: Mapping[str, Location],
    depth: int,
    width: int,
    warnings: Sequence[str],
) -> LocatedSuite:
    """The suite of these revisions, equal content once."""
    groups: dict[Key, list[str]] = {}
    for name, location in locations.items():
        groups.setdefault(location.identity, []).append(name)
    chosen: dict[str, Location] = {}
    for names in groups.values():
        latest = max(names, key=_precedence)
        # any of them that is on this machine, else the one that names the group
        served = min((latest, *names), key=lambda name: locations[name].is_missing)
        aliases = tuple(name for name in names if name != latest)
        chosen[latest] = replace(locations[served], aliases=aliases)
    revisions = tuple(name for name in locations if name in chosen)
    unreadable = [
        f"{name} cannot be read and will be recorded as an error: {chosen[name].problem}; copy its"
        " weights again"
        for name in revisions
        if chosen[name].problem
    ]
    suite = Suite(model.name, revisions, layers_of(model, depth), depth)
    unordered = filter(None, [order_problem(revisions)])
    return LocatedSuite(
        suite=suite,
        locations=tuple(chosen[name] for name in revisions),
        width=width,
        warnings=tuple(f"{model.name}: {text}" for text in (*warnings, *unreadable, *unordered)),
    )


def _precedence(name: str) -> tuple[int, bool]:
    """The latest step comes first, then ``main``."""
    step = step_of(name)
    return -1 if step is None else step, name == "main"
