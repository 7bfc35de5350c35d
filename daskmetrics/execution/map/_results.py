"""Results as a table and as labelled arrays, in memory and in files; aggregates and causes of failure."""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.core._files import atomic_file
from daskmetrics.core._json import as_json, plain
from daskmetrics.core._table import Table
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.status import FLAGS, Status
from daskmetrics.execution.map._items import is_json
from daskmetrics.execution.map._tracker import ItemResult

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

SUFFIXES = (".parquet", ".csv", ".jsonl", ".json", ".zarr", ".nc")


def frame(results: Sequence[ItemResult]) -> pd.DataFrame:
    """One row per item: its value, its status, and a column for each field of the returned values.

    A field with the name of another column gets the prefix ``value.``; lists become JSON text.
    """
    import pandas as pd

    rows = [_row(result) for result in _in_order(results)]
    return pd.DataFrame(rows, columns=list(dict.fromkeys(name for row in rows for name in row)))


def _in_order(results: Sequence[ItemResult]) -> list[ItemResult]:
    return sorted(results, key=lambda result: result.index)


def _row(result: ItemResult) -> dict[str, Any]:
    item = result.item
    if not isinstance(item, int | float | str):
        item = json.dumps(item) if item is not None and is_json(item) else result.name
    names = ("status", "reason", "attempts", "seconds", "worker", "key")
    row = {"index": result.index, "item": item, **{name: getattr(result, name) for name in names}}
    fields = {name: json.dumps(value) if isinstance(value, list) else value for name, value in flatten(result.value)}
    return {**row, **{f"value.{name}" if name in row else name: value for name, value in fields.items()}}


def dataset(results: Sequence[ItemResult], count: int | None = None) -> xr.Dataset:
    """Numeric fields as arrays over the dimension ``item``, with an explicit status; missing values are NaN.

    Parameters
    ----------
    results : sequence of ItemResult
    count : int, optional
        Length of the dimension; by default up to the last result.
    """
    import xarray as xr

    length = 1 + max((result.index for result in results), default=-1) if count is None else count
    names = np.full(length, "", dtype=object)
    status = np.full(length, Status.MISSING, dtype="int8")
    for result in results:
        names[result.index], status[result.index] = result.name, Status.of(result.status)
    arrays = {}
    for name, values in _numbers(results, "seconds").items():
        column = np.full(length, np.nan)
        column[list(values)] = list(values.values())
        arrays[name] = ("item", column)
    return xr.Dataset(
        {**arrays, "status": ("item", status, FLAGS)}, coords={"item": np.arange(length), "name": ("item", names)}
    )


def check_output(path: Path) -> None:
    """Check before the run that results can be written to a path; raises ConfigError if not."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"Cannot write results to '{path.name}': the suffix must be one of {', '.join(SUFFIXES)}.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("Parquet needs pyarrow: pip install 'daskmetrics[table]', or write results.csv.")
    if path.is_dir() and path.suffix != ".zarr":
        raise ConfigError(f"Cannot write results to '{path}': it is a folder. Name another file.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(f"Cannot write results to '{path}': {error.strerror}. Name another file.") from None


def write(results: Sequence[ItemResult], path: str | Path) -> Path:
    """Write results to a file whose suffix gives the format: a table (parquet, csv, json, jsonl) or arrays (zarr, nc).

    An existing file is replaced only when the new one is complete, except for a Zarr store. If the format cannot hold
    a value, such as an integer of more than 64 bits in a Parquet file, the results are written as JSON Lines instead,
    with a warning.

    Returns
    -------
    Path
        The file that was written.

    Raises
    ------
    ConfigError
        If the suffix is not supported, needs a library that is not installed, or the file cannot be written.
    """
    path = Path(path)
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _write(results, path)
    except (
        ValueError,
        TypeError,
        OverflowError,
        NotImplementedError,
    ) as error:  # pyarrow's are among them
        other = path.with_name(f"{path.name}.jsonl")
        warnings.warn(f"'{path}' cannot hold these results ({error}). They are in '{other}'.", stacklevel=2)
        _write(results, other)
        return other
    return path


def _write(results: Sequence[ItemResult], path: Path) -> None:
    if path.suffix == ".zarr":
        dataset(results).to_zarr(path, mode="w", consolidated=False)
        return
    with atomic_file(path) as file:
        match path.suffix:
            case ".nc":
                file.write(dataset(results).to_netcdf(engine="scipy"))
            case ".parquet":
                frame(results).to_parquet(file, index=False)
            case ".csv":
                frame(results).to_csv(file, index=False)
            case ".json":
                file.write(as_json(list(map(_line, _in_order(results)))).encode())
            case _:
                file.writelines(json.dumps(plain(_line(result))).encode() + b"\n" for result in _in_order(results))


def _line(result: ItemResult) -> dict[str, Any]:
    item = result.item if is_json(result.item) else None
    names = ("status", "value", "reason", "traceback", "attempts", "seconds", "worker", "key")
    outcome = {name: getattr(result, name) for name in names}
    return {"index": result.index, "name": result.name, "item": item, **outcome}


@dataclass(frozen=True)
class Aggregate:
    """Statistics of one field over all items that have it; `std` is that of a sample (n - 1), None for one number."""

    field: str
    count: int
    mean: float
    std: float | None
    min: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True)
class Cause:
    """Items that failed for the same reason; reasons that differ only in numbers are the same."""

    status: str
    reason: str
    items: tuple[str, ...]


def flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a returned value: names of a dict, with nested names joined by dots; otherwise ``value``.

    >>> list(flatten({"loss": 0.5, "time": {"gpu": 2}})), list(flatten(3))
    ([('loss', 0.5), ('time.gpu', 2)], [('value', 3)])
    """
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from flatten(inner, f"{name}.{part}" if name else part)
    elif value is not None:
        yield name or "value", value


