"""Results as a table, in memory and in files; aggregates and causes of failure."""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import tempfile
import warnings
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from daskmetrics.core.content import is_json
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import atomic_file
from daskmetrics.core.serialization import as_json, plain
from daskmetrics.core.table import Table, spreadsheet_frame
from daskmetrics.core.text import listed, plural, shortened
from daskmetrics.domain.events import AttemptFailed, Event
from daskmetrics.domain.failures import cause
from daskmetrics.domain.retry import Fault
from daskmetrics.execution.map.source import ItemResult

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".parquet", ".csv", ".jsonl", ".json")
STATISTICS = ("count", "mean", "std", "min", "median", "p95", "max")
EXACT = 2**53  #: integers up to this are floats without rounding
SHOWN_ITEMS = 8  # of each cause of failure
Columns: TypeAlias = dict[str, list[Any]]
_ATTRIBUTES = ("status", "reason", "attempts", "seconds", "worker", "key")
_INDEX = attrgetter("index")


def frame(results: Sequence[ItemResult]) -> pd.DataFrame:
    """One row per item: its value, its status, and its fields.

    A field with the name of another column gets the prefix ``value.``, also ``{"b": ...}`` of
    ``a`` beside a field ``a.b``; lists become JSON text.
    """
    import pandas as pd

    rows = [_row(result) for result in sorted(results, key=_INDEX)]
    table = pd.DataFrame(rows)
    for name in table.select_dtypes("float"):
        # where items lack a field, its integers have become floats
        values = pd.Series([row.get(str(name)) for row in rows], dtype=object)
        if set(map(type, values.dropna())) == {int}:
            table[name] = values.astype("Int64")
        elif table[name].abs().max() > EXACT:
            table[name] = values
    return table


def _row(result: ItemResult) -> dict[str, Any]:
    item = result.item
    if not isinstance(item, int | float | str):
        item = result.name
        if result.item is not None and is_json(result.item):
            item = json.dumps(result.item)
    row = {"index": result.index, "item": item}
    row |= {name: getattr(result, name) for name in _ATTRIBUTES}
    return row | _fields(result)


def _fields(result: ItemResult) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in flatten(result.value):
        while name in ("index", "item", *_ATTRIBUTES) or name in fields:
            name = f"value.{name}"
        if isinstance(value, list):
            value = json.dumps(value)
        fields[name] = value
    return fields


@dataclass
class Numbers:
    """A field of items, as far as statistics need it."""

    values: array[float] = dataclass_field(default_factory=lambda: array("d"))
    is_numeric: bool = True  # and within the range of floats; otherwise no value is held
    is_too_large: bool = False  # an integer has more than 64 bits

    def add(self, value: object) -> None:
        """Add the value of an item."""
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            self.is_too_large = True
        self.is_numeric &= type(value) in (bool, int, float)
        if self.is_numeric:
            try:
                self.values.append(value)  # type: ignore[arg-type]
            except OverflowError:  # beyond the largest float
                self.is_numeric = False
        if not self.is_numeric:
            del self.values[:]


@dataclass
class Successes:
    """What is said of the items that are ok."""

    count: int = 0
    fields: dict[str, Numbers] = dataclass_field(default_factory=dict)

    def add(self, result: ItemResult) -> None:
        """Add an item."""
        self.count += 1
        row = _fields(result)
        if result.seconds is not None:
            row["seconds"] = result.seconds
        for name, value in row.items():
            if name not in self.fields:
                self.fields[name] = Numbers()
            self.fields[name].add(value)


