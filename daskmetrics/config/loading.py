"""From YAML, ``--set`` settings and cluster profiles to a validated configuration."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from pydantic import ValidationError

from daskmetrics.config._cluster import Cluster
from daskmetrics.config.schema import PRESETS, Config
from daskmetrics.config.section import shorten
from daskmetrics.core.errors import ConfigError, require_known, unknown
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.core.main_module import import_from
from daskmetrics.core.rows import read_text

# as YAML gives them: they may have any type until they are validated
Keys: TypeAlias = Mapping[Any, Any]
KeyPath: TypeAlias = tuple[str, ...]  # of a value in the configuration
_DEEPEST = 100  # brackets in brackets
# the key of a section for which a name stands
_NAMED = {
    "protocol": "preset",
    "cluster": "profile",
}
# what to write in place of a value, by pydantic's name of the error
_WRITE = {
    "string_type": "a text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("dict_type", "model_type"), "'key: value' lines"),
    "tuple_type": "a list, such as [a, b]",
    "too_short": "at least one value",
    "literal_error": "{expected}",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number from {ge} on",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number up to {le}",
    "finite_number": "a finite number",
}
_MOST = 100_000  # values of a YAML file; nested aliases can stand for any number


class _Loader(yaml.SafeLoader):
    """Reads ``3e-4`` as a number and ``010`` not in base 8, as YAML 1.2.

    It refuses a key that a mapping has twice.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """The mapping before ``<<`` adds the keys of others."""
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        names = set()
        for key in keys:
            if key.value in names:
                problem = f"the key '{key.value}' is there twice; keep one of them"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            names.add(key.value)
        return node


# with a sign: a short commit hash may look like 12e5678
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+e[-+]\d+$", re.IGNORECASE), list("-+0123456789")
)
# YAML 1.1 reads 010 as 8 and 1:30 as 90
_TEXT = re.compile(r"[-+]?(0\d+|\d+(:\d+)+)$")
for _first in "-+0123456789":
    _Loader.yaml_implicit_resolvers[_first].insert(0, ("tag:yaml.org,2002:str", _TEXT))


def folder() -> Path:
    """Folder of the ready-made configurations, in a package or a checkout."""
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
    """Read a configuration from a YAML file or a mapping.

    Changes and settings are applied on top.

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
    """Validate a mapping, as YAML gives it.

    Presets and profiles are replaced by their keys.

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
    protocol = _as_mapping("protocol", data.get("protocol"))
    preset = protocol.pop("preset", "corrected")
    if preset not in PRESETS:
        raise unknown("protocol preset", preset, PRESETS)
    protocol = {**PRESETS[preset].model_dump(), **protocol}
    data = {**data, "protocol": protocol, "cluster": _cluster_keys(data.get("cluster"))}
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_messages(error, data)}") from None
    except UnicodeEncodeError as error:  # half of a surrogate pair where a choice is expected
        raise ConfigError(f"{where}: {error}") from None


