"""From the rows of a user's file to the examples of a task.

`table_of` names the columns by their roles and chooses the kind of task: a text and a label make a
classification, two texts with a label or a grade are pairs, a query and a document are a retrieval.
`examples_of` builds the examples of that kind, and `doubts` says what is doubtful about the rows.
Each is an error where a score would say nothing; errors name the file, and the row if there is one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from daskmetrics.core.errors import ConfigError, require_known
from daskmetrics.core.rows import PlacedRow, check_names
from daskmetrics.core.text import is_encodable, plural
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks._measures import Judgement
from daskmetrics.tasks.examples import Examples

ROLES: Mapping[str, tuple[str, ...]] = {
    "text": (
        "text",
        "sentence",
        "content",
        "body",
        "review",
        "comment",
        "message",
        "abstract",
        "item",
    ),
    "label": ("label", "class", "category", "target", "stars", "rating", "topic", "sentiment"),
    "first": ("text1", "sentence1", "first", "question1"),
    "second": ("text2", "sentence2", "second", "question2"),
    "grade": ("score", "grade", "similarity"),
    "query": ("query", "question"),
    "document": ("document", "passage", "answer"),
    "relevance": ("relevance", "relevant"),
    "group": (),
}
"""The roles of columns, and the column names that have each role, in any case; the first name that exists is used.
A group is never recognised by its name."""

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "reranking": ("query", "document", "relevance"),
    "retrieval": ("query", "document"),
    "sts": ("first", "second", "grade"),
    "pair_classification": ("first", "second", "label"),
    "classification": ("text", "label"),
    "clustering": ("text", "label"),
    "multilabel_classification": ("text", "label"),
    "regression": ("text", "grade"),
}
"""The roles that each kind of task requires; if columns fit several kinds, the first of them is meant."""

OPTIONS = ("name", "kind", "probe", "repeats", "score", "drop")
"""The options of a task on a table, beside the columns of its roles."""

_SYNONYMS = {"item": "text"}  # of options: the text of an item may be the path of its file
SEPARATOR = ";"  #: of the labels of one text
_HELD = "\x1f"  # stands for a separator within a label of a list
_PROPOSED = (
    f"For several labels per text, separated by '{SEPARATOR}': kind=multilabel_classification"
)
_CUT = "which has half of a surrogate pair, as a text that was cut. Correct it."
_TRUE = ("1", "1.0", "true", "yes")
_FALSE = ("0", "0.0", "false", "no")
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>", "NaT")  # in every format
_DROPS = ("missing", "rare")  # rows that are left out on request
_MOST = 0.95  # share of equal labels or grades, from which on a score says little
_TEXTS = ("text", "first", "second", "query", "document")  # roles of columns that are embedded
_SHOWN = 40  # characters of a text in a message
#: texts per label on average, below which the labels may be another column's
_FEW = 2 * probes.FOLDS


@dataclass(frozen=True, eq=False)
class UserTable:
    """Rows of a file, with columns named by their roles."""

    path: Path
    kind: str
    columns: Mapping[str, str]  # the name in the file, by role
    rows: pd.DataFrame  # the index names each row in messages: ``line 7``, ``row 7`` or a file
    warnings: tuple[str, ...] = ()  # about rows that were left out

    @property
    def labels(self) -> pd.Series[str]:
        """The labels of all texts, by row; one row may have several."""
        return self.rows["label"].explode()

    @property
    def unit(self) -> str:
        """What is counted as independent."""
        return "group" if "group" in self.rows else "text"

    @property
    def label_counts(self) -> dict[str, int]:
        """The number of texts, or groups, of each label."""
        labels = self.labels
        if "group" not in self.rows:
            return dict(labels.value_counts())
        groups = self.rows.loc[labels.index, "group"]
        return dict(groups.groupby(labels.array).nunique())

    @property
    def judged(self) -> UserTable:
        """The rows with a query; one without is a document without a judgement."""
        return self.where(~self.rows["query"].isin([None, ""]))

    def relabelled(self, change: Callable[[Any], tuple[str, ...]]) -> UserTable:
        """The table with a change of the label of each row."""
        return replace(self, rows=self.rows.assign(label=self.rows["label"].map(change)))

    def where(self, kept: pd.Series[bool]) -> UserTable:
        return replace(self, rows=self.rows[kept])

    def without(self, dropped: pd.Series[bool], reason: str) -> UserTable:
        """Leave out some rows, with a warning; an error if none is left."""
        if not dropped.any():
            return self
        warning = (
            f"{dropped.sum():,} of {plural(len(dropped), 'row')} {reason} are left out (the first:"
            f" {dropped.idxmax()})."
        )
        if dropped.all():
            raise self.error(f" has no row left: {warning}")
        return replace(self.where(~dropped), warnings=(*self.warnings, warning))

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"'{self.path}'{problem}")

    def check(self, role: str, is_valid: Callable[[Any], bool], problem: str) -> None:
        """Raise an error with the first value that is not valid."""
        for place, value in self.rows[role].items():
            if is_valid(value):
                continue
            got = f"{value!r:.80}"
            if role not in _TEXTS and not isinstance(value, str | Mapping):
                got = "a missing value"
            raise self.error(f", {place}, column '{self.columns[role]}': got {got}, {problem}")

    def texts(self, role: str) -> tuple[str, ...]:
        problem = "not a text. Fill it in or remove the row."
        self.check(role, lambda value: isinstance(value, str) and bool(value.strip()), problem)
        self.check(role, is_encodable, _CUT)
        return tuple(self.rows[role])

    def numbers(self, role: str) -> pd.Series[float]:
        self.check(role, _is_number, "not a finite number.")
        return self.rows[role].map(float)


# what the columns are, and which kind of task they make


def table_of(path: Path, placed_rows: Iterable[PlacedRow], options: Mapping[str, str]) -> UserTable:
    """The table of these rows, without those that ``drop`` leaves out."""
    options = {_SYNONYMS.get(option, option): column for option, column in options.items()}
    for option in options:
        require_known("option of a file task", option, (*ROLES, *OPTIONS))
    drops = list(filter(None, options.get("drop", "").split("+")))
    for drop in drops:
        require_known("rows to drop", drop, _DROPS)
    frame = _frame(path, placed_rows)
    columns = columns_of(path, list(frame.columns), options)
    kind = _kind(path, frame, columns, options)
    table = _with_roles(path, frame, columns, kind)
    if "missing" in drops:
        table = _without_missing(table)
    if "text" in table.rows and "label" in table.rows:
        table = _with_labels(table)
        if "rare" in drops:
            table = _without_rare(table)
    if "group" in table.rows:
        _check_groups(table)
    return table


def _frame(path: Path, placed_rows: Iterable[PlacedRow]) -> pd.DataFrame:
    places, rows = zip(*placed_rows, strict=True)
    frame = pd.DataFrame(list(rows), index=list(places), dtype=object)
    names: dict[str, str] = {}
    for name in frame.columns:
        other = names.setdefault(name.strip().casefold(), name)
        if other != name:
            raise ConfigError(
                f"'{path}' has the columns '{other}' and '{name}', which differ in case or spaces"
                " alone. Rename or remove one."
            )
    return frame.where(frame.notna(), None)


def columns_of(path: Path, header: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """The column of each role that a table has."""
    by_name = {column.strip().lower(): column for column in header}
    columns = {}
    for role, names in ROLES.items():
        recognised = next((by_name[name] for name in names if name in by_name), None)
        column = options.get(role, recognised)
        if column is None:
            continue
        require_known(f"column in '{path}' (as '{role}')", column, header)
        columns[role] = column
    return columns


def _kind(
    path: Path, frame: pd.DataFrame, columns: Mapping[str, str], options: Mapping[str, str]
) -> str:
    kinds = list(REQUIRED)
    requested = options.get("kind")
    if requested:
        require_known("kind of task", requested, kinds)
        kinds = [requested]
    fitting = [kind for kind in kinds if columns.keys() >= set(REQUIRED[kind])]
    if not fitting:
        raise _unfit(path, frame, kinds)
    # the first that has all the roles that were named, if there is one
    named = options.keys() & set(ROLES) - {"group"}
    kind = max(fitting, key=lambda kind: named <= set(REQUIRED[kind]))
    if kind == "reranking" and not requested:
        relevances = frame[columns["relevance"]].map(_reading)
        has_zero = any(_is_number(value) and float(value) == 0 for value in relevances)
        if not has_zero or not all(frame[columns["query"]]):
            return "retrieval"  # each document is a candidate of all queries
    return kind


def _unfit(path: Path, frame: pd.DataFrame, kinds: list[str]) -> ConfigError:
    example = f"{REQUIRED[kinds[-1]][-1]}=COLUMN"
    typed = f"--columns {example}"
    if "classification" in kinds and not frame.columns.empty:
        # texts are the longest values, labels have the fewest different ones
        lengths = frame.map(lambda value: 0 if value is None else len(str(value)))
        text = lengths.mean().idxmax()
        distinct = frame.drop(columns=text).astype(str).nunique()
        label = distinct[distinct > 1].sort_values(kind="stable").index
        column = str(next(iter(label), "COLUMN"))
        example = f"text={text}, label={column}"
        typed = f"--text {quote(str(text))} --label {quote(column)}"
    required = "; ".join(f"{kind}: {', '.join(REQUIRED[kind])}" for kind in kinds)
    return ConfigError(
        f"'{path}' has the columns {', '.join(frame.columns)}, which fit no kind of task. Required"
        f" columns: {required}. Name the columns, for instance {example}. On the command line: {typed};"
        f" in a configuration: file:{path}({example})"
    )


def _with_roles(
    path: Path, frame: pd.DataFrame, columns: Mapping[str, str], kind: str
) -> UserTable:
    roles = REQUIRED[kind]
    if kind == "retrieval":
        roles = REQUIRED["reranking"]  # a relevance is optional
        if "relevance" not in columns:
            check_names(path, frame.columns, ROLES["relevance"])
    used = {role: column for role, column in columns.items() if role in (*roles, "group")}
    rows = frame[list(used.values())].set_axis(list(used), axis=1)
    for role in rows.columns.difference([*_TEXTS]):
        rows[role] = pd.Series(list(map(_reading, rows[role])), rows.index, dtype=object)
    return UserTable(path, kind, used, rows)


def _without_missing(table: UserTable) -> UserTable:
    # a row of a retrieval without a query is a document without a judgement, of no group
    of_queries = ["query", "group"] if "query" in table.rows else []
    needed = table.rows.drop(columns=of_queries, errors="ignore").map(_reading)
    is_missing = needed.isna().any(axis=1)
    if table.kind == "multilabel_classification":
        cells = table.rows["label"]
        is_missing |= np.array([isinstance(cell, str) and not _split(cell) for cell in cells])
    return table.without(is_missing, "without a value")


def _with_labels(table: UserTable) -> UserTable:
    """The table with a tuple of labels for each text."""
    problem = "not a label. Fill it in, remove the row, or leave out such rows: drop=missing"
    table.check("label", lambda cell: isinstance(cell, str), problem)
    table.check("label", is_encodable, _CUT)
    if table.kind == "multilabel_classification":
        table.check("label", lambda cell: bool(_split(cell)), problem)
        return table.relabelled(_split)
    return table.relabelled(lambda cell: (cell.replace(_HELD, SEPARATOR),))


def _without_rare(table: UserTable) -> UserTable:
    fewest = _FEWEST[table.kind]
    rare = {label for label, count in table.label_counts.items() if count < fewest}
    if not rare:
        return table
    left_out = table.labels.isin(rare).sum()
    table = table.relabelled(lambda cell: tuple(label for label in cell if label not in rare))
    is_empty = table.rows["label"].map(len) == 0
    reason = f"{plural(len(rare), 'label')} of fewer than {fewest} {table.unit}s"
    if left_out > is_empty.sum():  # some texts have other labels, too
        table = replace(table, warnings=(*table.warnings, f"Left out: {reason}."))
    return table.without(is_empty, f"with {reason}")


def _check_groups(table: UserTable) -> None:
    items = table.judged if "query" in table.rows else table
    items.check(
        "group", lambda value: isinstance(value, str), "not a group. Fill it in or remove the row."
    )
    column = table.columns["group"]
    groups = items.rows["group"].nunique()
    if groups < probes.FOLDS:
        raise table.error(
            f" has {plural(groups, 'group')} in the column '{column}'; a task needs at least"
            f" {probes.FOLDS}. Add rows of other groups, or leave out 'group'."
        )
    if items is table:
        return
    groups_of_query = items.rows.groupby("query")["group"].nunique()
    if groups_of_query.max() > 1:
        raise table.error(
            f" has the query '{groups_of_query.idxmax():.60}' in several groups of the column"
            f" '{column}'. Give all its rows one group."
        )


# values


def _reading(value: object) -> Any:
    """The text of a label, grade, relevance or group, the same in every format.

    None if it is missing; an object of JSON stays one, and is not valid.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple | np.ndarray):  # several labels, in formats that hold lists
        labels = list(map(_reading, value))
        objects = [label for label in labels if isinstance(label, Mapping)]
        if objects:
            return objects[0]
        texts = [_MISSING[1] if label is None else str(label) for label in labels]
        value = SEPARATOR.join(text.replace(SEPARATOR, _HELD) for text in texts)
    text = str(value).strip()
    if value is None or text in _MISSING:
        return None
    return value if isinstance(value, Mapping) else text


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str) and "_" not in value and -1e300 < float(value) < 1e300
    except ValueError:
        return False