def flatten(value: object, name: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a returned value, with nested names joined by dots.

    Otherwise ``value``.

    >>> list(flatten({"loss": 0.5, "time": {"gpu": 2}})), list(flatten(3))
    ([('loss', 0.5), ('time.gpu', 2)], [('value', 3)])
    """
    if isinstance(value, Mapping):
        for key, content in value.items():
            yield from flatten(content, f"{name}.{key}" if name else key)
    elif value is not None:
        yield name or "value", value


def check_output(path: Path) -> None:
    """Check before the run that results can be written to a path.

    Raises ConfigError if not.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"'{path.name}': the suffix must be one of {', '.join(SUFFIXES)}.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(
            "Parquet needs pyarrow: pip install 'daskmetrics[table]', or write results.csv."
        )
    if path.is_dir():
        raise ConfigError(f"Cannot write results to '{path}': it is a folder. Name another file.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            f"Cannot write results to '{path}': {error.strerror}. Name another file."
        ) from None


def write(results: Sequence[ItemResult], path: str | Path) -> Path:
    """Write results to a file whose suffix gives the format: parquet, csv, json or jsonl.

    An existing file is replaced only when the new one is complete. If a table cannot hold a column,
    such as one with integers of more than 64 bits, the results are written as JSON Lines instead,
    with a warning that names it. In CSV files, texts that a spreadsheet would run get an apostrophe
    in front of them.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    ConfigError
        If the suffix is not supported, needs a library that is not installed, or the file cannot be
        written.
    """
    path = Path(path)
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(results, path)
    # pyarrow's errors are among these
    except (ValueError, TypeError, OverflowError, NotImplementedError) as error:
        other = path.with_name(f"{path.name}.jsonl")
        warnings.warn(
            f"'{path}' cannot hold these results ({error}). They are in '{other}'.", stacklevel=2
        )
        _write(results, other)
        return other
    return path


def _write(results: Sequence[ItemResult], path: Path) -> None:
    if path.suffix in (".parquet", ".csv"):
        table = frame(results)
        objects = {str(name): list(table[name]) for name in table if table[name].dtype == object}
        if names := _beyond_64_bits(objects):
            raise OverflowError(f"integers of more than 64 bits in {listed(names)}")
    else:
        rows = [vars(result) for result in sorted(results, key=_INDEX)]
        rows = [{**row, "item": row["item"] if is_json(row["item"]) else None} for row in rows]
    # where a link of the user leads
    with atomic_file(path.resolve()) as file:
        if path.suffix == ".parquet":
            table.to_parquet(file, index=False)
        elif path.suffix == ".csv":
            spreadsheet_frame(table).to_csv(file, index=False)
        elif path.suffix == ".json":
            file.write(as_json(rows).encode())
        else:
            file.writelines(json.dumps(plain(row)).encode() + b"\n" for row in rows)


def _beyond_64_bits(columns: Columns) -> list[str]:
    names = []
    for name, column in columns.items():
        integers = [value for value in column if isinstance(value, int)]
        if integers and not -(2**63) <= min(integers) <= max(integers) < 2**63:
            names.append(name)
    return names


def aggregates(results: Sequence[ItemResult]) -> pd.DataFrame:
    """Statistics of each numeric field and of the duration, over the ok items.

    A row per field whose values are all numbers; ``std`` is that of a sample (n - 1), NaN for one
    number.

    Examples
    --------
    >>> done = [ItemResult("k", i, str(i), i, "ok", value=float(i), seconds=0.1) for i in range(5)]
    >>> aggregates(done).loc["value", "p95"]
    np.float64(3.8)
    """
    import pandas as pd

    # in the order of the items, in which a map does not yield them
    succeeded = sorted((result for result in results if result.ok), key=_INDEX)
    successes = Successes()
    for result in succeeded:
        successes.add(result)
    rows = _statistics(successes.fields)
    return pd.DataFrame.from_dict(rows, orient="index", columns=STATISTICS)


