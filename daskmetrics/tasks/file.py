"""A task on the user's own texts: ``file:reviews.csv``, with columns and kind in parentheses where
needed.

The columns decide what kind of task it is: a text and a label make a classification, two texts with
a label or a grade are pairs, a query and a document are a retrieval. The file is read and checked
when the task is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.rows import check_names
from daskmetrics.tasks import _checks as checks
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks.examples import Examples
from daskmetrics.tasks.portions import ExampleTask
from daskmetrics.tasks.tables import FALSE, TextTable, examples_of, read_table

VERSION = 1  # of the scores: raise it when equal texts and embeddings no longer give equal scores

ROLES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "content"),
    "label": ("label", "class", "category", "target"),
    "first": ("text1", "sentence1", "first", "question1"),
    "second": ("text2", "sentence2", "second", "question2"),
    "grade": ("score", "grade", "similarity"),
    "query": ("query", "question"),
    "document": ("document", "passage", "answer"),
    "relevance": ("relevance", "relevant"),
}
"""The roles of columns, and the column names that have each role, in any case; the first name that exists is used."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "classification": ("text", "label"),
    "clustering": ("text", "label"),
    "pair_classification": ("first", "second", "label"),
    "sts": ("first", "second", "grade"),
    "retrieval": ("query", "document"),
    "reranking": ("query", "document", "relevance"),
}
"""The roles that each kind of task requires."""

_BY_PRIORITY = ("reranking", "retrieval", "sts", "pair_classification", "classification")
_OPTIONAL = "retrieval", "relevance"  # a kind, and a role that it uses if it exists


@dataclass(frozen=True)
class FileTask(ExampleTask):
    """A task on a file or folder of the user; made by `file_task`."""

    path: str  # absolute; workers must see it, too
    columns: tuple[tuple[str, str], ...]  # (role, column)
    content: Key  # of the file when the task was resolved
    # about the data, as in `daskmetrics.tasks.Task`
    warnings: tuple[str, ...] = field(default=(), compare=False)
    # of a table in memory, which has no file
    held: Examples | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> Key:
        fitted = None
        if self.kind == "classification":
            fitted = [self.probe, *probes.library_version(self.probe)]
        return content_key("task", "own", VERSION, self.kind, fitted, self.content, *self._part_key)

    def whole(self) -> Examples:
        """The content of the file; an error if it has changed since the task was resolved."""
        return self.held or _read_examples(self.path, self.kind, self.columns, self.content)


def file_task(place: str, options: Mapping[str, str]) -> FileTask:
    """The task on a file or folder, read and checked.

    Options are ``kind``, ``probe``, and the column of each of `ROLES` that has another name.
    """
    path = Path(place).expanduser()
    return table_task(read_table(path), options, f"file:{path.name}")


def table_task(
    table: TextTable, options: Mapping[str, str], name: str, in_memory: bool = False
) -> FileTask:
    """The task on a table, which is checked; options are those of `file_task`, and become part of
    the name.
    """
    for option in options:
        if option not in (*ROLES, "kind", "probe"):
            raise unknown("option of a file task", option, (*ROLES, "kind", "probe"))
    columns = _columns(table, {role: value for role, value in options.items() if role in ROLES})
    kind = _kind(table, options.get("kind"), columns)
    if kind == "retrieval" and "relevance" not in columns:
        check_names(table.path, table.columns, ROLES["relevance"])
    probe = options.get("probe", probes.DEFAULT)
    probes.require(probe)
    if "probe" in options and kind != "classification":
        raise ConfigError(
            f"'{table.path}' is a {kind} task, which has no probe; leave out 'probe={probe}'."
        )
    used = tuple(
        (role, columns[role])
        for role in columns
        if role in REQUIRED[kind] or (kind, role) == _OPTIONAL
    )
    examples = examples_of(table, kind, dict(used))
    if options:
        name += f"({', '.join(map('='.join, options.items()))})"
    return FileTask(
        name=name,
        kind=kind,
        path=str(table.path.resolve()),
        columns=used,
        probe=probe,
        content=_content_key(examples),
        description=_description(table.path.name, kind, examples),
        warnings=checks.warnings_of(table, kind, dict(used)),
        held=examples if in_memory else None,
    )


def _columns(table: TextTable, options: Mapping[str, str]) -> dict[str, str]:
    """The column of each role that has one."""
    for role, column in options.items():
        if column not in table.columns:
            raise unknown(f"column in '{table.path}' (as '{role}')", column, table.columns)
    by_name = {column.strip().lower(): column for column in table.columns}
    columns = {}
    for role, names in ROLES.items():
        matching = [by_name[name] for name in names if name in by_name]
        if role in options:
            columns[role] = options[role]
        elif matching:
            columns[role] = matching[0]
    return columns


def _kind(table: TextTable, requested: str | None, columns: Mapping[str, str]) -> str:
    """The requested kind, or the first by priority whose columns all exist."""
    if requested is not None and requested not in REQUIRED:
        raise unknown("kind of task", requested, REQUIRED)
    kinds = (requested,) if requested else _BY_PRIORITY
    for kind in kinds:
        if all(role in columns for role in REQUIRED[kind]):
            if not requested and kind == "reranking" and not _has_rejected(table, columns):
                return "retrieval"
            return kind
    required = "; ".join(f"{kind}: {', '.join(REQUIRED[kind])}" for kind in kinds)
    raise ConfigError(
        f"'{table.path}' has the columns {', '.join(table.columns)}, which fit no kind of task. Required columns: "
        f"{required}. Name the columns, for instance: file:{table.path.name}({REQUIRED[kinds[-1]][-1]}=COLUMN)"
    )


def _has_rejected(table: TextTable, columns: Mapping[str, str]) -> bool:
    """Whether every row has a query and some are not relevant; otherwise each document is a
    candidate of all.
    """
    all_have_query = all(row.get(columns["query"]) for row in table.rows)
    return all_have_query and any(
        str(row.get(columns["relevance"])).strip() in FALSE for row in table.rows
    )


@cache
def _read_examples(
    path: str, kind: str, columns: tuple[tuple[str, str], ...], content: Key
) -> Examples:
    """Read the examples of a file, once per process; its content must have the same key as when it
    was resolved.
    """
    examples = examples_of(read_table(Path(path)), kind, dict(columns))
    if _content_key(examples) != content:
        raise DataError(
            f"'{path}' has changed since the run began. Restore it, or start a new run."
        )
    return examples


def _content_key(examples: Examples) -> Key:
    return content_key(examples.texts, examples.labels, examples.judgements, examples.queries)


def _description(name: str, kind: str, examples: Examples) -> str:
    n = len(examples.texts)
    if kind in ("classification", "clustering"):
        return f"which of the {len(set(examples.labels))} labels of {name} has this text?"
    if kind in ("pair_classification", "sts"):
        return f"how similar are the two texts of each of {n // 2:,} pairs of {name}?"
    return f"which of {n - examples.queries:,} documents of {name} answers each of {examples.queries:,} queries?"