def _split(cell: str) -> tuple[str, ...]:
    """The distinct labels of a cell; none if one is missing."""
    labels = {label.strip().replace(_HELD, SEPARATOR) for label in cell.split(SEPARATOR)}
    labels.discard("")
    if labels.isdisjoint(_MISSING):
        return tuple(sorted(labels))
    return ()


def _looks_several(labels: pd.Series[str]) -> bool:
    """Whether these look like several labels each, which occur elsewhere, too."""
    distinct = labels.drop_duplicates().map(_split).explode()
    return labels.str.contains(SEPARATOR).sum() > 1 and bool(distinct.duplicated().any())


# the examples of each kind


def examples_of(table: UserTable) -> Examples:
    """The examples of a table's kind of task."""
    examples = _EXAMPLES[table.kind](table)
    if "group" not in table.rows:
        return examples
    rows = table.rows
    if examples.queries:
        rows = table.judged.rows.drop_duplicates("query")
    numbers = _numbered(rows["group"])
    return replace(examples, groups=tuple(map(numbers.__getitem__, rows["group"])))


def _by_label(table: UserTable) -> Examples:
    texts = table.texts("text")
    labels = table.labels
    fewest = _FEWEST[table.kind]
    counts = table.label_counts
    if len(counts) < 2:
        raise table.error(f" has only one label, '{labels.iloc[0]}'; a task needs at least two.")
    by_count = sorted(counts, key=lambda label: (counts[label], label))
    rarest = by_count[0]
    if counts[rarest] < fewest:
        raise table.error(
            f" has {plural(counts[rarest], table.unit)} with the label '{rarest}', and"
            f" {len(counts)} labels in all; each label needs at least {fewest} {table.unit}s."
            f" {_remedy_of_rare_labels(table)}"
        )
    if table.kind == "multilabel_classification":
        return _with_several(table, texts, by_count)
    numbers = _numbered(sorted(counts))
    return Examples(texts, tuple(numbers[label] for label in labels))