def _statistics(fields: Mapping[str, Numbers]) -> dict[str, Sequence[float]]:
    """The `STATISTICS` of each field of numbers.

    Without numpy, whose import takes as long as those of 100,000 results.
    """
    rows: dict[str, Sequence[float]] = {}
    for name, column in fields.items():
        if column.is_numeric and column.values:
            numbers = sorted(column.values)
            mean = math.inf  # where the sum is beyond the largest float
            with suppress(OverflowError):
                mean = statistics.fmean(numbers)
            spread = math.nan
            median = p95 = mean
            if len(numbers) > 1:
                spread = math.dist(numbers, [mean] * len(numbers)) / math.sqrt(len(numbers) - 1)
                twentieths = statistics.quantiles(numbers, n=20, method="inclusive")
                median, p95 = twentieths[9], twentieths[18]
            rows[name] = (len(numbers), mean, spread, numbers[0], median, p95, numbers[-1])
    if "seconds" in rows:
        rows["seconds per item"] = rows.pop("seconds")  # behind the fields
    return rows


def causes(results: Iterable[ItemResult]) -> pd.DataFrame:
    """Causes of failure, the most frequent one first.

    Each with its status, the reason and the names of the items. Reasons that differ only in numbers
    and quoted names are the same.

    Examples
    --------
    >>> failed = [ItemResult("k", i, str(i), i, "error", reason=f"ValueError: no {i}") for i in (3, 14)]
    >>> causes(failed)
      status            reason    items
    0  error  ValueError: no 3  [3, 14]
    """
    import pandas as pd

    return pd.DataFrame(_causes(results), columns=["status", "reason", "items"])


def _causes(results: Iterable[ItemResult]) -> list[tuple[str, str, list[str]]]:
    groups = defaultdict[tuple[str, str], list[ItemResult]](list)
    for result in results:
        if not result.ok:
            groups[result.status, cause(result.reason or "")].append(result)
    return [
        (group[0].status, group[0].reason or "", [result.name for result in group])
        for group in sorted(groups.values(), key=len, reverse=True)
    ]


def deaths(entries: Iterable[Event]) -> int:
    """How many workers died while they ran a batch, also those killed for their memory."""
    faults = (Fault.DEATH.value, Fault.MEMORY.value)
    return sum(isinstance(entry, AttemptFailed) and entry.fault in faults for entry in entries)


@dataclass
class Summary:
    """What is said of results, which may be read one by one."""

    successes: Successes = dataclass_field(default_factory=Successes)
    failed: list[ItemResult] = dataclass_field(default_factory=list)
    repeated: int = 0  # attempts at finished items that failed

    @classmethod
    def of(cls, results: Iterable[ItemResult]) -> Summary:
        """That of these results."""
        summary = cls()
        for result in results:
            summary.add(result)
        return summary

    def add(self, result: ItemResult) -> None:
        """Add an item."""
        self.repeated += result.attempts - 1
        if result.ok:
            self.successes.add(result)
        else:
            self.failed.append(result)

    def text(self, total: int, died: int = 0) -> str:
        """Aggregates, counts and causes of failure.

        Of so many items and workers that died.
        """
        succeeded = self.successes.count
        counts = f"{total} items: {succeeded} ok, {len(self.failed)} failed"
        if open_items := total - succeeded - len(self.failed):
            counts += f", {open_items} to do"
        troubles = []
        if self.repeated:
            troubles.append(f"{plural(self.repeated, 'attempt')} repeated")
        if died:
            troubles.append(f"{plural(died)} died")
        if troubles:
            counts += f"; {', '.join(troubles)}"
        lines = [f"{counts}."]
        fields = self.successes.fields
        if too_large := [name for name, column in fields.items() if column.is_too_large]:
            lines.append(f"  no statistics of {listed(too_large)}: integers of more than 64 bits")
        shown = {name: column for name, column in fields.items() if not column.is_too_large}
        for status, reason, names in _causes(self.failed):
            lines.append(f"  {len(names)} x {status}: {reason}")
            lines.append(f"      items {shortened(names, SHOWN_ITEMS)}")
        rows = [
            (name, str(count), *(f"{value:.4g}".replace("nan", "") for value in values))
            for name, (count, *values) in _statistics(shown).items()
        ]
        if not rows:
            return "\n".join(lines)
        return Table(("field", *STATISTICS), rows, notes=tuple(lines)).as_text()
