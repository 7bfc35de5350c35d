"""Checks of recorded results: intact lines, one result per item, equal values when run again or
read from a file.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.core.events import records
from daskmetrics.core.files import RunFolder
from daskmetrics.core.results import ItemOutcome, Mapped
from daskmetrics.execution.journal import read
from daskmetrics.execution.map.folder import RecordedMap, is_map, read_map, results
from daskmetrics.execution.map.function import Call, load, prepare, run_call
from daskmetrics.execution.map.items import Item, make_items
from daskmetrics.execution.map.result_table import SUFFIXES, flatten, write
from daskmetrics.execution.map.source import ItemResult

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


@dataclass(frozen=True)
class ResultDifference:
    """A field of an item's value that differs when it is computed or written again."""

    item: str
    field: str
    recorded: Any
    again: Any


@dataclass(frozen=True)
class Verification:
    """Result of `verify`.

    Attributes
    ----------
    lines, results, items : int
        Intact lines of the journal, finished items, and all items.
    duplicates : tuple of str
        Items with more than one successful result.
    altered : tuple of str
        Items whose key does not match the function and their content; or the file of the items, if
        all do but it is not the one that was written.
    sampled : int
        Number of items that were run again.
    differences : tuple of ResultDifference
    """

    lines: int
    results: int
    items: int
    duplicates: tuple[str, ...]
    altered: tuple[str, ...]
    sampled: int
    differences: tuple[ResultDifference, ...]

    @property
    def ok(self) -> bool:
        return not (self.duplicates or self.altered or self.differences)

    def text(self) -> str:
        """The verification in a few sentences."""
        lines = [
            f"{self.lines} lines of the journal are intact; {self.results} of {self.items} items are finished.",
            f"Items recorded more than once: {', '.join(self.duplicates) or 'none'}.",
            f"Items whose content was changed: {', '.join(self.altered) or 'none'}."
            + (" Run the same map again to write them again." if self.altered else ""),
            f"Run again: {self.sampled} items, {len({d.item for d in self.differences})} differ.",
        ]
        differ = Counter(difference.field for difference in self.differences)
        lines += [
            f"  {field}: differs in {count} of {self.sampled}"
            for field, count in differ.most_common()
        ]
        lines += [
            f"  {d.item}: {d.field} was {d.recorded!r}, now {d.again!r}"
            for d in self.differences[:5]
        ]
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
    """Check the folder of a map: its lines, its items, and a random sample of its results.

    Parameters
    ----------
    folder : str or Path
    sample : int
        Number of successful items to run again in this process.
    seed : int
        Seed of the random sample.
    ignore : sequence of str
        Fields that are not compared, such as measured times.
    tolerance : float
        Relative difference up to which numbers agree; 0 compares exactly.
    function : callable, optional
        By default the function that the journal refers to, if it was given as
        ``module.py:function``.
    values : iterable, optional
        The items; needed if JSON cannot store them.

    Raises
    ------
    DataError
        If a line of the journal is damaged.
    ConfigError
        If there is no map, if the function or the items are not available, or if the function has
        changed.
    """
    recorded = read_map(folder, strict=False)
    entries = list(read(RunFolder(Path(folder)).journal))
    succeeded = [result for result in recorded.results if result.ok]
    chosen = random.Random(seed).sample(succeeded, min(sample, len(succeeded)))
    rerun = _rerun(recorded, function) if chosen or function else None
    items = _items(recorded, values)
    altered = tuple(item.name for item in recorded.items if item.key not in items)
    if recorded.altered and not altered:
        altered = (RunFolder(Path(folder)).items.name,)
    differences: list[ResultDifference] = []
    for result in chosen:
        item = items.get(result.key)
        if rerun and item:  # an altered item is reported as such
            differences += _value_differences(result, rerun(item), ignore, tolerance)
    successes: Counter[str] = Counter()
    for record in records(entries):
        if isinstance(record.value, Mapped):
            successes.update(
                outcome.key for outcome in record.value.items if outcome.status == "ok"
            )
    return Verification(
        len(entries),
        len(recorded.results),
        len(recorded.items),
        tuple(item.name for item in recorded.items if successes[item.key] > 1),
        altered,
        len(chosen),
        tuple(differences),
    )


def _rerun(
    recorded: RecordedMap, function: Callable[..., Any] | None
) -> Callable[[Item], ItemOutcome]:
    """Runs an item again in this process; refuses another function than the recorded one."""
    header = recorded.header
    if function is None:
        if not header.reference:
            raise ConfigError(
                f"The journal does not record which module defines {header.function}: give it as function=."
            )
        function = load(header.reference)
    called = function
    prepared = prepare(called)
    if prepared.version != header.version and not header.stated:
        raise ConfigError(
            f"The source of {prepared.name} has changed since the run. Restore it to compare."
        )

    def rerun(item: Item) -> ItemOutcome:
        return run_call(called, Call(item.key, item.value, prepared.keywords(item.seed, 1)))

    return rerun


