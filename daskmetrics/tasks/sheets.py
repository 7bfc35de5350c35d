"""From the rows of a user's file to the examples of a task of each kind; mistakes are told with their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import Any

from daskmetrics.errors import ConfigError
from daskmetrics.tasks.examples import Examples
from daskmetrics.tasks.probes import FOLDS
from daskmetrics.tasks.tables import Table

TRUE, FALSE = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


def examples_of(table: Table, kind: str, columns: Mapping[str, str]) -> Examples:
    """What a table holds as examples of this kind.

    Parameters
    ----------
    table : Table
    kind : str
    columns : mapping
        Of roles to columns; all that the kind needs.

    Raises
    ------
    ConfigError
        If a row does not fit, or there is too little to score.
    """
    return _READERS[kind](_Sheet(table, columns))


class _Sheet:
    """A table read by roles, its mistakes told with their place."""

    def __init__(self, table: Table, columns: Mapping[str, str]) -> None:
        self.table, self.columns = table, columns

    def values(self, role: str) -> Iterator[tuple[str, Any]]:
        """Place and value of each row."""
        column = self.columns[role]
        for place, row in zip(self.table.places, self.table.rows, strict=True):
            yield f"'{self.table.path}', {place}, column '{column}'", row.get(column)

    def texts(self, role: str) -> tuple[str, ...]:
        return tuple(_text(place, value) for place, value in self.values(role))

    def numbers(self, role: str) -> tuple[float, ...]:
        return tuple(_number(place, value) for place, value in self.values(role))

    def refuse(self, what: str) -> ConfigError:
        return ConfigError(f"'{self.table.path}' {what}")


def _text(place: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{place}: a text was wanted, got {value!r}. Fill it in or remove the row.")
    return value


def _number(place: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{place}: a number was wanted, got {value!r}.") from None
    if not -1e300 < number < 1e300:
        raise ConfigError(f"{place}: a finite number was wanted, got {value!r}.")
    return number


def _truth(place: str, value: Any) -> int:
    word = str(value).strip().lower()
    if word not in (*TRUE, *FALSE):
        raise ConfigError(f"{place}: 1 (they belong together) or 0 was wanted, got {value!r}.")
    return int(word in TRUE)


def _labelled(sheet: _Sheet, least: int) -> Examples:
    texts = sheet.texts("text")
    labels = []
    for place, value in sheet.values("label"):
        if value is None or not str(value).strip():
            raise ConfigError(f"{place}: a label was wanted, got {value!r}. Fill it in or remove the row.")
        labels.append(str(value).strip())
    counts = Counter(labels)
    if len(counts) < 2:
        raise sheet.refuse(f"has one label only, '{labels[0]}'; at least two are needed to tell apart.")
    rare, times = min(counts.items(), key=lambda item: (item[1], item[0]))
    if times < least:
        raise sheet.refuse(
            f"has {times} text{'s' * (times != 1)} with the label '{rare}', and {len(counts)} labels in all; {least} "
            "of each are needed. Merge or remove rare labels, or name the right column: label=COLUMN"
        )
    index = {label: i for i, label in enumerate(sorted(counts))}
    return Examples(texts, tuple(index[label] for label in labels))


def _classification(sheet: _Sheet) -> Examples:
    return _labelled(sheet, least=FOLDS)


def _clustering(sheet: _Sheet) -> Examples:
    return _labelled(sheet, least=2)


def _pairs(sheet: _Sheet) -> Examples:
    labels = tuple(_truth(place, value) for place, value in sheet.values("label"))
    if len(set(labels)) < 2:
        raise sheet.refuse(
            f"has pairs of label {labels[0]} only; some that belong together and some that do not are needed."
        )
    return Examples(sheet.texts("first") + sheet.texts("second"), labels)


def _graded_pairs(sheet: _Sheet) -> Examples:
    grades = sheet.numbers("grade")
    if len(set(grades)) < 2 or len(grades) < 4:
        raise sheet.refuse(
            f"has {len(grades)} pairs and {len(set(grades))} different grades; at least four pairs and two are needed."
        )
    return Examples(sheet.texts("first") + sheet.texts("second"), grades)


def _search(sheet: _Sheet) -> Examples:
    documents = {text: i for i, text in enumerate(dict.fromkeys(sheet.texts("document")))}
    queries: dict[str, int] = {}
    judged: dict[tuple[int, int], float] = {}
    worths = sheet.values("relevance") if "relevance" in sheet.columns else repeat(("", 1))
    for (place, query), (where, worth), document in zip(
        sheet.values("query"), worths, sheet.texts("document"), strict=False
    ):
        if query is not None and query != "":  # a row without one is a document that nobody judged
            row = queries.setdefault(_text(place, query), len(queries))
            judged[row, documents[document]] = _number(where, worth)
    if not queries:
        raise sheet.refuse("has no query; each row needs a query and a document.")
    texts = tuple(queries) + tuple(documents)
    found = tuple((query, document, worth) for (query, document), worth in judged.items())
    return Examples(texts, judged=found, queries=len(queries))


def _retrieval(sheet: _Sheet) -> Examples:
    examples = _search(sheet)
    count = len(examples.texts) - examples.queries
    if count < 2:
        raise sheet.refuse("has one document only; at least two are needed to search among.")
    return _answered(sheet, examples)


def _reranking(sheet: _Sheet) -> Examples:
    examples = _search(sheet)
    if all(worth > 0 for _, _, worth in examples.judged):
        raise sheet.refuse(
            "has no candidate of relevance 0, so that every order is as good. Say kind=retrieval instead."
        )
    return _answered(sheet, examples)


def _answered(sheet: _Sheet, examples: Examples) -> Examples:
    answered = {query for query, _, worth in examples.judged if worth > 0}
    if len(answered) < examples.queries:
        lost = next(text for i, text in enumerate(examples.texts[: examples.queries]) if i not in answered)
        raise sheet.refuse(f"has no relevant document for the query '{lost[:60]}'. Add one or remove the query.")
    return examples


_READERS: Mapping[str, Callable[[_Sheet], Examples]] = MappingProxyType(
    {
        "classification": _classification,
        "clustering": _clustering,
        "pair_classification": _pairs,
        "sts": _graded_pairs,
        "retrieval": _retrieval,
        "reranking": _reranking,
    }
)
