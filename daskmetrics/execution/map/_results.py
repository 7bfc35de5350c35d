"""Results as a table and as labelled arrays, in memory and in files."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.status import FLAGS, Status
from daskmetrics.execution.map._items import is_plain
from daskmetrics.execution.map._ledger import Result

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

SUFFIXES = (".parquet", ".csv", ".jsonl", ".zarr", ".nc")


def frame(results: Sequence[Result]) -> pd.DataFrame:
    """One row per item: what it was, how it ended, and a column for each field of the returned values.

    Fields that clash with the columns of the table itself get ``value.`` before their names; lists are JSON text.
    """
    import pandas as pd

    rows = [_row(result) for result in sorted(results, key=lambda result: result.index)]
    return pd.DataFrame(rows, columns=list(dict.fromkeys(name for row in rows for name in row)))


def _row(result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {
        "index": result.index,
        "item": result.item if isinstance(result.item, int | float | str) else _text(result.item, result.name),
        "status": result.status,
        "reason": result.reason,
        "attempts": result.attempts,
        "seconds": result.seconds,
        "worker": result.worker,
        "key": result.key,
    }
    fields = {name: json.dumps(value) if isinstance(value, list) else value for name, value in flat(result.value)}
    return {**row, **{f"value.{name}" if name in row else name: value for name, value in fields.items()}}


def _text(item: Any, name: str) -> str:
    return json.dumps(item) if item is not None and is_plain(item) else name


def dataset(results: Sequence[Result], count: int | None = None) -> xr.Dataset:
    """Numeric fields as arrays over the dimension ``item``, with an explicit status; what is missing is NaN.

    Parameters
    ----------
    results : sequence of Result
    count : int, optional
        Length of the dimension; by default up to the last result.
    """
    import xarray as xr

    length = 1 + max((result.index for result in results), default=-1) if count is None else count
    names = np.full(length, "", dtype=object)
    status = np.full(length, Status.MISSING, dtype="int8")
    for result in results:
        names[result.index], status[result.index] = result.name, Status.of(result.status)
    took = {result.index: result.seconds for result in results if result.seconds is not None}
    columns = {**numbers(results), "seconds": took} if took else numbers(results)
    arrays = {name: ("item", _column(column, length)) for name, column in columns.items()}
    return xr.Dataset(
        {**arrays, "status": ("item", status, FLAGS)}, coords={"item": np.arange(length), "name": ("item", names)}
    )


def _column(values: dict[int, float], length: int) -> np.ndarray:
    column = np.full(length, np.nan)
    column[list(values)] = list(values.values())
    return column


def check_output(path: Path) -> None:
    """Stop now, and not after hours, if results could not be written.

    Raises
    ------
    ConfigError
        If the suffix is none that can be written, or needs a library that is not there.
    """
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"Cannot write results as '{path.name}': the suffix must be one of {', '.join(SUFFIXES)}.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("Parquet needs pyarrow: pip install 'daskmetrics[table]', or write results.csv.")


def write(results: Sequence[Result], path: str | Path) -> None:
    """Write results by the suffix: a table (parquet, csv, jsonl) or labelled arrays (zarr, nc).

    The file is written beside its place and then renamed.

    Raises
    ------
    ConfigError
        As `check_output`.
    """
    path = Path(path)
    check_output(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zarr":
        dataset(results).to_zarr(path, mode="w", consolidated=False)
        return
    fresh = path.with_name(f".{path.name}.partial")
    if path.suffix == ".nc":
        dataset(results).to_netcdf(fresh, engine="scipy")
    elif path.suffix == ".parquet":
        frame(results).to_parquet(fresh, index=False)
    elif path.suffix == ".csv":
        frame(results).to_csv(fresh, index=False)
    else:
        lines = (json.dumps(_line(result)) + "\n" for result in sorted(results, key=lambda result: result.index))
        fresh.write_text("".join(lines), encoding="utf-8")
    fresh.replace(path)


def _line(result: Result) -> dict[str, Any]:
    item = result.item if is_plain(result.item) else None
    return {"index": result.index, "name": result.name, "item": item, **_outcome(result)}


def _outcome(result: Result) -> dict[str, Any]:
    names = ("status", "value", "reason", "traceback", "attempts", "seconds", "worker", "key")
    return {name: getattr(result, name) for name in names}


@dataclass(frozen=True)
class Aggregate:
    """One field over all items that have it; `std` is that of a sample (n - 1), None of a single number."""

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
    """Items that failed for the same reason; numbers within the reasons are not told apart."""

    status: str
    reason: str
    items: tuple[str, ...]


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of a returned value: a dict's names, nested ones joined by dots; anything else is ``value``.

    Examples
    --------
    >>> list(flat({"loss": 0.5, "time": {"gpu": 2}})), list(flat(3))
    ([('loss', 0.5), ('time.gpu', 2)], [('value', 3)])
    """
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from flat(inner, f"{name}.{part}" if name else part)
    elif value is not None:
        yield name or "value", value


