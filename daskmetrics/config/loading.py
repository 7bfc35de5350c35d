"""From YAML, ``--set`` settings and cluster profiles to a validated configuration."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias, get_args

import yaml
from pydantic import ValidationError

from daskmetrics.config._cluster import Cluster
from daskmetrics.config._recipe import TRAININGS
from daskmetrics.config.schema import PRESETS, Config
from daskmetrics.config.section import Section
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.files import require_regular
from daskmetrics.core.main_module import import_from

# as YAML gives them: they may have any type until they are validated
Keys: TypeAlias = Mapping[Any, Any]
_DEEPEST = 100  # brackets in brackets
# the key of a section for which a name stands
_NAMED = {
    "protocol": "preset",
    "cluster": "profile",
}
_MOST = 100_000  # values of a YAML file; nested aliases can stand for any number
_OWN_PROGRAM = "Use train: {script: ...}, a program of your own"
#: Keys of 0.1, by their place: what they were by default, and the remedy. The `config.yaml`
#: of a run has every key.
_GONE: Mapping[str, tuple[object, str]] = {
    "cluster.constraint": (None, "Use directives: ['--constraint=...']"),
    "cluster.downloads": ("driver", "Remove it: the machine that drives the run downloads"),
    "cluster.embeddings": ("1GiB", "Remove it: it is 1 GiB"),
    "cluster.max_jobs": (None, "Use fewer cluster.workers"),
    "cluster.qos": (None, "Use directives: ['--qos=...']"),
    "cluster.scratch": (None, "Use exports: {DASK_TEMPORARY_DIRECTORY: ...}"),
    "ddp.interface": (None, "Use cluster.interface"),
    "models.program": (None, _OWN_PROGRAM),
    "models.tensors": ("needed", "Remove it: the hub's client downloads whole files"),
    "models.train.clip": (1.0, _OWN_PROGRAM),
    "models.train.compile": (False, _OWN_PROGRAM),
    "models.train.init_from": (None, _OWN_PROGRAM),
    "models.train.label": ("label", _OWN_PROGRAM),
    "models.train.objective": ("next-token", _OWN_PROGRAM),
    "models.train.schedule": ("cosine", _OWN_PROGRAM),
    "models.train.size": (None, "Use width, depth and heads"),
    "models.train.tokenizer": (None, _OWN_PROGRAM),
    "models.train.warmup": (0.0625, _OWN_PROGRAM),
    "readouts.storage": (["float32"], "Remove it: a trial found no gain"),
    "readouts.whitening": ([False], "Remove it: a trial found no gain"),
    "search.metrics": (False, "Remove it: metrics as features helped no search"),
    "search.spend": (None, "Use search.budget"),
    "search.wall_hours": (None, "Use search.budget"),
    "watch": ({}, "Use until_idle and log_to at the top"),
    "watch.keep": (None, "Remove it: no watch deletes checkpoints"),
    "watch.log": ([], "Use log_to at the top"),
    "watch.poll": ("5s", "Remove it: it is 5 s"),
    "watch.settle": ("3s", "Remove it: it is 3 s"),
    "watch.until_idle": ("none", "Use until_idle at the top"),
}
_WITH_GONE = {name.rpartition(".")[0] for name in _GONE}  # the sections


def folder() -> Path:
    """Folder of the ready-made configurations: inside an installed package, or beside it in a
    checkout.
    """
    package = Path(str(files("daskmetrics")))
    inside = package / "configs"
    if inside.is_dir():
        return inside
    return package.parent / "configs"


def load(
    source: str | Path | Mapping[str, object],
    settings: Sequence[str] = (),
    changes: Mapping[str, object] | None = None,
) -> Config:
    """Read a configuration from a YAML file or a mapping, and apply changes and settings on top.

    Parameters
    ----------
    source : str, Path or mapping
        The experiment's YAML, or its keys and values.
    settings : sequence of str
        ``KEY=VALUE``, such as ``search.budget=0.1`` or ``models.0.revisions=log``; values are read
        as YAML. They are applied last.
    changes : mapping, optional
        Keys and values in place of those of the source; the keys of sections are merged.

    Raises
    ------
    ConfigError
        If the file is missing or not YAML, a key is unknown, or a value is not valid.

    Examples
    --------
    >>> load(folder() / "demo.yaml", ["search.budget=0.1"]).search.budget
    0.1
    """
    where = "configuration"
    if not isinstance(source, Mapping):
        where = str(source)
        source = _read(Path(source))
        import_from(Path(where).parent)  # own metrics, tasks and policies beside the file
    data = _merge(source, changes or {})
    if settings:
        data = copy.deepcopy(data)  # a mapping of the caller stays as it is
    for setting in settings:
        _apply(data, setting)
    return parse(data, where)


def parse(data: Mapping[str, object], where: str = "configuration") -> Config:
    """Validate a mapping, as YAML gives it; presets and profiles are replaced by their keys.

    Parameters
    ----------
    data : mapping
        Keys and values of the experiment.
    where : str
        Where the data comes from, for messages.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or a value is not valid.

    Examples
    --------
    >>> parse({"name": "x", "models": [{"name": "a", "source": "./a"}], "protocol": "paper"}).protocol.padding
    'left'
    """
    data = _present(data)
    protocol = _as_mapping("protocol", "preset", data.get("protocol"))
    preset = protocol.pop("preset", "corrected")
    if preset not in PRESETS:
        raise unknown("protocol preset", preset, PRESETS)
    protocol = {**PRESETS[preset].model_dump(), **protocol}
    data = {**data, "protocol": protocol, "cluster": _cluster_keys(data.get("cluster"))}
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "\n".join(map(_message, _causes(error)))) from None
    except UnicodeEncodeError as error:  # half of a surrogate pair where a choice is expected
        character = error.object[error.start]
        raise ConfigError(
            f"{where}: {character!r} is half of a surrogate pair; write the whole character."
        ) from None


def cluster(base: str | Mapping[str, object] | None, **keys: object) -> Cluster:
    """Read the settings of a cluster alone.

    The site's dask configuration (``daskmetrics.cluster``) overrides the profile, and keys override
    both. A Slurm profile takes what it leaves open from dask-jobqueue's configuration: queue,
    account, interface and prologue.

    Parameters
    ----------
    base : str, mapping or None
        Name of a profile, path of its YAML file, or keys (``profile`` among them names one).
    **keys
        Further keys on top.

    Raises
    ------
    ConfigError
        If there is no such profile, a key is unknown, or a value is not valid.

    Examples
    --------
    >>> cluster("local", workers=3).workers
    3
    """
    if isinstance(base, str):
        base = {"profile": base}
    try:
        return Cluster.model_validate(_cluster_keys({**(base or {}), **keys}))
    except ValidationError as error:
        places = ({**item, "loc": ("cluster", *item["loc"])} for item in _causes(error))
        raise ConfigError("\n".join(map(_message, places))) from None


JOBQUEUE = {
    "queue": "partition",
    "account": "account",
    "interface": "interface",
    "job-script-prologue": "prologue",
}
"""Keys of ``jobqueue: slurm`` in dask-jobqueue's ``jobqueue.yaml`` that a Slurm profile takes as its own."""


