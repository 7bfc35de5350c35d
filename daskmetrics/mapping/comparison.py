"""Whether a results file still says what the journal does, row by row and field by field."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.errors import ConfigError, DataError
from daskmetrics.mapping.jobs import is_map, results
from daskmetrics.mapping.table import SUFFIXES, write
from daskmetrics.mapping.verification import Difference

if TYPE_CHECKING:
    import pandas as pd


def is_results(path: str | Path) -> bool:
    """Whether a path looks like what a map writes its results to."""
    return Path(path).suffix in SUFFIXES and Path(path).exists()


def compare(path: str | Path, folder: str | Path) -> list[Difference]:
    """What a results file says otherwise than the journal of its map.

    The same kind of file is written anew from the journal, and the two are compared as they are read back.

    Parameters
    ----------
    path : str or Path
        A results file: .parquet, .csv, .jsonl, .zarr, .nc.
    folder : str or Path
        The map's folder.

    Raises
    ------
    DataError
        If the file cannot be read, or a line of the journal is damaged.
    ConfigError
        If there is no map in the folder.
    """
    with tempfile.TemporaryDirectory() as place:
        fresh = Path(place) / f"fresh{Path(path).suffix}"
        write(results(folder), fresh)
        return list(_differences(_read(Path(path)), _read(fresh)))


def folder_of(path: str | Path, among: str | Path = "runs") -> Path:
    """The folder among these of the map that a results file came from: the one that knows most of its items.

    Raises
    ------
    ConfigError
        If none knows any.
    DataError
        If the file cannot be read.
    """
    found = _read(Path(path))
    keys = set(found["key"]) if "key" in found else set(found.get("name", ()))
    known = {
        folder: sum((result.key if "key" in found else result.name) in keys for result in results(folder))
        for folder in (sorted(Path(among).iterdir()) if Path(among).is_dir() else ())
        if is_map(folder)
    }
    best = max(known, key=lambda folder: known[folder], default=None)
    if best is None or not known[best]:
        raise ConfigError(
            f"No map in '{among}' knows the items of '{path}'. Say which run it is of: "
            f"daskmetrics verify {path} --run FOLDER"
        )
    return best


def _read(path: Path) -> pd.DataFrame:
    """Any results file as a table of one row per item, by the items' places."""
    import pandas as pd
    import xarray as xr

    try:
        match path.suffix:
            case ".parquet":
                found = pd.read_parquet(path)
            case ".csv":
                found = pd.read_csv(path)
            case ".jsonl":
                found = pd.json_normalize([json.loads(line) for line in path.read_text("utf-8").splitlines()])
            case ".nc":
                found = xr.load_dataset(path, engine="scipy").to_dataframe().reset_index(names="index")
            case _:
                found = xr.open_zarr(path, consolidated=False).to_dataframe().reset_index(names="index")
    except Exception as error:  # foreign files: whatever the reader makes of them
        raise DataError(f"'{path}' cannot be read: {error}. Write it anew by running the same map again.") from error
    if "index" not in found:
        raise DataError(
            f"'{path}' has no column 'index', as results of a map have. Its columns: {', '.join(map(str, found))}."
        )
    return found.set_index("index")


def _differences(found: pd.DataFrame, wanted: pd.DataFrame) -> Iterator[Difference]:
    for index in sorted({*found.index} ^ {*wanted.index}):
        there = index in found.index
        yield Difference(str(index), "row", "in the file" if there else "absent", "absent" if there else "in the run")
    if found.index.has_duplicates:
        yield from (Difference(str(i), "row", "twice", "once") for i in found.index[found.index.duplicated()])
        return
    shared = wanted.index.intersection(found.index)
    for name in dict.fromkeys([*wanted.columns, *found.columns]):
        yield from _column(name, found.loc[shared], wanted.loc[shared])


def _column(name: str, found: pd.DataFrame, wanted: pd.DataFrame) -> Iterator[Difference]:
    if name not in found or name not in wanted:
        yield Difference("all", name, "absent" if name in wanted else "there", "there" if name in wanted else "absent")
        return
    for index, was, now in zip(found.index, found[name], wanted[name], strict=True):
        if not _same(was, now):
            yield Difference(str(index), name, was, now)


def _same(one: Any, two: Any) -> bool:
    import pandas as pd

    if isinstance(one, list) or isinstance(two, list):
        return bool(one == two)
    return bool(one == two) or bool(pd.isna(one) and pd.isna(two))