def _remedy_of_rare_labels(table: UserTable) -> str:
    remedy = "Merge rare labels, leave them out: drop=rare, or name the right column: label=COLUMN"
    if all(map(_is_number, table.labels)):
        remedy += f". For a regression, they are grades: grade={table.columns['label']}"
    if table.kind != "multilabel_classification" and _looks_several(table.labels):
        remedy += f". {_PROPOSED}"
    return remedy


def _with_several(table: UserTable, texts: tuple[str, ...], by_count: list[str]) -> Examples:
    """Examples whose texts have several labels, numbered from the rarest on."""
    several = (table.rows["label"].map(len) > 1).sum()
    if several < 2:
        raise table.error(
            f" has {plural(several, 'text')} with several labels, separated by '{SEPARATOR}'. Leave"
            " out the kind: with one label each, they are a classification."
        )
    frequent = by_count[-1]
    others = table.rows[[frequent not in cell for cell in table.rows["label"]]]
    without = others["group"].nunique() if table.unit == "group" else len(others)
    if without < probes.FOLDS:
        raise table.error(
            f" has {plural(without, table.unit)} without the label '{frequent}'; each label needs "
            f"at least {probes.FOLDS} {table.unit}s without it, too. Remove it."
        )
    numbers = _numbered(by_count)
    judgements: list[Judgement] = []
    rarest = []
    for text, cell in enumerate(table.rows["label"]):
        judged = [(text, numbers[label], 1.0) for label in cell]
        judgements += judged
        rarest.append(min(number for _, number, _ in judged))
    return Examples(texts, tuple(rarest), judgements=tuple(judgements))


