"""What is wrong with a user's labelled texts: an error where a score would say nothing, else
warnings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise

import pandas as pd

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.text import plural
from daskmetrics.tasks._probes import FOLDS
from daskmetrics.tasks.tables import TextTable

_TEXTS = ("text", "first", "second", "query", "document")  # roles of columns that are embedded
_SHOWN = 40  # characters of a text in a message
_FEW = 2 * FOLDS  # texts per label on average, below which the labels may be another column's


def warnings_of(table: TextTable, kind: str, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about the rows of a task of this kind, whose columns are given by role; each names
    an example.

    Raises
    ------
    ConfigError
        If a column has two roles, two columns are equal, each label has only one text, or no text
        has any content.
    """
    rows = pd.DataFrame({"place": table.places})
    for role, column in columns.items():
        rows[role] = [_plain(row.get(column)) for row in table.rows]
    _check_columns(table, rows, columns)
    warnings = [*_near_empty(table, columns)]
    if kind in ("classification", "clustering"):
        _check_labels(table, rows, columns)
        warnings += _label_warnings(table, rows, columns, kind)
    elif kind in ("pair_classification", "sts"):
        warnings += _pair_warnings(rows, columns, kind)
    else:
        warnings += _judgement_warnings(rows, columns)
    return tuple(warnings)


def _check_columns(table: TextTable, rows: pd.DataFrame, columns: Mapping[str, str]) -> None:
    for role, other in combinations(columns, 2):
        if columns[role] == columns[other]:
            raise ConfigError(
                f"'{table.path}': the column '{columns[role]}' is used as {role} and as {other}. "
                f"Name another column: {other}=COLUMN"
            )
        if rows[role].equals(rows[other]):
            raise ConfigError(
                f"'{table.path}': the columns '{columns[role]}' ({role}) and '{columns[other]}' "
                f"({other}) are equal in all {plural(len(rows), 'row')}, so a score would say "
                f"nothing. Name another column: {other}=COLUMN"
            )


def _near_empty(table: TextTable, columns: Mapping[str, str]) -> Iterator[str]:
    """A warning for each column that has texts without content."""
    for role in _TEXTS:
        if role not in columns:
            continue
        column = columns[role]
        values = (str(row.get(column) or "") for row in table.rows)
        texts = [
            (position, text) for position, text in zip(table.places, values, strict=True) if text
        ]
        near_empty = [
            (position, text)
            for position, text in texts
            if len(text.strip()) < 2 or not any(map(str.isalnum, text))
        ]
        if not near_empty:
            continue
        example = _example(*near_empty[0])
        if len(near_empty) == len(texts):
            raise ConfigError(
                f"'{table.path}': no text of the column '{column}' has a letter or digit and is "
                f"longer than one character ({example}). Name the right column: {role}=COLUMN"
            )
        yield (
            f"{len(near_empty):,} of {plural(len(texts), 'text')} of the column '{column}' are one "
            f"character or have no letter and no digit ({example}); their vectors say little."
        )


def _check_labels(table: TextTable, rows: pd.DataFrame, columns: Mapping[str, str]) -> None:
    texts = rows.groupby("text")["label"]
    if len(texts) == rows["label"].nunique() and (texts.nunique() == 1).all():
        raise ConfigError(
            f"'{table.path}': all rows of a label have the same text, so a score would say nothing. "
            f"Is '{columns['text']}' the column of the texts? Name it: text=COLUMN"
        )


def _label_warnings(
    table: TextTable, rows: pd.DataFrame, columns: Mapping[str, str], kind: str
) -> Iterator[str]:
    label = columns["label"]
    rows = rows.assign(label=[str(row.get(label)).strip() for row in table.rows])
    labels = rows["label"].nunique()
    if len(rows) < _FEW * labels:
        yield (
            f"'{label}' has {labels:,} labels for {plural(len(rows), 'text')}, fewer than {_FEW} "
            "texts each on average. Is it the right column?"
        )
    texts = rows.groupby("text", sort=False)["label"]
    copies = rows[(texts.transform("size") > 1) & (texts.transform("nunique") == 1)]
    if len(copies):
        text = copies["text"].iloc[0]
        places = " and ".join(copies["place"][copies["text"] == text].iloc[:2])
        harm = "count"
        if kind == "classification":
            harm = "are in training and test folds at once, which raises the score"
        yield (
            f"{plural(copies['text'].nunique(), 'text')} with one label in several rows, "
            f"{len(copies):,} rows in all ({_example(places, text)}): copies {harm}. Remove the "
            "copies."
        )
    effect = ": no vector can be right for both"
    yield from _contradictions(rows, ["text"], "label", "text", label, effect)


def _pair_warnings(rows: pd.DataFrame, columns: Mapping[str, str], kind: str) -> Iterator[str]:
    role = "label" if kind == "pair_classification" else "grade"
    texts = rows[["first", "second"]]
    sorted_pairs = rows.assign(first=texts.min(axis=1), second=texts.max(axis=1))
    yield from _contradictions(sorted_pairs, ["first", "second"], role, "pair", columns[role])
    grades = rows[role].tolist()
    if kind == "sts" and len(grades) > 10 and _counts_rows(grades):
        yield (
            f"'{columns[role]}' counts the rows ({', '.join(grades[:3])}, ...). Is it the right "
            "column?"
        )


def _judgement_warnings(rows: pd.DataFrame, columns: Mapping[str, str]) -> Iterator[str]:
    judged = rows[rows["query"] != ""]
    identical = judged[judged["query"] == judged["document"]]
    if len(identical):
        example = _example(identical["place"].iloc[0], identical["query"].iloc[0])
        yield (
            f"{len(identical):,} of {plural(len(judged), 'row')} have the query as document "
            f"({example}): every arm finds it."
        )
    if "relevance" in columns:
        texts = ["query", "document"]
        yield from _contradictions(
            judged, texts, "relevance", "judgement", columns["relevance"], "; the last one counts"
        )


def _contradictions(
    rows: pd.DataFrame, texts: list[str], role: str, unit: str, column: str, effect: str = ""
) -> Iterator[str]:
    """A warning where rows with equal texts have different values of a role."""
    contradictory = rows[rows.groupby(texts)[role].transform("nunique") > 1]
    if contradictory.empty:
        return
    count = len(contradictory[texts].drop_duplicates())
    example = contradictory.iloc[0]
    equal_texts = contradictory[(contradictory[texts] == example[texts]).all(axis=1)]
    other = equal_texts[equal_texts[role] != example[role]].iloc[0]
    values = f"{example['place']} has {example[role]}, {other['place']} has {other[role]}"
    yield (
        f"{plural(count, unit)} with different values of '{column}' in several rows "
        f"({_example(values, example[texts[0]])}){effect}."
    )


def _counts_rows(values: list[str]) -> bool:
    """Whether the values are consecutive whole numbers, as an index is."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return False
    return all(after - before == 1 for before, after in pairwise(numbers))


def _plain(value: object) -> str:
    """A value without differences in case and white space.

    >>> _plain(" A  b ")
    'a b'
    """
    return " ".join(str("" if value is None else value).split()).casefold()


def _example(position: str, text: str) -> str:
    """A position and the beginning of its text.

    >>> _example("line 7", "short")
    "line 7: 'short'"
    """
    shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return f"{position}: {shown!r}"
