"""A task on the user's own texts: ``file:reviews.csv``, with columns and kind in parentheses where
needed.

The columns decide what kind of task it is: a text and a label make a classification, two texts with
a label or a grade are pairs, a query and a document are a retrieval. The file is read and checked
when the task is resolved: an error where a score would say nothing, else warnings.

Formats are CSV and TSV with a header, JSON Lines, Parquet, and a folder with one sub-folder of text
files per class.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from daskmetrics.core.errors import ConfigError, DataError, require_known
from daskmetrics.core.files import expanded
from daskmetrics.core.names import Key, content_key
from daskmetrics.core.rows import PlacedRow, check_names, read_rows, read_text
from daskmetrics.core.text import is_encodable, plural
from daskmetrics.tasks import _probes as probes
from daskmetrics.tasks.examples import FEWEST, KINDS, Examples, ExampleTask

#: of the scores of a kind, by default 1: raise it when equal texts and embeddings no longer give equal scores
VERSIONS: Mapping[str, int] = {"pair_classification": 2, "retrieval": 2}

ROLES: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "sentence", "content", "body", "review", "comment", "message", "abstract"),
    "label": ("label", "class", "category", "target", "stars", "rating", "topic", "sentiment"),
    "first": ("text1", "sentence1", "first", "question1"),
    "second": ("text2", "sentence2", "second", "question2"),
    "grade": ("score", "grade", "similarity"),
    "query": ("query", "question"),
    "document": ("document", "passage", "answer"),
    "relevance": ("relevance", "relevant"),
}
"""The roles of columns, and the column names that have each role, in any case; the first name that exists is used."""

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

OPTIONS = ("kind", "probe", "drop")
"""The options of a task on a table, beside the columns of its roles."""

SEPARATOR = ";"  #: of the labels of one text
_HELD = "\x1f"  # stands for a separator within a label of a list
_PROPOSED = (
    f"For several labels per text, separated by '{SEPARATOR}': kind=multilabel_classification"
)
_TRUE = ("1", "1.0", "true", "yes")
_FALSE = ("0", "0.0", "false", "no")
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "<NA>", "NaT")  # in every format
_DROPS = ("missing", "rare")  # rows that are left out on request
_MOST = 0.95  # share of equal labels or grades, from which on a score says little
_TEXTS = ("text", "first", "second", "query", "document")  # roles of columns that are embedded
_SHOWN = 40  # characters of a text in a message
#: texts per label on average, below which the labels may be another column's
_FEW = 2 * probes.FOLDS


@dataclass(frozen=True)
class FileTask(ExampleTask):
    """A task on a file or folder of the user; made by `file_task`."""

    path: str  # absolute; workers must see it, too
    options: tuple[tuple[str, str], ...]
    content: Key  # of the file when the task was resolved
    # about the data, as in `daskmetrics.tasks.Task`
    warnings: tuple[str, ...] = field(default=(), compare=False)
    # of a table in memory, which has no file
    held: Examples | None = field(default=None, repr=False, compare=False)

    @cached_property
    def key(self) -> Key:
        fitted = None
        if self.kind == "classification":
            fitted = [self.probe, *probes.library_version(self.probe)]
        version = VERSIONS.get(self.kind, 1)
        return content_key("task", "own", version, self.kind, fitted, self.content, *self._part_key)

    @property
    def source(self) -> tuple[str, str]:
        """The file, or the data set and its split."""
        return self.path, self.name.partition("(")[0]

    def whole(self) -> Examples:
        """The content of the file; an error if it has changed since the task was resolved."""
        return self.held or _read_examples(self.path, self.options, self.content)


def file_task(path: str, options: Mapping[str, str]) -> FileTask:
    """The task on a file or folder, read and checked.

    Options are ``kind``, ``probe``, ``drop`` (``missing``, ``rare`` or both with +: rows without a
    value, and labels of too few texts), and the column of each of `ROLES` that has another name.
    """
    file = expanded(path)
    return replace(table_task(file, _read(file), options, f"file:{file.name}"), held=None)


def hub_task(name: str, options: Mapping[str, str]) -> FileTask:
    """The task on a data set of Hugging Face, ``NAME`` or ``NAME:SPLIT``; by default its split
    ``test`` if it has one, else its first. Options are those of `file_task`.
    """
    try:
        from datasets import ClassLabel, load_dataset
    except ImportError:
        raise ConfigError(f"'hf:{name}' needs datasets: pip install datasets") from None
    dataset, _, split = name.partition(":")
    try:
        splits = load_dataset(dataset)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"The data set '{dataset}' cannot be loaded: {reason:.300}") from None
    split = split or ("test" if "test" in splits else next(iter(splits)))
    require_known(f"split of '{dataset}'", split, splits)
    frame = splits[split].to_pandas()
    for column, feature in splits[split].features.items():
        if isinstance(feature, ClassLabel):  # numbers of names; -1 is missing
            labels = dict(enumerate(feature.names))
            frame[column] = [labels.get(number) for number in frame[column]]
    rows = enumerate(frame.to_dict("records"), start=1)
    placed_rows = [(f"row {number}", row) for number, row in rows]
    return table_task(Path(dataset), placed_rows, options, f"hf:{name}")


def table_task(
    path: Path, rows: Iterable[PlacedRow], options: Mapping[str, str], name: str
) -> FileTask:
    """The task on a table in memory, which is checked; options are those of `file_task`, and become
    part of the name.
    """
    table = _Table(path, rows, options)
    _examine(table)
    count = len(table.examples.items)
    if count < FEWEST:
        table.warnings.append(
            f"Only {plural(count, 'item')} can be scored (a text, pair or query each): the error of"
            " the score is a guess, and differences say nothing."
        )
    if options:
        name += f"({', '.join(map('='.join, options.items()))})"
    task = FileTask(
        name=name,
        kind=table.kind,
        path=str(path.resolve()),
        options=tuple(options.items()),
        content=_content_key(table.examples),
        description=KINDS[table.kind].question,
        warnings=tuple(table.warnings),
        held=table.examples,
    )
    if "probe" in options:
        return task.with_probe(options["probe"])
    return task


@cache
def _read_examples(path: str, options: tuple[tuple[str, str], ...], content: Key) -> Examples:
    """Read the examples of a file, once per process; its content must have the same key as when it
    was resolved.
    """
    examples = _Table(Path(path), _read(Path(path)), dict(options)).examples
    if _content_key(examples) != content:
        raise DataError(
            f"'{path}' has changed since the run began. Restore it, or start a new run."
        )
    return examples


def _content_key(examples: Examples) -> Key:
    return content_key(examples.texts, examples.labels, examples.judgements, examples.queries)


def _read(path: Path) -> list[PlacedRow]:
    """The rows of a file or folder; errors name the line where it is known."""
    rows: list[PlacedRow] = []
    if path.is_dir():
        for file in sorted(path.glob("*/*.txt")):
            row = {"text": read_text(file), "label": file.parent.name}
            rows.append((str(file.relative_to(path)), row))
    else:
        rows += read_rows(path)
    if not rows:
        raise ConfigError(
            f"'{path}' has no rows. It needs a header and rows, or one folder of text files per"
            " class."
        )
    return rows


class _Table:
    """Rows of a file whose columns are named by their roles; errors name the row."""

    def __init__(
        self, path: Path, placed_rows: Iterable[PlacedRow], options: Mapping[str, str]
    ) -> None:
        self.path = path
        self.options = options
        for option in options:
            require_known("option of a file task", option, (*ROLES, *OPTIONS))
        self.drop = tuple(filter(None, options.get("drop", "").split("+")))
        for rows in self.drop:
            require_known("rows to drop", rows, _DROPS)
        self.warnings: list[str] = []
        self.labels: pd.Series[str]  # of all texts, which may have several
        frame = self._frame(placed_rows)
        columns = self._columns(frame)
        self.kind = self._kind(frame, columns)
        roles = REQUIRED[self.kind]
        if self.kind == "retrieval":
            roles = REQUIRED["reranking"]  # a relevance is optional
            if "relevance" not in columns:
                check_names(path, frame.columns, ROLES["relevance"])
        self.columns = {role: column for role, column in columns.items() if role in roles}
        self.rows = frame[list(self.columns.values())].set_axis(list(self.columns), axis=1)
        for role in self.rows.columns.difference([*_TEXTS]):
            self.rows[role] = pd.array(list(map(_reading, self.rows[role])), dtype=object)
        if "missing" in self.drop:
            # a row of a retrieval without a query is a document without a judgement
            needed = self.rows.drop(columns="query", errors="ignore").map(_reading)
            self.leave_out(needed.isna().any(axis=1), "without a value")
        self.examples: Examples = _EXAMPLES[self.kind](self)

    def _frame(self, placed_rows: Iterable[PlacedRow]) -> pd.DataFrame:
        """The values as they are, None where a row has none; the index names each row in messages:
        ``line 7``, ``row 7`` or a file name.
        """
        places, rows = zip(*placed_rows, strict=True)
        frame = pd.DataFrame(list(rows), index=list(places), dtype=object)
        names: dict[str, str] = {}
        for name in frame.columns:
            other = names.setdefault(name.strip().casefold(), name)
            if other != name:
                raise self.error(
                    f" has the columns '{other}' and '{name}', which differ in case or spaces alone."
                    " Rename or remove one."
                )
        return frame.where(frame.notna(), None)

    def _columns(self, frame: pd.DataFrame) -> dict[str, str]:
        """The column of each role that has one."""
        by_name = {column.strip().lower(): column for column in frame.columns}
        columns = {}
        for role, names in ROLES.items():
            recognised = next((by_name[name] for name in names if name in by_name), None)
            column = self.options.get(role, recognised)
            if column is None:
                continue
            require_known(f"column in '{self.path}' (as '{role}')", column, list(frame.columns))
            columns[role] = column
        return columns

    def _kind(self, frame: pd.DataFrame, columns: Mapping[str, str]) -> str:
        """The requested kind, or the first whose columns all exist; if there is one, the first that
        has all the roles that were named.
        """
        kinds = list(REQUIRED)
        requested = self.options.get("kind")
        if requested:
            require_known("kind of task", requested, kinds)
            kinds = [requested]
        fitting = [kind for kind in kinds if columns.keys() >= set(REQUIRED[kind])]
        if not fitting:
            raise self._unfit(frame, kinds)
        named = self.options.keys() & ROLES
        # the first of several greatest; a clustering has the columns of a classification
        kind = max(fitting, key=lambda kind: named <= set(REQUIRED[kind]))
        if kind == "reranking" and not requested:
            # candidates of relevance 0 make a reranking; a row without a query, or none that is not
            # relevant, says that each document is a candidate of all queries
            relevances = frame[columns["relevance"]].map(_reading)
            has_zero = any(_is_number(value) and float(value) == 0 for value in relevances)
            if not all(frame[columns["query"]]) or not has_zero:
                return "retrieval"
        return kind

    def _unfit(self, frame: pd.DataFrame, kinds: list[str]) -> ConfigError:
        """The error of columns that fit none of these kinds. It proposes columns of texts and
        labels: the longest values, and the fewest different ones.
        """
        example = f"{REQUIRED[kinds[-1]][-1]}=COLUMN"
        if "classification" in kinds and not frame.columns.empty:
            lengths = frame.map(lambda value: 0 if value is None else len(str(value)))
            text = lengths.mean().idxmax()
            distinct = frame.drop(columns=text).astype(str).nunique()
            label = distinct[distinct > 1].sort_values(kind="stable").index
            example = f"text={text}, label={next(iter(label), 'COLUMN')}"
        required = "; ".join(f"{kind}: {', '.join(REQUIRED[kind])}" for kind in kinds)
        return self.error(
            f" has the columns {', '.join(frame.columns)}, which fit no kind of task. Required"
            f" columns: {required}. Name the columns, for instance:"
            f" file:{self.path.name}({example})"
        )

    def leave_out(self, rows: pd.Series[bool], reason: str) -> None:
        """Leave out some of the rows; an error if none is left."""
        if not rows.any():
            return
        self.warnings.append(
            f"{rows.sum():,} of {plural(len(rows), 'row')} {reason} are left out (the first: "
            f"{rows.idxmax()})."
        )
        if rows.all():
            raise self.error(f" has no row left: {self.warnings[-1]}")
        self.rows = self.rows[~rows]

    def error(self, problem: str) -> ConfigError:
        return ConfigError(f"'{self.path}'{problem}")

    def check(
        self, values: pd.Series[Any], is_valid: Callable[[object], bool], problem: str
    ) -> None:
        """Raise an error with the first of a role's values that is not valid."""
        role = str(values.name)
        for position, value in values.items():
            if not is_valid(value):
                shown = f"{value!r:.80}"
                if not isinstance(value, str | Mapping) and role not in _TEXTS:
                    shown = "a missing value"
                raise self.error(
                    f", {position}, column '{self.columns[role]}': got {shown}, {problem}"
                )

    def texts(self, *columns: pd.Series[Any]) -> tuple[str, ...]:
        """The texts of one column after the other."""
        texts: tuple[str, ...] = ()
        for values in columns:
            problem = "not a text. Fill it in or remove the row."
            self.check(
                values, lambda value: isinstance(value, str) and bool(value.strip()), problem
            )
            problem = "which has half of a surrogate pair, as a text that was cut. Correct it."
            self.check(values, lambda value: is_encodable(str(value)), problem)
            texts += tuple(values)
        return texts

    def numbers(self, values: pd.Series[Any]) -> tuple[float, ...]:
        self.check(values, _is_number, "not a finite number.")
        return tuple(map(float, values))


