"""Arguments in Python as a configuration: models and tasks by name, folder, mapping or table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
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
    tasks = None
    if "tasks" in given:
        tasks = _listed("tasks", given.pop("tasks"))
    changes = _changes(given)
    source: str | Path | Mapping[str, Any]
    if isinstance(config, Config):
        source = config.as_dict()
    elif isinstance(config, str | Path | Mapping):
        source = config
    elif config is not None:
        raise ConfigError(f"config: got a {_type(config)}; pass a path, a mapping, or a Config.")
    elif "models" in given:
        source = {}
        changes.setdefault("name", _name_of_run(changes["models"]))
    else:
        source = configuration.folder() / "demo.yaml"
    if tasks is not None:
        changes["tasks"] = []  # everything else is checked before a table is written
    parsed = configuration.load(source, settings, changes)
    run_folder = RunFolder(Path(folder or f"runs/{parsed.name}"))
    if tasks is not None:
        changes["tasks"] = list(_tasks(tasks, run_folder))
        parsed = configuration.load(source, settings, changes)
    return parsed, run_folder


def _changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as sections of a configuration."""
    changes = dict(given)
    if "models" in changes:
        changes["models"] = [
            _model(number, model)
            for number, model in enumerate(_listed("models", changes["models"]))
        ]
    if "budget" in changes:
        budget = changes.pop("budget")
        search = changes.get("search", {})
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


def _listed(name: str, value: object) -> list[Any]:
    """A list; a single item stands for a list of one."""
    if isinstance(value, str | Path | Mapping) or _is_table(value):
        return [value]
    if not isinstance(value, Sequence) or not value:
        raise ConfigError(
            f"{name}: got {_type(value)} {value!r:.60}; pass a list with at least one item."
        )
    return list(value)


def _model(number: int, given: object) -> Mapping[str, Any]:
    """The section of a model: a hub id or folder, or a mapping; the name is by default the last
    part of its source.
    """
    if isinstance(given, Path):
        given = str(given.expanduser())
    if isinstance(given, str):
        given = {"source": given}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"models[{number}]: got a {_type(given)}; pass a hub id, a folder, or a mapping such as "
            "{'source': ..., 'layers': ...}. A model object in memory is measured by daskmetrics.measure."
        )
    source = given.get("source")
    if "name" in given or not isinstance(source, str):
        return given
    return {"name": name_of(source), **given}


def _name_of_run(models: Sequence[Mapping[str, Any]]) -> str:
    name = str(models[0].get("name", "run"))
    if len(models) == 1:
        return name
    others = plural(len(models) - 1, "model").replace(" ", "-")
    return f"{name[:80]}-and-{others}"


def _tasks(given: Sequence[Any], folder: RunFolder) -> Iterator[str]:
    """Names of tasks; those of tables are written first."""
    tables = 0
    for number, task in enumerate(given):
        argument = f"tasks[{number}]"
        if isinstance(task, str):
            yield task
        elif isinstance(task, Path):
            yield f"{FILE}{task}"
        elif isinstance(task, Mapping) or _is_table(task):
            tables += 1
            default = "texts" if tables == 1 else f"texts{tables}"
            table = dict(task) if isinstance(task, Mapping) else {"data": task}
            yield _written(argument, {"name": default, **table}, folder)
        else:
            raise ConfigError(
                f"{argument}: got a {_type(task)}; pass a name such as 'stdlib:order' or 'file:reviews.csv', a DataFrame "
                "with the columns text and label, or a mapping {'data': frame, 'text': ..., 'label': ...}."
            )


def _written(argument: str, table: dict[str, Any], folder: RunFolder) -> str:
    """Write a table into the run's folder, with the columns under the names of their roles; returns
    the task's name.
    """
    keys = ("data", "name", *ROLES, *OPTIONS)
    for key in table:
        if key not in keys:
            raise unknown(f"key of {argument}", key, keys)
    name, data = table["name"], table.get("data")
    if not isinstance(name, str) or UNSUITABLE.search(name) or not name.strip("."):
        raise ConfigError(
            f"{argument}: the name {name!r} is not valid; use letters, digits, '.', '_' and '-'."
        )
    options = [f"{key}={table[key]}" for key in OPTIONS if key in table]
    roles = {role: column for role, column in table.items() if role in ROLES}
    if isinstance(data, str | Path):
        source = str(data)
        options = [*(f"{role}={column}" for role, column in roles.items()), *options]
    elif _is_table(data):
        lines = _lines(argument, data, roles)
        data_folder = folder.create().path.absolute() / "data" / content_key(lines)[:12]
        source = str(data_folder / f"{name}.jsonl")
        with room_for(f"'{source}'"):
            data_folder.mkdir(parents=True, exist_ok=True)
            atomic_write(Path(source), lines)
    else:
        raise ConfigError(
            f"{argument}: 'data' is a {_type(data)}; pass a DataFrame, or the path of a file."
        )
    if options:
        source += f"({', '.join(options)})"
    return f"{FILE}{source}"


def _lines(argument: str, data: Any, roles: Mapping[str, Any]) -> str:
    import pandas

    frame = data if isinstance(data, pandas.DataFrame) else data.to_pandas()
    for role, column in roles.items():
        if column not in frame.columns:
            raise unknown(
                f"column in {argument} (as '{role}')", str(column), list(map(str, frame.columns))
            )
    if roles:
        open_roles = (names for role, names in ROLES.items() if role not in roles)
        open_names = set(chain.from_iterable(open_roles))
        free = [
            column
            for column in frame.columns
            if str(column).strip().lower() in open_names and column not in roles.values()
        ]
        chosen = frame[list(roles.values())].set_axis([ROLES[role][0] for role in roles], axis=1)
        frame = pandas.concat([chosen, frame[free]], axis=1)
    if not len(frame):
        raise ConfigError(f"{argument}: the table has no rows.")
    try:
        text: str = frame.to_json(
            orient="records", lines=True, force_ascii=False, date_format="iso"
        )
        text.encode()
    except (ValueError, OverflowError, TypeError) as error:
        raise ConfigError(
            f"{argument}: the table cannot be written as JSON lines ({error})."
        ) from None
    return text


def _is_table(value: object) -> bool:
    """Whether it is a DataFrame of pandas, or converts itself to one."""
    return hasattr(value, "to_pandas") or (hasattr(value, "to_json") and hasattr(value, "columns"))


def _type(value: object) -> str:
    return type(value).__name__
