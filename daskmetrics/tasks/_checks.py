"""What is wrong with a user's labelled texts: an error where a score would say nothing, else warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

from daskmetrics.core._text import plural
from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks._probes import FOLDS
from daskmetrics.tasks._tables import TextTable

_TEXTS = ("text", "first", "second", "query", "document")  # roles of columns that are embedded
_SHOWN = 40  # characters of a text in a message
_FEW = 2 * FOLDS  # texts per label on average, below which the labels may be another column's


def warnings_of(table: TextTable, kind: str, columns: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about the rows of a task of this kind, whose columns are given by role; each names an example.

    Raises
    ------
    ConfigError
        If a column has two roles, two columns are equal, each label has only one text, or no text has any content.
    """
    _check_columns(table, columns)
    found = [*_near_empty(table, columns)]
    if kind in ("classification", "clustering"):
        found += _of_labels(table, columns, kind)
    elif kind in ("pair_classification", "sts"):
        found += _of_pairs(table, columns, kind)
    else:
        found += _of_judgements(table, columns)
    return tuple(found)


def _check_columns(table: TextTable, columns: Mapping[str, str]) -> None:
    for one, other in combinations(columns, 2):
        if columns[one] == columns[other]:
            raise ConfigError(
                f"'{table.path}': the column '{columns[one]}' is used as {one} and as {other}. Name another column: "
                f"{other}=COLUMN"
            )
        if all(_plain(row.get(columns[one])) == _plain(row.get(columns[other])) for row in table.rows):
            raise ConfigError(
                f"'{table.path}': the columns '{columns[one]}' ({one}) and '{columns[other]}' ({other}) are equal in "
                f"all {plural(len(table.rows), 'row')}, so a score would say nothing. Name another column: "
                f"{other}=COLUMN"
            )


def _near_empty(table: TextTable, columns: Mapping[str, str]) -> Iterator[str]:
    for role in _TEXTS:
        if role not in columns:
            continue
        values = [(place, value) for place, value in _column(table, columns[role]) if value]
        empty = [(place, value) for place, value in values if not _has_content(value)]
        what = f"the column '{columns[role]}'"
        if empty and len(empty) == len(values):
            raise ConfigError(
                f"'{table.path}': no text of {what} has a letter or digit and is longer than one character "
                f"({_example(*empty[0])}). Name the right column: {role}=COLUMN"
            )
        if empty:
            yield (
                f"{len(empty):,} of {plural(len(values), 'text')} of {what} are one character or have no letter and no "
                f"digit ({_example(*empty[0])}); their vectors say little."
            )


def _of_labels(table: TextTable, columns: Mapping[str, str], kind: str) -> Iterator[str]:
    rows: dict[str, list[tuple[str, str]]] = defaultdict(list)  # place and label of the rows of each text
    texts = _column(table, columns["text"])
    labels = [str(row.get(columns["label"])).strip() for row in table.rows]
    for (place, text), label in zip(texts, labels, strict=True):
        rows[_plain(text)].append((place, label))
    if len(rows) == len(set(labels)) and all(len({label for _, label in each}) == 1 for each in rows.values()):
        raise ConfigError(
            f"'{table.path}': all rows of a label have the same text, so a score would say nothing. Is "
            f"'{columns['text']}' the column of the texts? Name it: text=COLUMN"
        )
    if len(labels) < _FEW * len(set(labels)):
        yield (
            f"'{columns['label']}' has {len(set(labels)):,} labels for {plural(len(labels), 'text')}, fewer than "
            f"{_FEW} texts each on average. Is it the right column?"
        )
    repeated = {text: placed for text, placed in rows.items() if len(placed) > 1}
    equal = {text: placed for text, placed in repeated.items() if len({label for _, label in placed}) == 1}
    different = {text: placed for text, placed in repeated.items() if text not in equal}
    if equal:
        example = next(iter(equal))
        places = " and ".join(place for place, _ in equal[example][:2])
        harm = "are in training and test folds at once, which raises the score" if kind == "classification" else "count"
        yield (
            f"{plural(len(equal), 'text')} with one label {'is' if len(equal) == 1 else 'are'} in several rows, "
            f"{sum(map(len, equal.values())):,} rows in all ({_example(places, example)}): copies {harm}. Remove the "
            "copies."
        )
    if different:
        example = next(iter(different))
        both = (different[example][0], _differing(different[example]))
        places = " and ".join(f"{place} is {label!r}" for place, label in both)
        yield (
            f"{plural(len(different), 'text')} {'has' if len(different) == 1 else 'have'} different labels in several "
            f"rows ({_example(places, example)}): no vector can be right for both."
        )


