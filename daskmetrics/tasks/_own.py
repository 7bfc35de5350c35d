"""A task on the user's own text: ``file:reviews.csv``, or with columns and kind named in parentheses.

What a task is follows from the columns: a text and a label are a classification, two texts with a label or a grade are
pairs, a query and a document are a search. Everything is read and checked when the task is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from daskmetrics.core.errors import ConfigError, DataError, unknown
from daskmetrics.core.names import Key, content_key
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._examples import KINDS, Examples, require_fit
from daskmetrics.tasks._tables import FALSE, Table, examples_of, read
from daskmetrics.tasks._task import Embeddings, Score

VERSION = 1  # of the scores: raise it when equal texts and embeddings no longer give equal scores

ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "text": ("text", "sentence", "content"),
        "label": ("label", "class", "category", "target"),
        "first": ("text1", "sentence1", "first", "question1"),
        "second": ("text2", "sentence2", "second", "question2"),
        "grade": ("score", "grade", "similarity"),
        "query": ("query", "question"),
        "document": ("document", "passage", "answer"),
        "relevance": ("relevance", "relevant"),
    }
)
"""What a column may be, and the names by which it is found, in any case; the first that is there counts."""

NEEDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "classification": ("text", "label"),
        "clustering": ("text", "label"),
        "pair_classification": ("first", "second", "label"),
        "sts": ("first", "second", "grade"),
        "retrieval": ("query", "document"),
        "reranking": ("query", "document", "relevance"),
    }
)
"""The columns that each kind of task must have."""

_TELLING = ("reranking", "retrieval", "sts", "pair_classification", "classification")
_MAY = "retrieval", "relevance"  # what a kind takes if it is there


@dataclass(frozen=True)
class OwnTask:
    """A task on a file or folder of the user's; made by `task`.

    Attributes
    ----------
    path : str
        Absolute; workers must see it, too.
    columns : tuple of (role, column)
    probe : str
        Of `daskmetrics.tasks._probes.PROBES`, for a classification.
    content : str
        Key of what the file held when the task was named.
    description : str
    """

    name: str
    kind: str
    path: str
    columns: tuple[tuple[str, str], ...]
    probe: str
    content: Key
    description: str
    pooling: None = None

    @property
    def main_score(self) -> str:
        return KINDS[self.kind].main_score

    @property
    def key(self) -> Key:
        fitted = [self.probe, *probes.library_version(self.probe)] if self.kind == "classification" else None
        return content_key("task", "own", VERSION, self.kind, fitted, self.content)

    @property
    def is_local(self) -> bool:
        return True

    def examples(self) -> Examples:
        """What the file holds.

        Raises
        ------
        DataError
            If that has changed since the task was named.
        """
        return _examples(self.path, self.kind, self.columns, self.content)

    def texts(self) -> tuple[str, ...]:
        return self.examples().texts

    def evaluate(self, embeddings: Embeddings, seed: int) -> Score:
        examples = self.examples()
        require_fit(self.name, embeddings, len(examples.texts))
        return KINDS[self.kind].measure(embeddings, examples, seed, self.probe)


def task(where: str, options: Mapping[str, str]) -> OwnTask:
    """The task on a file, read and checked.

    Parameters
    ----------
    where : str
        A file or folder.
    options : mapping
        ``kind``, ``probe``, and the column of each of `ROLES` that is not found by its name.

    Raises
    ------
    ConfigError
        For an unknown option, a missing column, or a row that does not fit, with its line.
    """
    for name in options:
        if name not in (*ROLES, "kind", "probe"):
            raise unknown("option of a file task", name, (*ROLES, "kind", "probe"))
    path = Path(where).expanduser()
    table = read(path)
    columns = _columns(table, {name: value for name, value in options.items() if name in ROLES})
    kind = _kind(table, options.get("kind"), columns)
    probe = options.get("probe", probes.DEFAULT)
    probes.require(probe)
    if "probe" in options and kind != "classification":
        raise ConfigError(f"'{where}' is a {kind} task, which has no probe; leave out 'probe={probe}'.")
    used = tuple((role, columns[role]) for role in columns if role in NEEDS[kind] or (kind, role) == _MAY)
    examples = examples_of(table, kind, dict(used))
    said = ", ".join(f"{name}={value}" for name, value in options.items())
    return OwnTask(
        name=f"file:{path.name}" + (f"({said})" if said else ""),
        kind=kind,
        path=str(path.resolve()),
        columns=used,
        probe=probe,
        content=_content(examples),
        description=_about(path.name, kind, examples),
    )


def _columns(table: Table, named: Mapping[str, str]) -> dict[str, str]:
    """The column of each role that there is one for."""
    for role, column in named.items():
        if column not in table.columns:
            raise unknown(f"column in '{table.path}' (as '{role}')", column, table.columns)
    by_name = {column.strip().lower(): column for column in table.columns}
    found = {role: next((by_name[name] for name in names if name in by_name), None) for role, names in ROLES.items()}
    return {role: column for role, column in (found | dict(named)).items() if column is not None}


def _kind(table: Table, wanted: str | None, columns: Mapping[str, str]) -> str:
    """The kind asked for, or the first whose columns are all there: the more telling ones before."""
    if wanted is not None and wanted not in NEEDS:
        raise unknown("kind of task", wanted, NEEDS)
    kinds = (wanted,) if wanted else _TELLING
    for kind in kinds:
        if all(role in columns for role in NEEDS[kind]):
            return kind if wanted or kind != "reranking" or _has_rejected(table, columns) else "retrieval"
    needs = "; ".join(f"{kind}: {', '.join(NEEDS[kind])}" for kind in kinds)
    raise ConfigError(
        f"'{table.path}' has the columns {', '.join(table.columns)}, from which no task follows. Needed is, for "
        f"{needs}. Say which columns these are, for instance: file:{table.path.name}({NEEDS[kinds[-1]][-1]}=COLUMN)"
    )


def _has_rejected(table: Table, columns: Mapping[str, str]) -> bool:
    """Whether every document is somebody's candidate and some are not relevant; else all are candidates of all."""
    asked = all(row.get(columns["query"]) for row in table.rows)
    return asked and any(str(row.get(columns["relevance"])).strip() in FALSE for row in table.rows)


@cache
def _examples(path: str, kind: str, columns: tuple[tuple[str, str], ...], content: Key) -> Examples:
    """What a file holds, once per process; it must be what it was when the task was named."""
    found = examples_of(read(Path(path)), kind, dict(columns))
    if _content(found) != content:
        raise DataError(f"'{path}' has changed since the run began. Restore it, or run again from the start.")
    return found


def _content(examples: Examples) -> Key:
    return content_key(examples.texts, examples.labels, examples.judged, examples.queries)


def _about(name: str, kind: str, examples: Examples) -> str:
    n = len(examples.texts)
    if kind in ("classification", "clustering"):
        return f"which of the {len(set(examples.labels))} labels of {name} has this text?"
    if kind in ("pair_classification", "sts"):
        return f"how alike are the two texts of each of {n // 2:,} pairs of {name}?"
    return f"which of {n - examples.queries:,} documents of {name} answers each of {examples.queries:,} queries?"