def cluster(base: str | Mapping[str, object] | None, **keys: object) -> Cluster:
    """Read the settings of a cluster alone.

    The site's dask configuration (``daskmetrics.cluster``) overrides the profile, and keys override
    both.

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
    section = _cluster_keys({**_as_mapping("cluster", base), **keys})
    try:
        return Cluster.model_validate(section)
    except ValidationError as error:
        raise ConfigError(_messages(error, section, "cluster")) from None


def cluster_origins(base: str) -> tuple[Cluster, dict[str, str]]:
    """A profile, and where its keys that are no defaults come from."""
    origins: dict[str, str] = {}
    for origin, keys in _cluster_layers({"profile": base}):
        origins |= dict.fromkeys(keys, origin)
    return cluster(base), origins


def _cluster_keys(section: object) -> Keys:
    return _merge(*(keys for _, keys in _cluster_layers(section)))


def _cluster_layers(section: object) -> list[tuple[str, Keys]]:
    """Cluster settings by origin, weakest first."""
    import dask.config

    keys = _as_mapping("cluster", section)
    name = keys.pop("profile", None)
    profile = {}
    if name:
        profiles = {path.stem: path for path in (folder() / "clusters").glob("*.yaml")}
        profiles |= {str(path): path for path in Path(name).parent.glob("*.y*ml")}
        path = str(Path(name))
        require_known("cluster profile", path, profiles)
        profile = _read(profiles[path])
    site = dask.config.get("daskmetrics.cluster", None) or {}
    if not isinstance(site, Mapping):
        raise ConfigError(
            f"'daskmetrics.cluster' in Dask's configuration: got {shorten(site)}; write 'key: "
            "value' lines there, or set a variable such as DASK_DASKMETRICS__CLUSTER__WORKERS."
        )
    return [("profile", profile), ("Dask's configuration", site), ("experiment", keys)]


def _merge(*weakest_first: Keys) -> dict[Any, Any]:
    merged: dict[object, object] = {}
    for layer in weakest_first:
        for key, value in layer.items():
            before = merged.get(key)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                value = _merge(before, value)
            merged[key] = value
    return merged


def _as_mapping(section: str, value: object) -> dict[Any, Any]:
    """A section as a mapping; a name stands for its key in `_NAMED`."""
    key = _NAMED[section]
    mapping = value
    if isinstance(value, str):
        mapping = {key: value}
    elif value is None:
        mapping = {}
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get(key, ""), str):
        raise ConfigError(
            f"'{section}': got {shorten(value)}; write the name of a {key}, or 'key: value' lines."
        )
    return dict(mapping)


def _read(path: Path) -> dict[str, Any]:
    for run in RunFolder(path), RunFolder(RUNS / path):
        if not path.is_file() and run.config.is_file() and run.journal.is_file():
            raise ConfigError(
                f"'{path}' is a run, and no configuration file. To continue it: daskmetrics run"
                f" {run.config} --folder {run.path}"
            )
    if not path.exists():
        available = ", ".join(map(str, sorted(folder().glob("*.yaml"))))
        others = filter(Path.exists, (path.with_suffix(".yaml"), path.with_suffix(".yml")))
        hint = "".join(f" Did you mean '{other}'?" for other in others)
        raise ConfigError(f"No configuration file '{path}'.{hint} Ready-made ones: {available}.")
    try:
        data = _parse_yaml(read_text(path))
    except ValueError as error:
        raise ConfigError(f"'{path}' is not valid YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(
            f"'{path}' must hold 'key: value' lines, but holds {type(data).__name__}."
        )
    return data


def _parse_yaml(text: str) -> Any:
    """The value of a YAML text; a ValueError for every problem."""
    try:
        brackets = (1 if bracket in "[{" else -1 for bracket in re.findall(r"[][{}]", text))
        if max(accumulate(brackets), default=0) > _DEEPEST:  # the parser takes seconds
            raise ValueError(f"its brackets are nested more than {_DEEPEST} deep")
        value = yaml.load(text, _Loader)
        if _count(value, {}) > _MOST:
            raise ValueError(f"its aliases stand for more than {_MOST:,} values")
        return value
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(shorten(error, 500)) from None


def _count(value: object, counts: dict[int, int]) -> int:
    """The values in a value, with those that aliases repeat."""
    members: Collection[object] = ()
    if isinstance(value, dict):
        members = value.values()
    elif isinstance(value, list):
        members = value
    if members and id(value) not in counts:
        counts[id(value)] = 1 + sum(_count(member, counts) for member in members)
    return counts.get(id(value), 1)


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
    if isinstance(node, dict):
        return name
    if not name.isdecimal() or int(name) >= len(node):
        raise ConfigError(f"'--set {setting}': '{name}' is not an index of a list of {len(node)}.")
    return int(name)


def _messages(error: ValidationError, data: object, *section: str) -> str:
    """What was got and what to write, a line for each value."""
    by_path: dict[KeyPath, list[Any]] = {}
    for item in error.errors():
        by_path.setdefault((*section, *_path(item, data)), []).append(item)
    # the error of a section may only follow from that of a value
    parents = {path[:length] for path in by_path for length in range(len(path))}
    return "\n".join(_message(path, by_path[path]) for path in by_path if path not in parents)


def _path(item: Mapping[str, Any], data: Any) -> KeyPath:
    """The keys of a value, without the members of unions that pydantic names between them."""
    path = []
    for key in item["loc"]:
        is_index = isinstance(data, list | tuple) and isinstance(key, int)
        if is_index or (isinstance(data, Mapping) and key in data):
            data = data[key]
        elif item["type"] != "missing" or key != item["loc"][-1]:
            continue
        path.append(str(key))
    return tuple(path)


def _message(path: KeyPath, items: Sequence[Mapping[str, Any]]) -> str:
    place = ".".join(path)
    error = items[0]
    if error["type"] == "missing":
        return f"'{place}' is missing."
    # a value that may be of several kinds has an error for each
    message = ", or ".join(dict.fromkeys(_wanted(path, item) for item in items))
    if error["type"] != "keys":
        message = f"{message.rstrip('.')}."
        if place:
            message = f"got {shorten(error['input'])}; {message}"
    if place:
        message = f"'{place}': {message}"
    return message


def _wanted(path: KeyPath, item: Mapping[str, Any]) -> str:
    kind, value = item["type"], item["input"]
    is_number = isinstance(value, int | float)
    if kind == "string_type" and is_number:
        return f'write it in quotes: "{value}"'
    if kind == "tuple_type" and (is_number or (isinstance(value, str) and value)):
        return f"write {path[-1]}: [{value}]"
    if kind in _WRITE:
        return f"write {_WRITE[kind].format(**item.get('ctx', {}))}"
    return str(item["msg"]).removeprefix("Value error, ")
