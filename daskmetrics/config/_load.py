"""From YAML, settings and site profiles to a configuration; mistakes are told with the nearest valid name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from daskmetrics.config._schema import (
    PRESETS,
    Cluster,
    Config,
    Controller,
    Corpus,
    Gang,
    Model,
    Pool,
    Protocol,
    Recipe,
    Search,
    Section,
)
from daskmetrics.core.errors import ConfigError, unknown


def folder() -> Path:
    """Where the ready-made configurations lie: inside an installed package, or beside it in a checkout."""
    package = Path(str(files("daskmetrics")))
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def load(path: str | Path, settings: Sequence[str] = ()) -> Config:
    """Read a YAML file and apply ``key=value`` settings on top.

    Parameters
    ----------
    path : str or Path
        The experiment's YAML.
    settings : sequence of str
        For instance ``search.budget=0.1`` or ``models.0.revisions=log``; values are read as YAML.

    Raises
    ------
    ConfigError
        If the file is missing or not YAML, a key is unknown, or a value does not fit.
    """
    data = _read(Path(path))
    for setting in settings:
        _apply(data, setting)
    return parse(data, where=str(path))


def parse(data: Mapping[str, Any], where: str = "configuration") -> Config:
    """Validate plain data (as YAML gives it) into a `Config`; presets and profiles are replaced by what they name."""
    data = dict(data)
    data["protocol"] = _preset(data.get("protocol"))
    data["cluster"] = profile(data.get("cluster"))
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "\n".join(_say(item) for item in _causes(error))) from None


def cluster(wanted: str | Mapping[str, Any] | None, **own: Any) -> Cluster:
    """A cluster alone: a profile's name, its YAML file or its keys, with keys of one's own on top.

    Raises
    ------
    ConfigError
        If there is no such profile, a key is unknown, or a value does not fit.

    Examples
    --------
    >>> cluster("local", workers=3).workers
    3
    """
    keys = {"profile": wanted} if isinstance(wanted, str) else dict(wanted or {})
    try:
        return Cluster.model_validate(profile({**keys, **own}))
    except ValidationError as error:
        where = ({**item, "loc": ("cluster", *item["loc"])} for item in _causes(error))
        raise ConfigError("\n".join(_say(item) for item in where)) from None


def profile(wanted: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The cluster settings, weakest first: a named profile, the site's dask configuration, the experiment's own keys.

    A site's administrator writes ``daskmetrics: {cluster: {account: ...}}`` into a dask configuration file, or sets
    ``DASK_DASKMETRICS__CLUSTER__ACCOUNT``. Mappings such as ``exports`` are merged key by key.
    """
    import dask.config

    own = _named("cluster", "profile", wanted)
    name = own.pop("profile", None)
    named = _read(_profile_path(name)) if name else {}
    site: Mapping[str, Any] | None = dask.config.get("daskmetrics.cluster", None)
    return _merged(named, site or {}, own)


def _merged(*weakest_first: Mapping[Any, Any]) -> dict[Any, Any]:
    """Mappings joined key by key, also those in them. Keys of any type: what is wrong with them is said later."""
    merged: dict[Any, Any] = {}
    for layer in weakest_first:
        for key, value in layer.items():
            before = merged.get(key)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                value = _merged(before, value)
            merged[key] = value
    return merged


def _profile_path(name: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    known = {path.stem: path for path in (folder() / "clusters").glob("*.yaml")}
    if name not in known:
        raise unknown("cluster profile", name, known)
    return known[name]


def _named(section: str, key: str, wanted: Any) -> dict[Any, Any]:
    """A section as a mapping; a mere name stands for ``key``."""
    own = {key: wanted} if isinstance(wanted, str) else {} if wanted is None else wanted
    if not isinstance(own, Mapping) or not isinstance(own.get(key, ""), str):
        raise ConfigError(f"'{section}': got {_short(wanted)}; write the name of a {key}, or 'key: value' lines.")
    return dict(own)


def _preset(wanted: str | Mapping[str, Any] | None) -> dict[str, Any]:
    own = _named("protocol", "preset", wanted)
    name = own.pop("preset", "corrected")
    if name not in PRESETS:
        raise unknown("protocol preset", name, PRESETS)
    return {**PRESETS[name].model_dump(), **own}


def _read(path: Path) -> dict[str, Any]:
    if not _is_file(path):
        ready = ", ".join(str(p) for p in sorted(folder().glob("*.yaml")))
        raise ConfigError(f"No configuration file '{path}'. Ready-made ones: {ready}.")
    try:
        data = _yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"'{path}' must hold 'key: value' lines, but holds {type(data).__name__}.")
    return data


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _yaml(text: str) -> Any:
    """A document of YAML; ValueError for whatever is wrong with it, such as a date that does not exist."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(_short(str(error), 500)) from None


def _short(value: Any, most: int = 200) -> str:
    text = value if isinstance(value, str) and most != 200 else repr(value)
    return text if len(text) <= most else f"{text[:most]} ..."


def _apply(data: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"'--set {setting}' is not KEY=VALUE, for instance --set search.budget=0.1.")
    try:
        value = _yaml(text)
    except ValueError as error:
        raise ConfigError(f"'--set {setting}': the value is not YAML: {error}") from None
    *path, last = key.strip().split(".")
    node: Any = data
    for part in path:
        node = _child(node, part, setting)
    if isinstance(node, list):
        node[_index(node, last, setting)] = value
    else:
        node[last] = value


def _child(node: Any, part: str, setting: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, part, setting)]
    child = node.setdefault(part, {})
    if isinstance(child, str) and part in ("protocol", "cluster"):
        child = node[part] = {"preset" if part == "protocol" else "profile": child}
    if not isinstance(child, dict | list):
        raise ConfigError(f"'--set {setting}': '{part}' is {child!r} and has no keys below it.")
    return child


def _index(node: list[Any], part: str, setting: str) -> int:
    if not part.isdigit() or int(part) >= len(node):
        raise ConfigError(f"'--set {setting}': '{part}' is not an index of a list of {len(node)}.")
    return int(part)


def _causes(error: ValidationError) -> list[Any]:
    """The errors without those that merely follow: a list is also "too short" when one of its items is wrong."""
    items = error.errors()
    return [a for a in items if not any(b["loc"][: len(a["loc"])] == a["loc"] and b["loc"] != a["loc"] for b in items)]


def _say(item: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        section = _section(item["loc"][:-1])
        inside = f" in '{'.'.join(str(p) for p in item['loc'][:-1])}'" if len(item["loc"]) > 1 else ""
        return str(unknown("key", str(item["loc"][-1]), section.model_fields)) + inside
    if item["type"] == "missing":
        return f"'{place}' is missing."
    message = item["msg"].removeprefix("Value error, ")
    return f"'{place}': got {_short(item['input'])}; {message}." if place else f"{message}."


def _section(loc: Sequence[Any]) -> type[Section]:
    """The section of the configuration that a place such as ('models', 0, 'train') lies in."""
    kinds: dict[Any, type[Section]] = {
        "models": Model,
        "train": Recipe,
        "corpus": Corpus,
        "protocol": Protocol,
        "search": Search,
        "cluster": Cluster,
        "controller": Controller,
        "scoring": Pool,
        "gang": Gang,
    }
    named = [kinds[part] for part in loc if part in kinds]
    return named[-1] if named else Config