def _pairs(table: UserTable) -> Examples:
    table.check(
        "label",
        lambda value: str(value).lower() in (*_TRUE, *_FALSE),
        "not 1 or 0; write 1 if the texts belong together, else 0.",
    )
    labels = tuple(int(value.lower() in _TRUE) for value in table.rows["label"])
    if len(set(labels)) < 2:
        raise table.error(
            f" has only pairs with the label {labels[0]}; a task needs pairs of both labels."
        )
    return Examples(table.texts("first") + table.texts("second"), labels)


def _graded(table: UserTable) -> Examples:
    fewest = _FEWEST[table.kind]
    grades = tuple(table.numbers("grade"))
    distinct = len(set(grades))
    if distinct < 2 or len(grades) < fewest:
        raise table.error(
            f" has {plural(len(grades), 'row')} and {plural(distinct, 'different grade')}; a task"
            f" needs at least {fewest} rows and two grades."
        )
    texts: tuple[str, ...] = ()
    for role in table.rows.columns.intersection([*_TEXTS]):
        texts += table.texts(str(role))
    return Examples(texts, grades)


def _judged(table: UserTable) -> Examples:
    documents = _numbered(table.texts("document"))
    judged = table.judged
    if judged.rows.empty:
        raise table.error(" has no query; each row needs a query and a document.")
    if table.kind == "retrieval" and len(documents) < 2:
        raise table.error(" has only one document; a retrieval needs at least two.")
    queries = _numbered(judged.texts("query"))
    pairs = zip(judged.rows["query"], judged.rows["document"], strict=True)
    of_rows: Iterable[float] = [1.0] * len(judged.rows)
    if "relevance" in judged.rows:
        of_rows = judged.numbers("relevance")
        judged.check(
            "relevance",
            lambda value: float(value) >= 0,
            "a relevance below 0. Write 0 for a document that is not relevant.",
        )
    relevances = dict(zip(pairs, of_rows, strict=True))  # the last of a pair counts
    if table.kind == "reranking" and all(relevances.values()):
        raise table.error(
            " has no candidate of relevance 0, so every order is equally good. Use kind=retrieval"
            " instead."
        )
    answered = {query for (query, _), relevance in relevances.items() if relevance > 0}
    for query in queries:
        if query not in answered:
            raise table.error(
                f" has no relevant document for the query '{query:.60}'. Add one or remove the"
                " query."
            )
    judgements = tuple(
        (queries[query], documents[document], relevance)
        for (query, document), relevance in relevances.items()
    )
    return Examples((*queries, *documents), judgements=judgements, queries=len(queries))