def numbers(results: Iterable[Result]) -> dict[str, dict[int, float]]:
    """Numeric fields by name, each by the index of its item; a field that holds text anywhere is left out."""
    found: dict[str, dict[int, float]] = {}
    other = set()
    for result in results:
        for name, value in flat(result.value):
            if isinstance(value, bool | int | float):
                found.setdefault(name, {})[result.index] = float(value)
            else:
                other.add(name)
    return {name: column for name, column in found.items() if name not in other}


def aggregates(results: Sequence[Result]) -> list[Aggregate]:
    """Each numeric field and the seconds, over the items that are ok.

    Examples
    --------
    >>> done = [Result("k", i, str(i), i, "ok", value=float(i), seconds=0.1) for i in range(5)]
    >>> aggregates(done)[0]
    Aggregate(field='value', count=5, mean=2.0, std=1.5811388300841898, min=0.0, median=2.0, p95=3.8, max=4.0)
    """
    fine = [result for result in results if result.ok]
    took = {result.index: result.seconds for result in fine if result.seconds is not None}
    columns = {**numbers(fine), **({"seconds per item": took} if took else {})}
    return [_aggregate(name, np.array(list(column.values()))) for name, column in columns.items()]


def _aggregate(name: str, values: np.ndarray) -> Aggregate:
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    median, p95 = (float(np.percentile(values, q)) for q in (50, 95))
    return Aggregate(
        name, len(values), float(values.mean()), std, float(values.min()), median, p95, float(values.max())
    )


def causes(results: Iterable[Result]) -> list[Cause]:
    """Failures, the commonest cause first.

    Examples
    --------
    >>> bad = [Result("k", i, str(i), i, "error", reason=f"ValueError: no {i}") for i in (3, 14)]
    >>> causes(bad)
    [Cause(status='error', reason='ValueError: no 3', items=('3', '14'))]
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if not result.ok:
            groups.setdefault((result.status, re.sub(r"\d+", "#", result.reason or "")), []).append(result)
    made = (Cause(status, group[0].reason or "", tuple(r.name for r in group)) for (status, _), group in groups.items())
    return sorted(made, key=lambda cause: -len(cause.items))


def summary_text(results: Sequence[Result], total: int) -> str:
    """Aggregates and failures by cause, the same in a terminal and in a log."""
    failed = [result for result in results if not result.ok]
    lines = _table(aggregates(results))
    left = f", {total - len(results)} to do" if total > len(results) else ""
    lines.append(f"{total} items: {len(results) - len(failed)} ok, {len(failed)} failed{left}.")
    for cause in causes(failed):
        names = ", ".join(cause.items[:8]) + (", ..." if len(cause.items) > 8 else "")
        lines += [f"  {len(cause.items)} x {cause.status}: {cause.reason}", f"      items {names}"]
    return "\n".join(lines)


def _table(found: Sequence[Aggregate]) -> list[str]:
    if not found:
        return []
    width = max(len(each.field) for each in found)
    names = ("count", "mean", "std", "min", "median", "p95", "max")
    lines = [" " * width + "".join(f"{name:>11}" for name in names)]
    for each in found:
        _, count, *numbers = astuple(each)
        texts = [str(count), *("" if number is None else f"{number:.4g}" for number in numbers)]
        lines.append(f"{each.field:<{width}}" + "".join(f"{text:>11}" for text in texts))
    return [*lines, ""]
