"""The folder of a map: its items lie beside the journal, so that results are read without the
function; and checks of it: intact lines, one result per item, and equal values when an item runs
again or is read from a results file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core.errors import ConfigError, DataError, room_for
from daskmetrics.core.events import Event, ItemsRetried, MapStarted, RunStarted, latest, records
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.machine import environment
from daskmetrics.core.names import Key
from daskmetrics.core.results import ItemOutcome, Mapped
from daskmetrics.core.serialization import readable
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import RunLock, mark_of, read
from daskmetrics.execution.map.function import Item, is_json, load, make_items, prepare, run_call
from daskmetrics.execution.map.result_table import SUFFIXES, flatten, write
from daskmetrics.execution.map.source import ItemResult, ItemTracker, MapSource, MapSpec

if TYPE_CHECKING:
    import pandas as pd

REMEDY = "Run the same map again to write the file again."


def begin(source: MapSource, journal: Journal) -> None:
    """Write the items and the header of a map; if it has nothing to do, only the items, where their
    file is not the one of its last start.

    Raises ConfigError if the folder belongs to an experiment.
    """
    folder, spec = RunFolder(journal.path.parent), source.spec
    rows = (
        [item.key, item.name, item.value if is_json(item.value) else None] for item in spec.items
    )
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    digest = hashlib.sha256(text).hexdigest()
    if not source.tracker.unfinished():
        header = latest(journal.entries, MapStarted)
        is_there = folder.items.is_file() and folder.items.read_bytes() == text
        if header and header.digest == digest and not is_there:
            atomic_write(folder.items, text)
        return
    if latest(journal.entries, RunStarted):
        raise ConfigError(
            f"'{folder.path}' holds an experiment: choose another folder for the map."
        )
    atomic_write(folder.items, text)
    journal.append(
        MapStarted(
            function=spec.function.name,
            version=spec.function.version,
            stated=spec.function.stated,
            reference=spec.reference,
            items=len(spec.items),
            seed=spec.seed,
            batch_size=spec.options.batch_size,
            retries=spec.options.retries,
            timeout=spec.options.timeout_seconds,
            environment=environment("daskmetrics", "distributed", "numpy"),
            digest=digest,
        )
    )


def retry_failed(spec: MapSpec, journal: Journal) -> int:
    """Reset the items that failed, so that they run again with all their retries; returns how many."""
    tracker = ItemTracker(spec.items, spec.options.retries, journal.entries)
    failed = [result.key for result in tracker.failed()]
    if failed:
        journal.append(ItemsRetried(failed))
    return len(failed)


def earlier_state(spec: MapSpec, entries: Sequence[Event], state: str) -> int:
    """How many entries of a journal make up an older state of a map.

    Parameters
    ----------
    spec : MapSpec
    entries : sequence of Event
    state : str
        The state with at most so many finished items, or the one at a time, such as
        ``2026-05-01T16:30``.

    Raises
    ------
    ConfigError
        If it is neither, or nothing was recorded later.
    """
    if state.isdigit():

        def finished(length: int) -> int:
            return len(ItemTracker(spec.items, spec.options.retries, entries[:length]).results())

        keep = bisect_right(range(len(entries) + 1), int(state), key=finished) - 1
    else:
        try:
            until = datetime.fromisoformat(state).timestamp()
        except ValueError:
            raise ConfigError(
                f"'--resume-from {state}' is neither a number of items (100) nor a time (2026-05-01T16:30)."
            ) from None
        later = (
            i for i, entry in enumerate(entries) if isinstance(entry, Record) and entry.at > until
        )
        keep = next(later, len(entries))
    if not any(isinstance(entry, Record) for entry in entries[keep:]):
        raise ConfigError(
            f"Nothing was recorded after '{state}': leave out --resume-from to continue."
        )
    return keep


def set_aside(path: Path, lock: Path, keep: int) -> Path:
    """Continue from an older state: a journal without what follows its first ``keep`` entries.

    The whole journal stays beside it, under the name that is returned. Raises LockedError if a
    driver has the run.
    """
    with room_for(f"the journal '{path}'"):
        run_lock = RunLock(lock)
        try:
            names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
            aside = next(name for name in names if not name.exists())
            lines = path.read_bytes().splitlines(keepends=True)
            os.link(path, aside)
            if mark_of(path).exists():  # it states the length of the whole journal
                mark_of(path).replace(mark_of(aside))
            atomic_write(path, b"".join(lines[: keep + 1]))  # the first holds the format
        finally:
            run_lock.release()
    return aside


def is_map(folder: str | Path) -> bool:
    """Whether a folder is that of a map, also if the file of its items is gone."""
    run = RunFolder(Path(folder))
    if run.items.is_file():
        return True
    with suppress(OSError), run.journal.open("rb") as file:
        return any(b' {"type":"map",' in line for line in islice(file, 2))
    return False


@dataclass(frozen=True)
class RecordedMap:
    """A map read from its folder: the header of its last start, its items, and the results so far."""

    header: MapStarted
    items: tuple[Item, ...]
    results: tuple[ItemResult, ...]
    altered: bool = False  # whether the file of the items is another one than the map wrote


def read_map(folder: str | Path, strict: bool = True) -> RecordedMap:
    """Read a map from its folder; raises ConfigError if there is none.

    Raises DataError if a line is damaged or the items are missing, and with ``strict`` if they were
    changed.
    """
    run = RunFolder(Path(folder)).must_exist()
    entries = list(read(run.journal))
    header = latest(entries, MapStarted)
    if header is None:
        raise ConfigError(
            f"The run in '{run.path}' is not a map. Start one with: daskmetrics map module.py:function"
        )
    if not run.items.is_file():
        raise DataError(f"'{run.items}' is missing. {REMEDY}")
    items = []
    text = run.items.read_bytes()
    for index, line in enumerate(text.splitlines()):
        try:
            key, name, value = json.loads(line)
        except ValueError:
            raise DataError(f"Line {index + 1} of '{run.items}' is damaged. {REMEDY}") from None
        items.append(Item(key, index, value, name, seed=0))
    altered = header.digest not in ("", hashlib.sha256(text).hexdigest())
    if altered and strict:
        raise DataError(f"'{run.items}' was changed. {REMEDY}")
    tracker = ItemTracker(items, header.retries, entries)
    return RecordedMap(header, tuple(items), tuple(tracker.results()), altered)


def results(folder: str | Path) -> list[ItemResult]:
    """The results of a map so far, read from its folder, in the order of its items.

    Raises
    ------
    ConfigError
        If there is no map in the folder.
    DataError
        If a line is damaged.
    """
    return list(read_map(folder).results)


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
        changed = ", ".join(self.altered) or "none"
        if self.altered:
            changed += ". Run the same map again to write them again"
        lines = [
            f"{self.lines} lines of the journal are intact; {self.results} of {self.items} items are finished.",
            f"Items recorded more than once: {', '.join(self.duplicates) or 'none'}.",
            f"Items whose content was changed: {changed}.",
            f"Run again: {self.sampled} items, {len({d.item for d in self.differences})} differ.",
        ]
        for field, number in Counter(d.field for d in self.differences).most_common():
            lines.append(f"  {field}: differs in {number} of {self.sampled}")
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
    run = RunFolder(Path(folder))
    header = recorded.header
    entries = list(read(run.journal))
    succeeded = [result for result in recorded.results if result.ok]
    chosen = random.Random(seed).sample(succeeded, min(sample, len(succeeded)))
    if chosen and function is None:
        if not header.reference:
            raise ConfigError(
                f"The journal does not record which module defines {header.function}: give it as function=."
            )
        function = load(header.reference)
    if values is None:
        if any(item.value is None and item.name != "None" for item in recorded.items):
            raise ConfigError(
                "JSON cannot store the items, so the folder does not contain them: give them as values=."
            )
        values = [item.value for item in recorded.items]
    remade = make_items(values, header.function, header.version, header.seed)
    # by the keys that follow from their content: the recorded ones if nothing was altered
    items = {item.key: item for item in remade}
    altered = tuple(item.name for item in recorded.items if item.key not in items)
    if recorded.altered and not altered:
        altered = (run.items.name,)
    differences: list[ResultDifference] = []
    if function is not None:
        prepared = prepare(function)
        if prepared.version != header.version and not header.stated:
            raise ConfigError(
                f"The source of {prepared.name} has changed since the run. Restore it to compare."
            )
        for result in chosen:
            if item := items.get(result.key):  # an altered item is reported as such
                keywords = prepared.keywords(item.seed, 1)
                outcome = run_call(function, item.key, item.value, keywords)
                differences += _value_differences(result, outcome, ignore, tolerance)
    successes: Counter[Key] = Counter()
    for record in records(entries):
        if isinstance(record.value, Mapped):
            outcomes = record.value.items
            successes.update(outcome.key for outcome in outcomes if outcome.status == "ok")
    return Verification(
        len(entries),
        len(recorded.results),
        len(recorded.items),
        tuple(item.name for item in recorded.items if successes[item.key] > 1),
        altered,
        len(chosen),
        tuple(differences),
    )


def _value_differences(
    result: ItemResult, outcome: ItemOutcome, ignore: Sequence[str], tolerance: float
) -> Iterator[ResultDifference]:
    if outcome.status != "ok":
        status = f"{outcome.status}, {outcome.reason}"
        yield ResultDifference(result.name, "status", "ok", status)
        return
    before, after = dict(flatten(result.value)), dict(flatten(outcome.value))
    for name in sorted({*before, *after} - set(ignore)):
        recorded, again = before.get(name), after.get(name)
        same = recorded == again
        if tolerance and isinstance(recorded, float) and isinstance(again, int | float):
            same = math.isclose(recorded, again, rel_tol=tolerance)
        if not same:
            yield ResultDifference(result.name, name, recorded, again)


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

    if path.suffix not in SUFFIXES or path.suffix == ".json":
        suffixes = ", ".join(suffix for suffix in SUFFIXES if suffix != ".json")
        raise ConfigError(f"Cannot compare '{path}': the suffix must be one of {suffixes}.")
    try:
        with readable("The results file", path):
            match path.suffix:
                case ".parquet":
                    table = pd.read_parquet(path)
                case ".csv":
                    table = pd.read_csv(path)
                case ".jsonl":
                    lines = path.read_text("utf-8").splitlines()
                    table = pd.json_normalize(list(map(json.loads, lines)))
                case ".nc":
                    table = xr.load_dataset(path, engine="scipy").to_dataframe()
                case _:
                    table = xr.open_zarr(path, consolidated=False).to_dataframe()
    except DataError as error:
        raise DataError(f"{error} {REMEDY}") from error
    if table.index.name == "item":  # of arrays
        table = table.reset_index(names="index")
    if "index" not in table:
        raise DataError(
            f"'{path}' is not a results file of a map: it has no column 'index'. Its columns: "
            f"{', '.join(map(str, table))}."
        )
    return table.set_index("index")


def _table_differences(table: pd.DataFrame, expected: pd.DataFrame) -> Iterator[ResultDifference]:
    for index in table.index.symmetric_difference(expected.index).unique():
        yield _presence(str(index), "row", index in table.index)
    if table.index.has_duplicates:
        for index in table.index[table.index.duplicated()]:
            yield ResultDifference(str(index), "row", "twice", "once")
        return
    rows = expected.index.intersection(table.index)
    for name in dict.fromkeys([*expected.columns, *table.columns]):
        if name not in table or name not in expected:
            yield _presence("all", name, name in table)
            continue
        before, after = (
            table.loc[rows, name].astype(object),
            expected.loc[rows, name].astype(object),
        )
        differs = (before != after) & ~(before.isna() & after.isna())
        for index in rows[differs]:
            yield ResultDifference(str(index), name, before[index], after[index])


def _presence(item: str, field: str, in_table: bool) -> ResultDifference:
    """A row or a column that only the file has, or only the run."""
    if in_table:
        return ResultDifference(item, field, "present", "absent")
    return ResultDifference(item, field, "absent", "present")