def _differing(rows: list[tuple[str, str]]) -> tuple[str, str]:
    """The first of some rows (place and label) whose label is not that of the first row."""
    return next(row for row in rows if row[1] != rows[0][1])


def _of_pairs(table: TextTable, columns: Mapping[str, str], kind: str) -> Iterator[str]:
    value = columns["label" if kind == "pair_classification" else "grade"]
    pairs = [
        (place, tuple(sorted((_plain(row.get(columns["first"])), _plain(row.get(columns["second"]))))))
        for place, row in zip(table.places, table.rows, strict=True)
    ]
    yield from _contradictions(pairs, [_plain(row.get(value)) for row in table.rows], "pair", value)
    grades = [_plain(row.get(value)) for row in table.rows]
    if kind == "sts" and len(grades) > 10 and _counts_rows(grades):
        yield f"'{value}' counts the rows ({grades[0]}, {grades[1]}, {grades[2]}, ...). Is it the right column?"


def _of_judgements(table: TextTable, columns: Mapping[str, str]) -> Iterator[str]:
    rows = [
        (place, _plain(row.get(columns["query"])), _plain(row.get(columns["document"])), row)
        for place, row in zip(table.places, table.rows, strict=True)
        if row.get(columns["query"])
    ]
    same = [(place, query) for place, query, document, _ in rows if query == document]
    if same:
        yield (
            f"{len(same):,} of {plural(len(rows), 'row')} have the query as document ({_example(*same[0])}): every arm "
            "finds it."
        )
    if relevance := columns.get("relevance"):
        pairs = [(place, (query, document)) for place, query, document, _ in rows]
        values = [_plain(row.get(relevance)) for *_, row in rows]
        yield from _contradictions(pairs, values, "judgement", relevance, "; the last one counts")


def _contradictions(
    pairs: Iterable[tuple[str, tuple[str, ...]]], values: Iterable[str], what: str, column: str, effect: str = ""
) -> Iterator[str]:
    """A warning where equal pairs of texts have different values."""
    known: dict[tuple[str, ...], tuple[str, str]] = {}
    found: dict[tuple[str, ...], str] = {}
    for (place, pair), value in zip(pairs, values, strict=True):
        first, before = known.setdefault(pair, (place, value))
        if value != before:
            found.setdefault(pair, f"{first} has {before}, {place} has {value}")
    if found:
        example = _example(next(iter(found.values())), next(iter(found))[0])
        yield f"{plural(len(found), what)} with different values of '{column}' in several rows ({example}){effect}."


def _counts_rows(values: list[str]) -> bool:
    """Whether the values are consecutive whole numbers, as an index is."""
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        return False
    return all(after - before == 1 for before, after in pairwise(numbers))


def _column(table: TextTable, column: str) -> list[tuple[str, str]]:
    """The place and the text of each row."""
    return [(place, str(row.get(column) or "")) for place, row in zip(table.places, table.rows, strict=True)]


def _plain(value: Any) -> str:
    """A value without differences in case and white space.

    >>> _plain(" A  b ")
    'a b'
    """
    return " ".join(str("" if value is None else value).split()).casefold()


def _has_content(text: str) -> bool:
    return len(text.strip()) > 1 and any(character.isalnum() for character in text)


def _example(place: str, text: str) -> str:
    """A place and the beginning of its text.

    >>> _example("line 7", "short")
    "line 7: 'short'"
    """
    return f"{place}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'!r}"
