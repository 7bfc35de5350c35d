"""Arguments in Python as a configuration: models and tasks by name, folder, mapping or table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from daskmetrics import config as configuration
from daskmetrics.config import Config
from daskmetrics.config.schema import name_of
from daskmetrics.core.errors import ConfigError, room_for, unknown
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.names import content_key
from daskmetrics.core.text import plural
from daskmetrics.tasks.file import ROLES
from daskmetrics.tasks.registry import FILE

ARGUMENTS = ("models", "tasks", "budget")  # beside the sections of a configuration
OPTIONS = ("kind", "probe")  # of a task, beside the columns
UNSUITABLE = re.compile(r"[^A-Za-z0-9._-]+")  # in a name


def configured(
    config: str | Path | Mapping[str, Any] | Config | None,
    arguments: Mapping[str, Any],
    settings: Sequence[str],
    folder: str | Path | None,
) -> tuple[Config, RunFolder]:
    """The configuration of the arguments of `daskmetrics.run`, and the folder of the run.

    A table among the tasks is written into the folder: as its key is its content, equal tables are
    the same task. An argument that is unknown or not valid is a `ConfigError` that names it.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in given:
        if name not in Config.model_fields and name not in ARGUMENTS:
            raise unknown(
                "argument", name, [*ARGUMENTS, *(set(Config.model_fields) - set(ARGUMENTS))]
            )
    tasks = _listed("tasks", given.pop("tasks")) if "tasks" in given else None
    changes = _changes(given)
    source: str | Path | Mapping[str, Any]
    if isinstance(config, Config):
        source = config.as_dict()
    elif isinstance(config, str | Path | Mapping):
        source = config
    elif config is not None:
        raise ConfigError(f"config: got a {_type(config)}; pass a path, a mapping, or a Config.")
    else:
        source = {} if "models" in given else configuration.folder() / "demo.yaml"
        if "models" in given:
            changes.setdefault("name", _name_of_run(changes["models"]))
    if tasks is None:
        parsed = configuration.load(source, settings, changes)
        return parsed, _folder(parsed, folder)
    checked = configuration.load(
        source, settings, {**changes, "tasks": []}
    )  # before anything is written
    place = _folder(checked, folder)
    return configuration.load(
        source, settings, {**changes, "tasks": list(_tasks(tasks, place))}
    ), place