def jobqueue_settings() -> dict[str, Any]:
    """What the user has set for Slurm in dask-jobqueue's configuration, by our keys; its own
    defaults are empty.
    """
    import dask.config

    settings = dask.config.get("jobqueue.slurm", None) or {}
    return {key: settings[name] for name, key in JOBQUEUE.items() if settings.get(name)}


def cluster_origins(base: str) -> tuple[Cluster, dict[str, str]]:
    """A profile, and where each of its keys comes from that is not a default."""
    origins: dict[str, str] = {}
    for origin, keys in _cluster_layers({"profile": base}):
        origins |= dict.fromkeys(keys, origin)
    return cluster(base), origins


def _present(section: Any, section_name: str = "") -> Any:
    """A section without keys of an earlier version that ask for nothing; `ConfigError` if one asks
    for something.
    """
    if isinstance(section, list | tuple) and section_name == "models":
        return [
            _present(item, section_name) if isinstance(item, Mapping) else item for item in section
        ]
    if not isinstance(section, Mapping) or section_name not in _WITH_GONE:
        return section
    present = {}
    for key, value in section.items():
        name = f"{section_name}.{key}".removeprefix(".")
        value = _present(value, name)
        if name not in _GONE:
            present[key] = value
            continue
        default, remedy = _GONE[name]
        if value not in (None, default):
            raise ConfigError(
                f"'{name}': got {_shorten(value)}; this key is gone since 0.2. {remedy}."
            )
    return present


def _cluster_keys(section: object) -> Keys:
    return _merge(*(keys for _, keys in _cluster_layers(section)))


def _cluster_layers(section: object) -> list[tuple[str, Keys]]:
    """Cluster settings by origin, weakest first: jobqueue.yaml, the named profile, the site's file,
    the keys.
    """
    import dask.config

    keys = _as_mapping("cluster", "profile", section)
    name = keys.pop("profile", None)
    profile = {}
    if name and name.endswith((".yaml", ".yml")):
        profile = _read(Path(name))
    elif name:
        profiles = {path.stem: path for path in (folder() / "clusters").glob("*.yaml")}
        if name not in profiles:
            raise unknown("cluster profile", name, profiles)
        profile = _read(profiles[name])
    site = dask.config.get("daskmetrics.cluster", None) or {}
    layers = [("profile", profile), ("Dask's configuration", site), ("experiment", keys)]
    layers = [(origin, _present(layer, "cluster")) for origin, layer in layers]
    if _merge(profile, site, keys).get("kind") == "slurm":
        layers.insert(0, ("jobqueue.yaml", jobqueue_settings()))
    return layers


def _merge(*weakest_first: Keys) -> dict[Any, Any]:
    """Mappings joined key by key, nested ones too."""
    merged: dict[object, object] = {}
    for layer in weakest_first:
        for key, value in layer.items():
            before = merged.get(key)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                value = _merge(before, value)
            merged[key] = value
    return merged


