"""Arguments in Python as a configuration: models and tasks by name, folder, mapping or table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, count
from pathlib import Path
from typing import Any

from daskmetrics import config as configuration
from daskmetrics.config import Cluster, Config
from daskmetrics.config.schema import name_of
from daskmetrics.core.errors import ConfigError, room_for, unknown
from daskmetrics.core.files import RunFolder, atomic_write, expanded
from daskmetrics.core.keys import content_key
from daskmetrics.core.rows import PlacedRow
from daskmetrics.core.text import plural
from daskmetrics.tasks.registry import FILE
from daskmetrics.tasks.table import OPTIONS, ROLES

UNSUITABLE = re.compile(r"[^A-Za-z0-9._-]+")  # in a name


def configured(
    config: str | Path | Mapping[str, object] | Config | None,
    arguments: Mapping[str, Any],
    settings: Sequence[str],
    folder: str | Path | None,
    start: ExitStack | None = None,
) -> tuple[Config, RunFolder]:
    """The configuration of the arguments of `daskmetrics.run`, and its folder.

    A table among the tasks is written into the folder: as its key is its content, equal tables are
    the same task; the folder goes again if ``start`` fails before a run has begun in it. An
    argument that is unknown or not valid is a `ConfigError` that names it.
    """
    changes = {name: value for name, value in arguments.items() if value is not None}
    valid = {*Config.model_fields, "budget"}
    for name in changes:
        if name not in valid:
            raise unknown("argument", name, valid)
    tasks = None
    if "tasks" in changes:
        tasks = _listed("tasks", changes["tasks"])
        changes["tasks"] = []  # everything else is checked before a table is written
    if "models" in changes:
        changes["models"] = list(map(_model, count(), _listed("models", changes["models"])))
    if "cluster" in changes:
        changes["cluster"] = _profile(changes["cluster"])
    if "budget" in changes:
        search = changes.get("search", {})
        if not isinstance(search, Mapping) or "budget" in search:
            raise ConfigError(
                "budget: the argument 'search' has one, too, or is no mapping. Pass one of them."
            )
        changes["search"] = {**search, "budget": changes.pop("budget")}
    source: str | Path | Mapping[str, object] = configuration.folder() / "demo.yaml"
    if isinstance(config, Config):
        source = config.as_dict()
    elif isinstance(config, str | Path | Mapping):
        source = config
    elif config is not None:
        raise ConfigError(
            f"config: got a {type(config).__name__}; pass a path, a mapping, or a Config."
        )
    elif "models" in changes:
        source = {}
        model, *others = changes["models"]
        section = {"source": model} if isinstance(model, str) else model
        name = str(section.get("name") or name_of(str(section.get("source", "run"))))
        if others:
            name = f"{name[:80]}-and-{plural(len(others), 'model').replace(' ', '-')}"
        changes.setdefault("name", name)
    parsed = configuration.load(source, settings, changes)
    # the caller may change the current folder while the run goes on
    run_folder = RunFolder(expanded(folder or f"runs/{parsed.name}").absolute())
    if run_folder.path.is_file():
        raise ConfigError(f"folder: '{run_folder.path}' is a file. Name a folder for the run.")
    if tasks is not None:
        if start is not None:
            start.enter_context(run_folder.unless_begun())
        changes["tasks"] = list(_tasks(tasks, run_folder))
        parsed = configuration.load(source, settings, changes)
    return parsed, run_folder


def _profile(cluster: object) -> str | Mapping[str, object]:
    if isinstance(cluster, Cluster):
        return cluster.model_dump(mode="json")
    if isinstance(cluster, str | Path):
        return str(cluster)
    if not isinstance(cluster, Mapping):
        raise ConfigError(
            f"cluster: got a {type(cluster).__name__}; pass a profile: its name, file or keys. A"
            " client or a cluster of Dask is passed as client=."
        )
    return cluster


def _listed(name: str, value: object) -> list[object]:
    if isinstance(value, str | Path | Mapping) or is_table(value):
        return [value]
    if not isinstance(value, Sequence) or not value:
        raise ConfigError(
            f"{name}: got {type(value).__name__} {value!r:.60}; pass a list with at least one item."
        )
    return list(value)


def _model(number: int, given: object) -> str | Mapping[str, object]:
    if isinstance(given, Path):
        return str(expanded(given))
    if not isinstance(given, str | Mapping):
        raise ConfigError(
            f"models[{number}]: got a {type(given).__name__}; pass a hub id, a folder, or a mapping such as"
            " {'source': ..., 'layers': ...}. A model object in memory is measured by"
            " daskmetrics.measure."
        )
    return given


def _tasks(given: Sequence[object], folder: RunFolder) -> Iterator[str]:
    defaults = chain(["texts"], (f"texts{number}" for number in count(2)))
    for number, task in enumerate(given):
        argument = f"tasks[{number}]"
        if isinstance(task, str):
            yield task
        elif isinstance(task, Path):
            yield f"{FILE}{task}"
        elif isinstance(task, Mapping) or is_table(task):
            table = dict(task) if isinstance(task, Mapping) else {"data": task}
            yield _written(argument, {"name": next(defaults), **table}, folder)
        else:
            raise ConfigError(
                f"{argument}: got a {type(task).__name__}; pass a name such as 'stdlib:order' or"
                " 'file:reviews.csv', a DataFrame with the columns text and label, or a mapping"
                " {'data': frame, 'text': ..., 'label': ...}."
            )


def _written(argument: str, table: dict[str, object], folder: RunFolder) -> str:
    """Write a table into the run's folder; return the task's name.

    Its columns get the names of their roles.
    """
    keys = ("data", "item", *ROLES, *OPTIONS)
    for key in table:
        if key not in keys:
            raise unknown(f"key of {argument}", key, keys)
    name = table["name"]
    if not isinstance(name, str) or UNSUITABLE.search(name) or not name.strip("."):
        raise ConfigError(
            f"{argument}: the name {name!r} is not valid; use letters, digits, '.', '_' and '-'."
        )
    data = table.get("data")
    if not is_table(data):
        raise ConfigError(
            f"{argument}: 'data' is a {type(data).__name__}; pass a DataFrame. A file is a task by"
            " its name, such as 'file:reviews.csv(text=body, label=stars)'."
        )
    roles = {role: column for role, column in table.items() if role in ROLES}
    if "item" in table:
        roles["text"] = table["item"]
    lines = json_lines(argument, data, roles)
    source = folder.create().path / "data" / content_key(lines)[:12] / f"{name}.jsonl"
    with room_for(f"'{source}'"):
        source.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(source, lines)
    # the file has the name
    options = {key: table[key] for key in OPTIONS if key in table and key != "name"}
    if "group" in roles:  # is not recognised by its name
        options["group"] = "group"
    return file_name(source, options)


def file_name(source: object, options: Mapping[str, object]) -> str:
    """The name of the task on a file.

    >>> file_name("reviews.csv", {"text": "body"})
    'file:reviews.csv(text=body)'
    """
    name = f"{FILE}{source}"
    if options:
        name += f"({', '.join(f'{key}={value}' for key, value in options.items())})"
    return name


def json_lines(argument: str, data: Any, roles: Mapping[str, Any]) -> str:
    """The rows of a table as lines of JSON.

    The columns have the names of their roles; without any role they are all columns of the table.
    """
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
        standard_names = [(*ROLES[role], role)[0] for role in roles]
        chosen = frame[list(roles.values())].set_axis(standard_names, axis=1)
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


def table_rows(data: object) -> list[PlacedRow]:
    """The rows of a table in memory, also of a list of records.

    Raises
    ------
    ConfigError
        If it is no table, or has no rows.
    """
    import pandas

    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        data = pandas.DataFrame(list(data), dtype=object)
    if not is_table(data):
        raise ConfigError(
            f"Data of type {type(data).__name__} cannot be read. Give a DataFrame, the path of a"
            " CSV, TSV, JSON Lines or Parquet file, one split of a dataset of Hugging Face, or a"
            " list of names of tasks."
        )
    lines = json_lines("data", data, {}).rstrip("\n").split("\n")
    return [(f"row {number}", json.loads(line)) for number, line in enumerate(lines, start=1)]


def is_table(value: object) -> bool:
    """Whether it is a pandas DataFrame, or converts itself to one."""
    return hasattr(value, "to_pandas") or (hasattr(value, "to_json") and hasattr(value, "columns"))
