"""Results as a table and as labelled arrays, in memory and in files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskmetrics.errors import ConfigError
from daskmetrics.mapping.items import is_plain
from daskmetrics.mapping.ledger import Result
from daskmetrics.mapping.summary import flat, numbers
from daskmetrics.status import FLAGS, Status

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