def _reading(value: object) -> object:
    """What a label, grade or relevance is, the same in every format: a text, None if it is missing,
    or an object of JSON, which is none of these.
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


def _several_labels(cell: str) -> list[str]:
    """The labels of a text that may have several, each once; none if one of them is missing."""
    labels = {label.strip().replace(_HELD, SEPARATOR) for label in cell.split(SEPARATOR)}
    labels.discard("")
    if labels.isdisjoint(_MISSING):
        return sorted(labels)
    return []


def _looks_several(cells: pd.Series[str]) -> bool:
    """Whether labels look like several labels each, of which some occur in other cells, too."""
    distinct = cells.drop_duplicates().map(_several_labels).explode()
    return cells.str.contains(SEPARATOR).sum() > 1 and bool(distinct.duplicated().any())


def _by_label(table: _Table) -> Examples:
    """Texts and the label of each, or its labels."""
    fewest = _FEWEST[table.kind]
    several = table.kind == "multilabel_classification"
    problem = "not a label. Fill it in, remove the row, or leave out such rows: drop=missing"
    labels = table.rows["label"]
    table.check(labels, lambda value: isinstance(value, str), problem)
    if several:
        if "missing" in table.drop:
            table.leave_out(~labels.map(_several_labels).astype(bool), "without a value")
            labels = table.rows["label"]
        table.check(labels, lambda value: bool(_several_labels(str(value))), problem)
        labels = labels.map(_several_labels).explode()
    else:
        table.rows["label"] = labels = labels.str.replace(_HELD, SEPARATOR)
    if "rare" in table.drop:
        is_rare = labels.groupby(labels).transform("size") < fewest
        rare = f"{plural(labels[is_rare].nunique(), 'label')} of fewer than {fewest} texts"
        labels = labels[~is_rare]
        rows = table.rows["label"].drop(labels.index).index
        if is_rare.sum() > len(rows):
            table.warnings.append(f"Left out: {rare}.")
        table.leave_out(table.rows.index.to_series().isin(rows), f"with {rare}")
    table.labels = labels
    texts = table.texts(table.rows["text"])
    counts = Counter(labels)
    if len(counts) < 2:
        raise table.error(f" has only one label, '{labels.iloc[0]}'; a task needs at least two.")
    by_count = sorted(counts, key=lambda label: (counts[label], label))
    rarest = by_count[0]
    count = counts[by_count[0]]
    if count < fewest:
        remedy = (
            "Merge rare labels, leave them out: drop=rare, or name the right column: label=COLUMN"
        )
        if all(map(_is_number, counts)):
            remedy += f". For a regression, they are grades: grade={table.columns['label']}"
        if not several and _looks_several(labels):
            remedy += f". {_PROPOSED}"
        raise table.error(
            f" has {plural(count, 'text')} with the label '{rarest}', and {len(counts)} labels in"
            f" all; each label needs at least {fewest} texts. {remedy}"
        )
    if several:
        return _with_several(table, texts, by_count)
    index = {label: i for i, label in enumerate(sorted(counts))}
    return Examples(texts, tuple(map(index.__getitem__, labels)))


def _with_several(table: _Table, texts: tuple[str, ...], by_count: list[str]) -> Examples:
    """Examples whose texts have several labels, which are numbered from the rarest on."""
    labels = table.labels
    by_text = labels.groupby(level=0, sort=False)
    table.rows["label"] = by_text.agg(SEPARATOR.join)
    several = (by_text.size() > 1).sum()
    if several < 2:
        raise table.error(
            f" has {plural(several, 'text')} with several labels, separated by '{SEPARATOR}'. Leave"
            " out the kind: with one label each, they are a classification."
        )
    frequent = by_count[-1]
    without = len(texts) - (labels == frequent).sum()
    if without < probes.FOLDS:
        raise table.error(
            f" has {plural(without, 'text')} without the label '{frequent}'; each label needs at "
            f"least {probes.FOLDS} texts without it, too. Remove it."
        )
    numbers = labels.map({label: i for i, label in enumerate(by_count)})
    positions = table.rows.index.get_indexer(labels.index)
    judgements = tuple((text, n, 1.0) for text, n in zip(positions.tolist(), numbers, strict=True))
    rarest = numbers.groupby(level=0, sort=False).min()
    return Examples(texts, tuple(rarest), judgements=judgements)


def _pairs(table: _Table) -> Examples:
    table.check(
        table.rows["label"],
        lambda value: str(value).lower() in (*_TRUE, *_FALSE),
        "not 1 or 0; write 1 if the texts belong together, else 0.",
    )
    labels = tuple(int(value.lower() in _TRUE) for value in table.rows["label"])
    if len(set(labels)) < 2:
        raise table.error(
            f" has only pairs with the label {labels[0]}; a task needs pairs of both labels."
        )
    return Examples(table.texts(table.rows["first"], table.rows["second"]), labels)


def _graded(table: _Table) -> Examples:
    """Grades of texts, or of pairs of them."""
    fewest = _FEWEST[table.kind]
    grades = table.numbers(table.rows["grade"])
    distinct = len(set(grades))
    if distinct < 2 or len(grades) < fewest:
        raise table.error(
            f" has {plural(len(grades), 'row')} and {plural(distinct, 'different grade')}; a task"
            f" needs at least {fewest} rows and two grades."
        )
    texts = table.rows.drop(columns="grade")
    return Examples(table.texts(*(texts[role] for role in texts)), grades)


def _judged(table: _Table) -> Examples:
    """Queries, documents and judgements; each query has a relevant document."""
    documents = pd.Index(table.texts(table.rows["document"])).unique()
    # a row without a query is a document without a judgement
    judged = table.rows[~table.rows["query"].isin([None, ""])]
    if judged.empty:
        raise table.error(" has no query; each row needs a query and a document.")
    if table.kind == "retrieval" and len(documents) < 2:
        raise table.error(" has only one document; a retrieval needs at least two.")
    queries = pd.Index(table.texts(judged["query"])).unique()
    relevances = pd.Series(1.0, judged.index)
    if "relevance" in judged:
        relevances = pd.Series(table.numbers(judged["relevance"]), judged.index)
        table.check(
            judged["relevance"],
            lambda value: float(str(value)) >= 0,
            "a relevance below 0. Write 0 for a document that is not relevant.",
        )
    by_pair = relevances.groupby([judged["query"], judged["document"]], sort=False).last()
    if table.kind == "reranking" and by_pair.all():
        raise table.error(
            " has no candidate of relevance 0, so every order is equally good. Use kind=retrieval"
            " instead."
        )
    for query, best in by_pair.groupby(level="query", sort=False).max().items():
        if best == 0:
            raise table.error(
                f" has no relevant document for the query '{query:.60}'. Add one or remove the"
                " query."
            )
    judgements = zip(
        queries.get_indexer(by_pair.index.get_level_values("query")).tolist(),
        documents.get_indexer(by_pair.index.get_level_values("document")).tolist(),
        by_pair.tolist(),
        strict=True,
    )
    return Examples((*queries, *documents), judgements=tuple(judgements), queries=len(queries))


_EXAMPLES: Mapping[str, Callable[[_Table], Examples]] = {
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


def _examine(table: _Table) -> None:
    """Warn of rows of a task; each warning names an example.

    Raises
    ------
    ConfigError
        If two columns are equal, all rows of a label have one text, or no text of a column has any
        content.
    """
    # without differences in case and white space
    rows = table.rows.map(lambda value: " ".join(str(value or "").split()).casefold())
    for role, other in combinations(table.columns, 2):
        if rows[role].equals(rows[other]):
            raise table.error(
                f": the columns '{table.columns[role]}' ({role}) and '{table.columns[other]}'"
                f" ({other}) are equal in all {plural(len(rows), 'row')}, so a score would say"
                f" nothing. Name another column: {other}=COLUMN"
            )
    _check_texts(table)
    for role in rows.columns.intersection(["label", "grade"]):
        counts = table.rows[role].value_counts()
        if counts.iloc[0] > _MOST * len(rows):
            table.warnings.append(
                f"{counts.iloc[0]:,} of {plural(len(rows), 'row')} have the same"
                f" '{table.columns[role]}', {counts.index[0]}: the score says little about the"
                " others."
            )
    if "label" in rows and "text" in rows:
        rows["label"] = table.rows["label"]
        _check_labels(table, rows)
    elif "first" in rows:
        texts = rows[["first", "second"]]
        rows = rows.assign(first=texts.min(axis=1), second=texts.max(axis=1))
    elif "query" in rows:
        rows = rows[rows["query"] != ""]
    _check_contradictions(table, rows)


def _check_texts(table: _Table) -> None:
    """Warn of each column that has texts without content."""
    for role in table.rows.columns.intersection([*_TEXTS]):
        column = table.columns[role]
        texts = table.rows[role].map(lambda value: str(value or ""))
        texts = texts[texts != ""]
        is_empty = [len(text.strip()) < 2 or not any(map(str.isalnum, text)) for text in texts]
        empty = texts[is_empty]
        if empty.empty:
            continue
        example = f"{empty.index[0]}: {empty.iloc[0][:_SHOWN]!r}"
        if len(empty) == len(texts):
            raise table.error(
                f": no text of the column '{column}' has a letter or digit and is longer than one "
                f"character ({example}). Name the right column: {role}=COLUMN"
            )
        table.warnings.append(
            f"{len(empty):,} of {plural(len(texts), 'text')} of the column '{column}' are one "
            f"character or have no letter and no digit ({example}); their vectors say little."
        )


def _writing(label: str) -> str:
    """A label without what its writing alone decides: case, Unicode's forms, invisible characters,
    and whether a number is written as 1, 1.0 or true.
    """
    visible = (sign for sign in label if unicodedata.category(sign) != "Cf")
    composed = unicodedata.normalize("NFC", "".join(visible))
    text = " ".join(composed.split()).casefold()
    text = {"true": "1", "false": "0"}.get(text, text)
    if _is_number(text):
        return str(float(text))
    return text


def _check_labels(table: _Table, rows: pd.DataFrame) -> None:
    """Warn of many labels, of copies, and of labels that differ in their writing alone, which are
    different labels.
    """
    column = table.columns["label"]
    texts = rows.groupby("text")["label"]
    counts = table.labels.value_counts(sort=False)
    labels_of_text = texts.transform("nunique")
    labelled = rows.loc[table.labels.index, "text"]
    texts_of_label = labelled.groupby(table.labels.array).nunique()
    if (labels_of_text == 1).all() and (texts_of_label == 1).all():
        raise table.error(
            ": all rows of a label have the same text, so a score would say nothing. Is "
            f"'{table.columns['text']}' the column of the texts? Name it: text=COLUMN"
        )
    if len(table.labels) == len(rows) and _looks_several(table.labels):
        count = rows["label"].str.contains(SEPARATOR).sum()
        table.warnings.append(
            f"{count:,} of {plural(len(rows), 'label')} contain '{SEPARATOR}' and count as one label"
            f" each. {_PROPOSED}."
        )
    if len(table.labels) < _FEW * len(counts):
        table.warnings.append(
            f"'{column}' has {len(counts):,} labels for {plural(len(rows), 'text')}, "
            f"fewer than {_FEW} texts each on average. Is it the right column?"
        )
    copies = rows[(texts.transform("size") > 1) & (labels_of_text == 1)]
    if len(copies):
        text = copies["text"].iloc[0]
        places = " and ".join(copies.index[copies["text"] == text][:2])
        table.warnings.append(
            f"{plural(copies['text'].nunique(), 'text')} with one label in several rows, "
            f"{len(copies):,} rows in all ({places}: {text[:_SHOWN]!r}). Remove the copies: they "
            "raise the score."
        )
    for _, alike in counts.groupby(counts.index.map(_writing), sort=False):
        if len(alike) > 1:
            listing = " and ".join(f"{label!a} ({count:,})" for label, count in alike.items())
            table.warnings.append(
                f"'{column}' has labels that differ in their writing alone: {listing}. They count"
                " as different labels; write them alike if they are one."
            )


def _check_contradictions(table: _Table, rows: pd.DataFrame) -> None:
    """Warn where rows with equal texts have different labels, grades or relevances."""
    texts = list(rows.columns.intersection([*_TEXTS]))
    for role in rows.columns.difference(texts):
        contradictory = rows[rows.groupby(texts)[role].transform("nunique") > 1]
        if contradictory.empty:
            continue
        example = contradictory.iloc[0]
        equal_texts = contradictory[(contradictory[texts] == example[texts]).all(axis=1)]
        other = equal_texts.drop_duplicates(role).iloc[1]
        unit = {1: "text", 2: "pair"}[len(texts)]
        table.warnings.append(
            f"{plural(contradictory.groupby(texts).ngroups, unit)} with different values of "
            f"'{table.columns[role]}' in several rows ({example.name} has {example[role]}, "
            f"{other.name} has {other[role]}: {example[texts[0]][:_SHOWN]!r})."
        )