def _items(recorded: RecordedMap, values: Iterable[Any] | None) -> dict[str, Item]:
    """Items by the keys that follow from their content; these are the recorded keys if nothing was
    altered.
    """
    if values is None:
        if any(item.value is None and item.name != "None" for item in recorded.items):
            raise ConfigError(
                "JSON cannot store the items, so the folder does not contain them: give them as values=."
            )
        values = [item.value for item in recorded.items]
    header = recorded.header
    return {
        item.key: item for item in make_items(values, header.function, header.version, header.seed)
    }


def _value_differences(
    result: ItemResult, outcome: ItemOutcome, ignore: Sequence[str], tolerance: float
) -> list[ResultDifference]:
    if outcome.status != "ok":
        status = f"{outcome.status}, {outcome.reason}"
        return [ResultDifference(result.name, "status", "ok", status)]
    before, after = dict(flatten(result.value)), dict(flatten(outcome.value))
    return [
        ResultDifference(result.name, name, before.get(name), after.get(name))
        for name in sorted({*before, *after} - set(ignore))
        if not _agree(before.get(name), after.get(name), tolerance)
    ]


def _agree(before: Any, after: Any, tolerance: float) -> bool:
    if isinstance(before, float) and isinstance(after, int | float) and tolerance:
        return abs(before - after) <= tolerance * max(abs(before), abs(after))
    return bool(before == after)


def is_results(path: str | Path) -> bool:
    """Whether a path is an existing file (or store) with a suffix that `write` supports."""
    return Path(path).suffix in SUFFIXES and Path(path).exists()


def compare(path: str | Path, folder: str | Path) -> list[ResultDifference]:
    """Differences between a results file and the journal of its map.

    The results are written to a second file of the same format, and both are compared as they are
    read back.

    Parameters
    ----------
    path : str or Path
        A results file: .parquet, .csv, .jsonl, .zarr, .nc.
    folder : str or Path
        The folder of the map.

    Raises
    ------
    DataError
        If the file cannot be read, or a line of the journal is damaged.
    ConfigError
        If there is no map in the folder.
    """
    with tempfile.TemporaryDirectory() as temporary:
        rewritten = Path(temporary) / f"again{Path(path).suffix}"
        write(results(folder), rewritten)
        return list(_table_differences(_read_table(Path(path)), _read_table(rewritten)))


def folder_of(path: str | Path, runs: str | Path = "runs") -> Path:
    """The folder among ``runs`` of the map with most items of a results file; raises ConfigError if
    none has any.
    """
    table = _read_table(Path(path))
    column = "key" if "key" in table else "name"
    keys = set(table.get(column, ()))
    counts: Counter[Path] = Counter()
    for folder in sorted(Path(runs).glob("*")):
        if is_map(folder):
            counts[folder] = sum(getattr(result, column) in keys for result in results(folder))
    if not counts.total():
        raise ConfigError(
            f"No map in '{runs}' has the items of '{path}'. Name its run: daskmetrics runs verify {path} --run FOLDER"
        )
    return counts.most_common(1)[0][0]


def _read_table(path: Path) -> pd.DataFrame:
    """A results file as a table with one row per item, indexed by the positions of the items."""
    import pandas as pd
    import xarray as xr

    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        ".parquet": pd.read_parquet,
        ".csv": pd.read_csv,
        ".jsonl": lambda path: pd.json_normalize(
            [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        ),
        ".nc": lambda path: _rows(xr.load_dataset(path, engine="scipy")),
        ".zarr": lambda path: _rows(xr.open_zarr(path, consolidated=False)),
    }
    if path.suffix not in readers:
        raise ConfigError(
            f"Cannot compare '{path}': the suffix must be one of {', '.join(readers)}."
        )
    try:
        table = readers[path.suffix](path)
    except Exception as error:  # readers raise anything on a damaged file
        raise DataError(
            f"'{path}' cannot be read: {error}. Run the same map again to rewrite it."
        ) from error
    if "index" not in table:
        raise DataError(
            f"'{path}' is not a results file of a map: it has no column 'index'. Its columns: "
            f"{', '.join(map(str, table))}."
        )
    return table.set_index("index")


def _rows(arrays: xr.Dataset) -> pd.DataFrame:
    return arrays.to_dataframe().reset_index(names="index")


def _table_differences(table: pd.DataFrame, expected: pd.DataFrame) -> Iterator[ResultDifference]:
    for index in sorted(set(table.index) ^ set(expected.index)):
        yield ResultDifference(str(index), "row", *_presence(index in table.index))
    if table.index.has_duplicates:
        for index in table.index[table.index.duplicated()]:
            yield ResultDifference(str(index), "row", "twice", "once")
        return
    shared = expected.index.intersection(table.index)
    for name in dict.fromkeys([*expected.columns, *table.columns]):
        if name not in table or name not in expected:
            yield ResultDifference("all", name, *_presence(name in table))
            continue
        for index in shared:
            before, after = table.at[index, name], expected.at[index, name]
            if not _equal_cells(before, after):
                yield ResultDifference(str(index), name, before, after)


def _presence(in_table: bool) -> tuple[str, str]:
    return ("present", "absent") if in_table else ("absent", "present")


def _equal_cells(before: Any, after: Any) -> bool:
    import pandas as pd

    if isinstance(before, list) or isinstance(after, list):
        return bool(before == after)
    return bool(before == after) or bool(pd.isna(before) and pd.isna(after))
