"""Results as a table, in memory and in files; aggregates and causes of failure."""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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


def add_rows(columns: Columns, results: Iterable[ItemResult]) -> Columns:
    """Add position, duration and fields of items to the columns.

    None where an item has no such field.
    """
    for result in results:
        row = {"index": result.index, "seconds": result.seconds, **_fields(result)}
        length = len(columns.get("index", ()))
        for name in [name for name in row if name not in columns]:
            columns[name] = [None] * length
        for name, column in columns.items():
            column.append(row.get(name))
    return columns


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
    rows = _statistics(add_rows({}, succeeded))
    return pd.DataFrame.from_dict(rows, orient="index", columns=STATISTICS)


def _statistics(columns: Columns) -> dict[str, Sequence[float]]:
    """The `STATISTICS` of each column of numbers.

    Without numpy, whose import takes as long as those of 100,000 results.
    """
    rows: dict[str, Sequence[float]] = {}
    for name, column in columns.items():
        if name == "index":
            continue
        values = [value for value in column if value is not None]
        if values and {bool, int, float}.issuperset(map(type, values)):
            numbers = sorted(map(float, values))
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


def repeats(results: Iterable[ItemResult]) -> int:
    """How many attempts at finished items failed and were repeated."""
    return sum(result.attempts - 1 for result in results)


def deaths(entries: Iterable[Event]) -> int:
    """How many workers died while they ran a batch, also those killed for their memory."""
    faults = (Fault.DEATH.value, Fault.MEMORY.value)
    return sum(isinstance(entry, AttemptFailed) and entry.fault in faults for entry in entries)


def summary_text(results: Sequence[ItemResult], died: int = 0) -> str:
    """Aggregates, counts and causes of failure; ``died`` is the number of workers that did."""
    columns = add_rows({}, (result for result in results if result.ok))
    failed = [result for result in results if not result.ok]
    return text_of(columns, failed, len(results), repeats(results), died)


def text_of(
    columns: Columns, failed: Sequence[ItemResult], total: int, repeated: int = 0, died: int = 0
) -> str:
    """The text of a summary.

    From the columns of the items that are ok, the results of the others, and the numbers of items,
    of attempts that were repeated, and of workers that died.
    """
    succeeded = len(columns.get("index", ()))
    counts = f"{total} items: {succeeded} ok, {len(failed)} failed"
    if open_items := total - succeeded - len(failed):
        counts += f", {open_items} to do"
    troubles = []
    if repeated:
        troubles.append(f"{plural(repeated, 'attempt')} repeated")
    if died:
        troubles.append(f"{plural(died)} died")
    if troubles:
        counts += f"; {', '.join(troubles)}"
    lines = [f"{counts}."]
    too_large = _beyond_64_bits(columns)
    if too_large:
        lines.append(f"  no statistics of {listed(too_large)}: integers of more than 64 bits")
    for status, reason, names in _causes(failed):
        lines.append(f"  {len(names)} x {status}: {reason}")
        lines.append(f"      items {shortened(names, SHOWN_ITEMS)}")
    shown = {name: column for name, column in columns.items() if name not in too_large}
    rows = [
        (name, str(count), *(f"{value:.4g}".replace("nan", "") for value in values))
        for name, (count, *values) in _statistics(shown).items()
    ]
    if not rows:
        return "\n".join(lines)
    return Table(("field", *STATISTICS), rows, notes=tuple(lines)).as_text()
