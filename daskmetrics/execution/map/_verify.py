"""Whether recorded results can be trusted: sound lines, one result per item, and the same values when run again."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution._journal import read
from daskmetrics.execution.map._batch import Call, outcome
from daskmetrics.execution.map._folder import Recorded, is_map, recorded, results
from daskmetrics.execution.map._function import Function, load, prepare
from daskmetrics.execution.map._items import Item, items
from daskmetrics.execution.map._ledger import BATCH, Result
from daskmetrics.execution.map._results import SUFFIXES, flat, write

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Difference:
    """A field of an item's value that was not the same when it was run again."""

    item: str
    field: str
    recorded: Any
    again: Any


@dataclass(frozen=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    lines, results, items : int
        Sound lines of the journal, finished items, and all items.
    doubled : tuple of str
        Items with more than one successful outcome.
    strange : tuple of str
        Items whose key does not follow from the function and their content.
    sampled : int
        Items that were run again.
    differences : tuple of Difference
    """

    lines: int
    results: int
    items: int
    doubled: tuple[str, ...]
    strange: tuple[str, ...]
    sampled: int
    differences: tuple[Difference, ...]

    @property
    def ok(self) -> bool:
        return not (self.doubled or self.strange or self.differences)

    def text(self) -> str:
        """A few lines for people."""
        lines = [
            f"{self.lines} lines of the journal are sound; {self.results} of {self.items} items are finished.",
            f"Recorded more than once: {', '.join(self.doubled) or 'none'}.",
            f"Not what the items' content says: {', '.join(self.strange) or 'none'}.",
            f"Run again: {self.sampled} items, {len({d.item for d in self.differences})} differ.",
        ]
        differ = Counter(difference.field for difference in self.differences)
        lines += [f"  {field}: differs in {count} of {self.sampled}" for field, count in differ.most_common()]
        lines += [f"  {d.item}: {d.field} was {d.recorded!r}, now {d.again!r}" for d in self.differences[:5]]
        return "\n".join(lines)


def verify(
    folder: str | Path,
    *,
    sample: int = 20,
    seed: int = 0,
    ignore: Sequence[str] = (),
    tolerance: float = 0.0,
    function: Callable[..., Any] | None = None,
    values: Iterable[Any] | None = None,
) -> Verification:
    """Check the folder of a map: its lines, its items, and a random sample of results by running them again here.

    Parameters
    ----------
    folder : str or Path
    sample : int
        So many successful items are run again, in this process; 0 runs none.
    seed : int
        Chooses the sample.
    ignore : sequence of str
        Fields of the values that are not compared, such as measured times.
    tolerance : float
        Relative difference up to which numbers agree; 0 compares exactly.
    function : callable, optional
        By default the one that the journal names, if it was given as ``module.py:function``.
    values : iterable, optional
        The items, if they are not what JSON holds.

    Raises
    ------
    DataError
        If a line of the journal is damaged.
    ConfigError
        If there is no map, or function or items cannot be had, or the function is another version.
    """
    told = recorded(folder)
    entries = list(read(RunFolder(Path(folder)).journal))
    fine = [result for result in told.results if result.ok]
    chosen = random.Random(seed).sample(fine, min(sample, len(fine)))
    ready, call = _function(told, function) if chosen or function else (None, None)
    wanted = _items(told, values)
    again = [_differences(result, wanted, ready, call, ignore, tolerance) for result in chosen if ready and call]
    return Verification(
        len(entries),
        len(told.results),
        len(told.items),
        _doubled(entries, told),
        tuple(item.name for item in told.items if item.key not in wanted),
        len(chosen),
        tuple(difference for found in again for difference in found),
    )


def _function(told: Recorded, function: Callable[..., Any] | None) -> tuple[Function, Callable[..., Any]]:
    if function is None:
        if not told.header["reference"]:
            raise ConfigError(f"The journal does not say where {told.header['function']} is: give it as function=.")
        function = load(told.header["reference"])
    ready = prepare(function)
    if ready.version != told.header["version"] and not told.header["stated"]:
        raise ConfigError(f"{ready.name} is not what was run: its source has changed since. Restore it to compare.")
    return ready, function


def _items(told: Recorded, values: Iterable[Any] | None) -> dict[str, Item]:
    """Items by the keys that follow from their content; equal to the recorded ones if nothing was altered."""
    content = [item.value for item in told.items] if values is None else list(values)
    if values is None and any(item.value is None and item.name != "None" for item in told.items):
        raise ConfigError("The items are not what JSON holds, so the folder does not have them: give them as values=.")
    header = told.header
    return {item.key: item for item in items(content, header["function"], header["version"], header["seed"])}


def _doubled(entries: Sequence[dict[str, Any]], told: Recorded) -> tuple[str, ...]:
    seen: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if entry["type"] == "record" and entry["kind"] == BATCH:
            seen.setdefault(entry["key"], entry)
    fine: Counter[str] = Counter()
    for entry in seen.values():
        if entry["value"]:
            fine.update(o["key"] for o in entry["value"]["items"] if o["status"] == "ok")
    return tuple(item.name for item in told.items if fine[item.key] > 1)


def _differences(
    result: Result,
    wanted: dict[str, Item],
    ready: Function,
    function: Callable[..., Any],
    ignore: Sequence[str],
    tolerance: float,
) -> list[Difference]:
    item = wanted.get(result.key)
    if item is None:
        return []  # named as strange already
    keywords = ({"seed": item.seed} if ready.seeded else {}) | ({"batch_size": 1} if ready.sized else {})
    again = outcome(function, Call(item.key, item.value, keywords))
    if again["status"] != "ok":
        return [Difference(item.name, "status", "ok", f"{again['status']}, {again['reason']}")]
    was, now = dict(flat(result.value)), dict(flat(again["value"]))
    return [
        Difference(item.name, name, was.get(name), now.get(name))
        for name in sorted({*was, *now} - set(ignore))
        if not _equal(was.get(name), now.get(name), tolerance)
    ]


def _equal(one: Any, two: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(two, int | float) and tolerance:
        return abs(one - two) <= tolerance * max(abs(one), abs(two))
    return bool(one == two)


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
        return list(_table_differences(_read(Path(path)), _read(fresh)))


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


def _table_differences(found: pd.DataFrame, wanted: pd.DataFrame) -> Iterator[Difference]:
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