def _folder(config: Config, folder: str | Path | None) -> RunFolder:
    return RunFolder(Path(folder or f"runs/{config.name}"))


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as sections of a configuration."""
    changes = dict(given)
    if "models" in changes:
        changes["models"] = [
            _model(number, each) for number, each in enumerate(_listed("models", changes["models"]))
        ]
    if "budget" in changes:
        budget, search = changes.pop("budget"), changes.get("search", {})
        is_share = (
            isinstance(budget, int | float) and not isinstance(budget, bool) and 0 < budget <= 1
        )
        if budget != "auto" and not is_share:
            raise ConfigError(
                f"budget: got {budget!r}; pass the share of the cost of every score that may be spent, such as 0.2, or "
                "'auto'."
            )
        if not isinstance(search, Mapping) or "budget" in search:
            raise ConfigError(
                "budget: the argument 'search' has one, too, or is no mapping. Pass one of them."
            )
        changes["search"] = {**search, "budget": budget}
    return changes


def _listed(name: str, value: Any) -> list[Any]:
    """A list; a single item stands for a list of one."""
    if isinstance(value, str | Path | Mapping) or _is_table(value):
        return [value]
    if not isinstance(value, Sequence) or not value:
        raise ConfigError(
            f"{name}: got {_type(value)} {value!r:.60}; pass a list with at least one item."
        )
    return list(value)


def _model(number: int, given: Any) -> Mapping[str, Any]:
    """The section of a model: a hub id or folder, or a mapping; the name is by default the last
    part of its source.
    """
    if isinstance(given, str | Path):
        given = {"source": str(Path(given).expanduser()) if isinstance(given, Path) else given}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"models[{number}]: got a {_type(given)}; pass a hub id, a folder, or a mapping such as "
            "{'source': ..., 'layers': ...}. A model object in memory is measured by daskmetrics.measure."
        )
    if "name" in given or not isinstance(source := given.get("source"), str):
        return given
    return {"name": name_of(source), **given}


def _name_of_run(models: Sequence[Mapping[str, Any]]) -> str:
    first = str(models[0].get("name", "run"))
    return (
        first
        if len(models) == 1
        else f"{first[:80]}-and-{plural(len(models) - 1, 'model').replace(' ', '-')}"
    )


def _tasks(given: Sequence[Any], folder: RunFolder) -> Iterator[str]:
    """Names of tasks; those of tables are written first."""
    tables = 0
    for number, each in enumerate(given):
        place = f"tasks[{number}]"
        if isinstance(each, str):
            yield each
        elif isinstance(each, Path):
            yield f"{FILE}{each}"
        elif isinstance(each, Mapping) or _is_table(each):
            tables += 1
            default = "texts" if tables == 1 else f"texts{tables}"
            about = dict(each) if isinstance(each, Mapping) else {"data": each}
            yield _written(place, {"name": default, **about}, folder)
        else:
            raise ConfigError(
                f"{place}: got a {_type(each)}; pass a name such as 'stdlib:order' or 'file:reviews.csv', a DataFrame "
                "with the columns text and label, or a mapping {'data': frame, 'text': ..., 'label': ...}."
            )


def _written(place: str, about: dict[str, Any], folder: RunFolder) -> str:
    """Write a table into the run's folder, with the columns under the names of their roles; returns
    the task's name.
    """
    for key in about:
        if key not in ("data", "name", *ROLES, *OPTIONS):
            raise unknown(f"key of {place}", key, ("data", "name", *ROLES, *OPTIONS))
    name, data = about["name"], about.get("data")
    if not isinstance(name, str) or UNSUITABLE.search(name) or not name.strip("."):
        raise ConfigError(
            f"{place}: the name {name!r} is not valid; use letters, digits, '.', '_' and '-'."
        )
    options = [f"{key}={about[key]}" for key in OPTIONS if key in about]
    roles = {role: column for role, column in about.items() if role in ROLES}
    if isinstance(data, str | Path):
        options = [*(f"{role}={column}" for role, column in roles.items()), *options]
        return f"{FILE}{data}" + (f"({', '.join(options)})" if options else "")
    if not _is_table(data):
        raise ConfigError(
            f"{place}: 'data' is a {_type(data)}; pass a DataFrame, or the path of a file."
        )
    lines = _lines(place, data, roles)
    file = (folder.create().path / "data" / content_key(lines)[:12] / f"{name}.jsonl").absolute()
    with room_for(f"'{file}'"):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, lines)
    return f"{FILE}{file}" + (f"({', '.join(options)})" if options else "")


def _lines(place: str, data: Any, roles: Mapping[str, Any]) -> str:
    import pandas

    frame = data if isinstance(data, pandas.DataFrame) else data.to_pandas()
    for role, column in roles.items():
        if column not in frame.columns:
            raise unknown(
                f"column in {place} (as '{role}')", str(column), list(map(str, frame.columns))
            )
    if roles:
        others = [name for role, names in ROLES.items() if role not in roles for name in names]
        free = [
            c for c in frame.columns if str(c).strip().lower() in others and c not in roles.values()
        ]
        frame = pandas.concat(
            [
                frame[list(roles.values())].set_axis([ROLES[r][0] for r in roles], axis=1),
                frame[free],
            ],
            axis=1,
        )
    if not len(frame):
        raise ConfigError(f"{place}: the table has no rows.")
    try:
        text: str = frame.to_json(
            orient="records", lines=True, force_ascii=False, date_format="iso"
        )
        text.encode()
    except (ValueError, OverflowError, TypeError) as error:
        raise ConfigError(
            f"{place}: the table cannot be written as JSON lines ({error})."
        ) from None
    return text


def _is_table(value: Any) -> bool:
    """Whether it is a DataFrame of pandas, or converts itself to one."""
    return hasattr(value, "to_pandas") or (hasattr(value, "to_json") and hasattr(value, "columns"))


def _type(value: Any) -> str:
    return type(value).__name__