def _numbers(results: Sequence[ItemResult], seconds: str) -> dict[str, dict[int, float]]:
    """Numeric fields by name and index of the item, and then the durations under the name ``seconds``.

    A field that holds anything else for any item is left out, as is a column without a number.
    """
    columns: dict[str, dict[int, float]] = {}
    other = set()
    for result in results:
        for name, value in flatten(result.value):
            if isinstance(value, bool | int | float):
                columns.setdefault(name, {})[result.index] = float(value)
            else:
                other.add(name)
    numeric = {name: column for name, column in columns.items() if name not in other}
    durations = {result.index: result.seconds for result in results if result.seconds is not None}
    return {**numeric, **({seconds: durations} if durations else {})}


def aggregates(results: Sequence[ItemResult]) -> list[Aggregate]:
    """Statistics of each numeric field and of the duration, over the items that are ok.

    Examples
    --------
    >>> done = [ItemResult("k", i, str(i), i, "ok", value=float(i), seconds=0.1) for i in range(5)]
    >>> aggregates(done)[0]
    Aggregate(field='value', count=5, mean=2.0, std=1.5811388300841898, min=0.0, median=2.0, p95=3.8, max=4.0)
    """
    found = []
    for name, column in _numbers([result for result in results if result.ok], "seconds per item").items():
        values = np.array(list(column.values()))
        std = float(values.std(ddof=1)) if len(values) > 1 else None
        median, p95 = (float(np.percentile(values, q)) for q in (50, 95))
        low, high = float(values.min()), float(values.max())
        found.append(Aggregate(name, len(values), float(values.mean()), std, low, median, p95, high))
    return found


def causes(results: Iterable[ItemResult]) -> list[Cause]:
    """Causes of failure, the most frequent first.

    Examples
    --------
    >>> failed = [ItemResult("k", i, str(i), i, "error", reason=f"ValueError: no {i}") for i in (3, 14)]
    >>> causes(failed)
    [Cause(status='error', reason='ValueError: no 3', items=('3', '14'))]
    """
    groups: dict[tuple[str, str], list[ItemResult]] = {}
    for result in results:
        if not result.ok:
            groups.setdefault((result.status, re.sub(r"\d+", "#", result.reason or "")), []).append(result)
    made = (Cause(status, group[0].reason or "", tuple(r.name for r in group)) for (status, _), group in groups.items())
    return sorted(made, key=lambda cause: -len(cause.items))


def summary_text(results: Sequence[ItemResult], total: int) -> str:
    """Aggregates, counts and causes of failure, the same in a terminal and in a log."""
    failed = [result for result in results if not result.ok]
    left = f", {total - len(results)} to do" if total > len(results) else ""
    lines = [f"{total} items: {len(results) - len(failed)} ok, {len(failed)} failed{left}."]
    for cause in causes(failed):
        names = ", ".join(cause.items[:8]) + (", ..." if len(cause.items) > 8 else "")
        lines += [f"  {len(cause.items)} x {cause.status}: {cause.reason}", f"      items {names}"]
    rows = []
    for aggregate in aggregates(results):
        name, count, *numbers = astuple(aggregate)
        rows.append((name, str(count), *("" if number is None else f"{number:.4g}" for number in numbers)))
    if not rows:
        return "\n".join(lines)
    header = ("field", "count", "mean", "std", "min", "median", "p95", "max")
    return Table(header, tuple(rows), notes=tuple(lines)).as_text()