def _as_mapping(section: str, key: str, value: object) -> dict[Any, Any]:
    """A section as a mapping; a single name stands for ``{key: name}``."""
    mapping = value
    if isinstance(value, str):
        mapping = {key: value}
    elif value is None:
        mapping = {}
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get(key, ""), str):
        raise ConfigError(
            f"'{section}': got {_shorten(value)}; write the name of a {key}, or 'key: value' lines."
        )
    return dict(mapping)


def _read(path: Path) -> dict[str, Any]:
    require_regular(path)
    try:
        data = _parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        available = ", ".join(str(p) for p in sorted(folder().glob("*.yaml")))
        raise ConfigError(
            f"No configuration file '{path}' ({error.strerror}). Ready-made ones: {available}."
        ) from None
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"'{path}' must hold 'key: value' lines, but holds {type(data).__name__}."
        )
    return data


def _parse_yaml(text: str) -> Any:
    """The value of a YAML text; ValueError for every problem, also for a date that does not
    exist.
    """
    try:
        brackets = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[][{}]", text))
        if max(accumulate(brackets), default=0) > _DEEPEST:  # the parser takes seconds
            raise ValueError(f"its brackets are nested more than {_DEEPEST} deep")
        value = yaml.safe_load(text)
        if _count(value, {}) > _MOST:
            raise ValueError(f"its aliases stand for more than {_MOST:,} values")
        return value
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(_shorten(error, 500)) from None


def _count(value: object, counts: dict[int, int]) -> int:
    """The values in a value, with those that aliases repeat; each is counted once and
    remembered.
    """
    members: Collection[object] = ()
    if isinstance(value, dict):
        members = value.values()
    elif isinstance(value, list):
        members = value
    if members and id(value) not in counts:
        counts[id(value)] = 1 + sum(_count(member, counts) for member in members)
    return counts.get(id(value), 1)


def _shorten(value: object, length: int = 200) -> str:
    try:
        text = str(value) if isinstance(value, Exception) else repr(value)
    # a number of more digits than Python writes, lists that are nested deeply, an object with an
    # error of its own
    except (ValueError, TypeError, AttributeError, RuntimeError):
        text = f"a {type(value).__name__} that cannot be written"
    if len(text) > length:
        text = f"{text[:length]} ..."
    return text


def _apply(data: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(
            f"'--set {setting}' is not KEY=VALUE, for instance --set search.budget=0.1."
        )
    try:
        value = _parse_yaml(text)
    except ValueError as error:
        raise ConfigError(f"'--set {setting}': the value is not valid YAML: {error}") from None
    *parents, option = key.strip().split(".")
    node: Any = data
    for name in parents:
        child_key = _place(node, name, setting)
        if isinstance(node, dict):
            node.setdefault(child_key, {})
        child = node[child_key]
        if isinstance(child, str) and name in _NAMED:
            child = node[child_key] = {_NAMED[name]: child}
        if not isinstance(child, dict | list):
            raise ConfigError(f"'--set {setting}': '{name}' is {child!r} and has no keys below it.")
        node = child
    node[_place(node, option, setting)] = value


def _place(node: dict[str, object] | list[object], name: str, setting: str) -> Any:
    """A key of a section, or an index of a list."""
    if isinstance(node, dict):
        return name
    if not name.isdigit() or int(name) >= len(node):
        raise ConfigError(f"'--set {setting}': '{name}' is not an index of a list of {len(node)}.")
    return int(name)


def _causes(error: ValidationError) -> list[Any]:
    """The errors without those that only follow: a list is also "too short" when one of its items
    is wrong.
    """
    items = error.errors()
    parents: set[tuple[int | str, ...]] = set()
    for item in items:
        path = item["loc"]
        parents.update(path[:length] for length in range(len(path)))
    return [item for item in items if item["loc"] not in parents]


def _message(item: Mapping[str, Any]) -> str:
    *parents, wrong_key = map(str, item["loc"] or ("",))
    # pydantic names the member of a union that was tried, such as tuple[str, ...], in the path
    parents = [key for key in parents if not set("[(") & set(key)]
    path = ".".join(key for key in (*parents, wrong_key) if not set("[(") & set(key))
    if item["type"] == "extra_forbidden":
        inside = ""
        if parents:
            inside = f" in '{'.'.join(parents)}'"
        fields = _section_at(item["loc"][:-1]).model_fields
        valid = (field.alias or name for name, field in fields.items())
        return f"{unknown('key', wrong_key, valid)}{inside}"
    if item["type"] == "missing":
        return f"'{path}' is missing."
    message = item["msg"].removeprefix("Value error, ")
    if not path:
        return f"{message}."
    return f"'{path}': got {_shorten(item['input'])}; {message}."


def _section_at(path: Sequence[object]) -> type[Section]:
    """The section that a path such as ('models', 0, 'train', '(recipe)') leads to."""
    section: type[Section] = Config
    for key in path:
        section = TRAININGS.get(str(key), section)
        field = section.model_fields.get(str(key))
        if field:
            kinds = (field.annotation, *get_args(field.annotation))
            section = next(
                (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)),
                section,
            )
    return section