def _numbered(values: Iterable[str]) -> dict[str, int]:
    """The number of each distinct value, in their order."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


_EXAMPLES: Mapping[str, Callable[[UserTable], Examples]] = {
    "classification": _by_label,
    "clustering": _by_label,
    "multilabel_classification": _by_label,
    "pair_classification": _pairs,
    "sts": _graded,
    "regression": _graded,
    "retrieval": _judged,
    "reranking": _judged,
}
_FEWEST: Mapping[str, int] = {
    "classification": probes.FOLDS,
    "clustering": 2,
    "multilabel_classification": probes.FOLDS,
    "sts": 4,
    "regression": 10,
}  # texts of a label, or grades


# what is doubtful about rows


def doubts(table: UserTable) -> Iterator[str]:
    """Warnings about the rows of a table, each with an example.

    Raises
    ------
    ConfigError
        If two columns are equal, all rows of a label have one text, or no text of a column has any
        content.
    """
    shown = table.rows.map(_shown)
    # without differences in case and white space
    rows = shown.map(lambda text: " ".join(text.split()).casefold())
    _require_different_columns(table, rows)
    for role in rows.columns.intersection([*_TEXTS]):
        yield from _without_content(table, role)
    if "group" in rows:
        rows["group"] = shown["group"]
    for role in rows.columns.intersection(["label", "grade"]):
        counts = shown[role].value_counts()
        if counts.iloc[0] > _MOST * len(shown):
            yield (
                f"{counts.iloc[0]:,} of {plural(len(shown), 'row')} have the same"
                f" '{table.columns[role]}', {counts.index[0]}: the score says little about the others."
            )
    if "text" in rows and "label" in rows:
        rows["label"] = shown["label"]
        yield from _doubtful_labels(table, rows)
    elif "first" in rows:
        texts = rows[["first", "second"]]
        rows = rows.assign(first=texts.min(axis=1), second=texts.max(axis=1))
    elif "query" in rows:
        rows = rows[rows["query"] != ""]
    yield from _contradictions(table, rows)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return SEPARATOR.join(value)
    return str(value or "")


def _require_different_columns(table: UserTable, rows: pd.DataFrame) -> None:
    for role, other in combinations(rows.columns.drop("group", errors="ignore"), 2):
        if rows[role].equals(rows[other]):
            raise table.error(
                f": the columns '{table.columns[role]}' ({role}) and '{table.columns[other]}'"
                f" ({other}) are equal in all {plural(len(rows), 'row')}, so a score would say"
                f" nothing. Name another column: {other}=COLUMN"
            )


def _without_content(table: UserTable, role: str) -> Iterator[str]:
    column = table.columns[role]
    texts = table.rows[role].map(_shown)
    texts = texts[texts != ""]
    empty = texts[[len(text.strip()) < 2 or not any(map(str.isalnum, text)) for text in texts]]
    if empty.empty:
        return
    example = f"{empty.index[0]}: {empty.iloc[0][:_SHOWN]!r}"
    if len(empty) == len(texts):
        raise table.error(
            f": no text of the column '{column}' has a letter or digit and is longer than one "
            f"character ({example}). Name the right column: {role}=COLUMN"
        )
    yield (
        f"{len(empty):,} of {plural(len(texts), 'text')} of the column '{column}' are one "
        f"character or have no letter and no digit ({example}); their vectors say little."
    )


def _doubtful_labels(table: UserTable, rows: pd.DataFrame) -> Iterator[str]:
    column = table.columns["label"]
    labels = table.labels
    texts_of_label = rows.loc[labels.index, "text"].groupby(labels.array).nunique()
    by_text = rows.groupby("text")["label"]
    labels_of_text = by_text.transform("nunique")
    if (labels_of_text == 1).all() and (texts_of_label == 1).all():
        raise table.error(
            ": all rows of a label have the same text, so a score would say nothing. Is "
            f"'{table.columns['text']}' the column of the texts? Name it: text=COLUMN"
        )
    if len(labels) == len(rows) and _looks_several(labels):
        yield (
            f"{rows['label'].str.contains(SEPARATOR).sum():,} of {plural(len(rows), 'label')}"
            f" contain '{SEPARATOR}' and count as one label each. {_PROPOSED}."
        )
    if len(labels) < _FEW * len(texts_of_label):
        yield (
            f"'{column}' has {len(texts_of_label):,} labels for {plural(len(rows), 'text')}, "
            f"fewer than {_FEW} texts each on average. Is it the right column?"
        )
    if table.unit == "text":  # copies in one group are in one fold
        yield from _copies(rows[(by_text.transform("size") > 1) & (labels_of_text == 1)])
    yield from _alike(column, labels)


def _copies(rows: pd.DataFrame) -> Iterator[str]:
    """Of the rows whose text has the same label in others, too."""
    if rows.empty:
        return
    text = rows["text"].iloc[0]
    places = " and ".join(rows.index[rows["text"] == text][:2])
    yield (
        f"{plural(rows['text'].nunique(), 'text')} with one label in several rows, "
        f"{len(rows):,} rows in all ({places}: {text[:_SHOWN]!r}). Remove the copies: they "
        "raise the score."
    )


def _alike(column: str, labels: pd.Series[str]) -> Iterator[str]:
    """Of labels that differ in their writing alone."""
    counts = labels.value_counts(sort=False)
    for _, alike in counts.groupby(counts.index.map(_writing), sort=False):
        if len(alike) > 1:
            listing = " and ".join(f"{label!a} ({count:,})" for label, count in alike.items())
            yield (
                f"'{column}' has labels that differ in their writing alone: {listing}. They count"
                " as different labels; write them alike if they are one."
            )


def _writing(label: str) -> str:
    """A label without its case, Unicode form, invisible characters and way to write numbers."""
    visible = (sign for sign in label if unicodedata.category(sign) != "Cf")
    composed = unicodedata.normalize("NFC", "".join(visible))
    text = " ".join(composed.split()).casefold()
    text = {"true": "1", "false": "0"}.get(text, text)
    if _is_number(text):
        return str(float(text))
    return text


def _contradictions(table: UserTable, rows: pd.DataFrame) -> Iterator[str]:
    texts = list(rows.columns.intersection([*_TEXTS]))
    for role in rows.columns.difference(texts):
        contradictory = rows[rows.groupby(texts)[role].transform("nunique") > 1]
        if contradictory.empty:
            continue
        example = contradictory.iloc[0]
        equal_texts = contradictory[(contradictory[texts] == example[texts]).all(axis=1)]
        other = equal_texts.drop_duplicates(role).iloc[1]
        unit = {1: "text", 2: "pair"}[len(texts)]
        remedy = ""
        if role == "group":
            remedy = " Remove the copies, or give them one group: they raise the score."
        yield (
            f"{plural(contradictory.groupby(texts).ngroups, unit)} with different values of "
            f"'{table.columns[role]}' in several rows ({example.name} has {example[role]}, "
            f"{other.name} has {other[role]}: {example[texts[0]][:_SHOWN]!r}).{remedy}"
        )
