"""The folder of a map: its items lie beside the journal, so that results are read without the
function; and checks of it: intact lines, one result per item, and equal values when an item runs
again or is read from a results file.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import random
import tempfile
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core.content import is_json
from daskmetrics.core.errors import ConfigError, DataError, room_for
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.keys import Key
from daskmetrics.core.machine import environment
from daskmetrics.core.serialization import readable
from daskmetrics.core.text import plural
from daskmetrics.domain.events import Event, ItemsRetried, MapStarted, RunStarted, latest, records
from daskmetrics.domain.results import ItemOutcome, Mapped
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import JournalReading, RunLock, entry_at, mark_of, read
from daskmetrics.execution.map.function import Items, load, make_items, prepare, run_call
from daskmetrics.execution.map.result_table import flatten, write
from daskmetrics.execution.map.source import (
    RESULTS,
    ItemResult,
    ItemTracker,
    MapSource,
    MapSpec,
    outcomes_of,
)

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)
ABSENT = "absent"  #: in place of a value that only the file or only the run has
MOST_SHOWN = 5  #: differences
ALONE = ""  # in place of the key of an item whose batch, itself alone, has no outcomes
REMEDY = "Run the same map again to write the file again."


def begin(source: MapSource, journal: Journal, say: Callable[[str], None] = log.warning) -> None:
    """Write the items and the header of a map.

    If it has nothing to do, only the items, if they are those of its last start.

    ``say`` gets a warning of recorded results that are not used. Raises ConfigError if the folder
    belongs to an experiment.
    """
    folder = RunFolder(journal.path.parent)
    spec = source.spec
    function = spec.function
    file = io.BytesIO()
    for item in spec.items:
        row = [item.key, item.name, item.value if is_json(item.value) else None]
        file.write(json.dumps(row).encode() + b"\n")
    text = file.getvalue()
    digest = hashlib.sha256(text).hexdigest()
    header = latest(journal.entries, MapStarted)
    if source.tracker.finished == len(spec.items):
        if header and header.digest == digest:
            atomic_write(folder.items, text)
        return
    if latest(journal.entries, RunStarted):
        raise ConfigError(f"'{folder.path}' holds an experiment: choose another folder.")
    if line := unused(spec, lambda: JournalReading(journal.path)):
        say(line)
    atomic_write(folder.items, text)
    journal.append(
        MapStarted(
            function=function.name,
            version=function.version,
            stated=function.stated,
            reference=spec.reference,
            items=len(spec.items),
            seed=spec.seed,
            batch_size=spec.options.batch_size,
            retries=spec.options.retries,
            timeout=spec.options.timeout,
            environment=environment("daskmetrics", "distributed", "numpy"),
            digest=digest,
            code=function.code,
        )
    )


def continued(spec: MapSpec, entries: Iterable[Event], retry: bool = False) -> MapSpec:
    """The map under the version of the recorded results that it continues.

    That is another one than the version of its code after ``retry``: what had succeeded is kept when a
    mended function runs the failed items again, then and later.
    """
    function = spec.function
    headers = [header for header in _starts(entries) if header.function == function.name]
    if not retry:
        headers = [
            header for header in headers if not header.stated and header.code == function.code
        ]
    if function.stated or not headers or headers[-1].version == function.version:
        return spec
    return spec.under(headers[-1].version)


def unused(spec: MapSpec, entries: Callable[[], Iterable[Event]]) -> str | None:
    """A line on recorded results of other code, if items that have one are computed again."""
    function = spec.function
    change = "Another version is given" if function.stated else "Its code has changed"
    compared = {function.version}  # most starts of a map are of one version
    for header in reversed(_starts(entries())):
        if header.function != function.name:
            return f"Results of {header.function} are kept in this folder, and not used."
        if header.version in compared:
            continue
        compared.add(header.version)
        recorded = _finished(spec, entries())
        count = len(_finished(spec.under(header.version), entries()) - recorded)
        if count:
            return (
                f"{function.name}: {change}. {plural(count, 'recorded result')} of version"
                f" {header.version} will be computed again. To keep them, stop and add --version"
                f" {header.version} (in Python: version='{header.version}')."
            )
    return None


def _starts(entries: Iterable[Event]) -> list[MapStarted]:
    return [entry for entry in entries if isinstance(entry, MapStarted)]


def _finished(spec: MapSpec, entries: Iterable[Event]) -> set[int]:
    statuses = ItemTracker(spec.items, spec.options.retries, entries).statuses
    return {position for position, status in enumerate(statuses) if status}


def retry_failed(spec: MapSpec, journal: Journal) -> int:
    """Reset the items that failed, so that they run again with all their retries.

    Returns how many.
    """
    statuses = ItemTracker(spec.items, spec.options.retries, JournalReading(journal.path)).statuses
    keys = zip(spec.items.keys, statuses, strict=True)
    failed = [key for key, status in keys if status not in (None, "ok")]
    if failed:
        journal.append(ItemsRetried(failed))
    return len(failed)


def earlier_state(spec: MapSpec, journal: Path, finished: int) -> tuple[int, int]:
    """How many entries of a journal make up an earlier state of a map, and how many there are.

    The latest one with at most so many finished items. Raises ConfigError if nothing was recorded
    later.
    """
    tracker = ItemTracker(spec.items, spec.options.retries)
    keep: int | None = None
    number = 0
    for entry in JournalReading(journal):
        tracker.enter(entry)
        if isinstance(entry, Record):
            if tracker.finished <= finished:
                keep = None
            elif keep is None:
                keep = number
        number += 1
    if keep is None:
        raise ConfigError(f"No more than {finished} items are finished: leave out --resume-from.")
    return keep, number


def set_aside(path: Path, lock: Path, keep: int) -> Path:
    """Continue from an older state: a journal without what follows its first ``keep`` entries.

    The whole journal stays beside it, under the name that is returned. Raises LockedError if a
    driver has the run.
    """
    with room_for(f"the journal '{path}'"), closing(RunLock(lock)):
        names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(1))
        aside = next(name for name in names if not name.exists())
        lines = path.read_bytes().splitlines(keepends=True)
        os.link(path, aside)
        with suppress(FileNotFoundError):  # it states the length of the whole journal
            mark_of(path).replace(mark_of(aside))
        atomic_write(path, b"".join(lines[: keep + 1]))  # the first holds the format
    return aside


def is_map(folder: str | Path) -> bool:
    """Whether a folder is that of a map, also if the file of its items is gone."""
    run = RunFolder(Path(folder))
    if run.items.is_file():
        return True
    if not run.journal.is_file():  # to open a pipe would wait for ever
        return False
    with suppress(OSError), run.journal.open("rb") as file:
        return any(b' {"type":"map",' in line for line in islice(file, 2))
    return False


class RecordedResults(Sequence[ItemResult]):
    """Results of a map in the order of its items, each read from the journal when it is needed."""

    def __init__(
        self,
        journal: Path,
        items: Items,
        retries: int,
        entries: Iterable[tuple[int, Event]] | None = None,
    ) -> None:
        """By default of all entries of the journal; others come with the places of their lines."""
        self.tracker = ItemTracker(items, retries)
        self._journal = journal
        self._places = array("q", bytes(8 * len(items)))  # of the record of each item
        for place, entry in placed(JournalReading(journal)) if entries is None else entries:
            for position, _ in self.tracker.enter(entry):
                self._places[position] = place
        statuses = enumerate(self.tracker.statuses)
        self._finished = array("q", (position for position, status in statuses if status))

    def __len__(self) -> int:
        return len(self._finished)

    def __getitem__(self, index: Any) -> Any:
        (result,) = self._read([self._finished[index]])
        return result

    def __iter__(self) -> Iterator[ItemResult]:
        return self._read(self._finished)

    def _read(self, positions: Iterable[int]) -> Iterator[ItemResult]:
        keys = self.tracker.items.keys
        with self._journal.open("rb") as file:
            for place, together in groupby(positions, self._places.__getitem__):
                record = entry_at(file, place)
                assert isinstance(record, Record)
                outcomes = {outcome.key: outcome for outcome in outcomes_of(record, [ALONE])}
                for position in together:
                    outcome = outcomes.get(keys[position]) or outcomes[ALONE]
                    yield self.tracker.result(position, outcome, record.worker)


def placed(reading: JournalReading) -> Iterator[tuple[int, Event]]:
    """Entries with the places of their lines."""
    return ((reading.place, entry) for entry in reading)


def read_map(folder: str | Path) -> tuple[MapStarted, RecordedResults]:
    """The header of the last start of a map, and its results so far.

    Errors as for `started`.
    """
    journal = RunFolder(Path(folder)).must_exist().journal
    header, items = started(folder, read(journal, RESULTS))
    return header, RecordedResults(journal, items, header.retries)


def started(
    folder: str | Path, entries: Iterable[Event], known: Container[int] = ()
) -> tuple[MapStarted, Items]:
    """The header of the last start of a map, and its items, without those at known positions.

    Raises ConfigError if there is no map in the folder, and DataError if a line is damaged, or the
    items are missing or were changed.
    """
    run = RunFolder(Path(folder))
    header = latest(list(entries), MapStarted)
    if header is None:
        raise ConfigError(f"The run in '{run.path}' is no map. Start one with: daskmetrics map")
    if not run.items.is_file():
        raise DataError(f"'{run.items}' is missing. {REMEDY}")
    with run.items.open("rb") as file:
        if header.digest not in ("", hashlib.file_digest(file, "sha256").hexdigest()):
            raise DataError(f"'{run.items}' was changed. {REMEDY}")
        rows = _ItemRows(os.dup(file.fileno()))
        positions: dict[Key, int] = {}
        indices = array("q")
        start = file.seek(0)
        for index, line in enumerate(file):
            if index not in known:
                try:
                    key, _, _ = json.loads(line)
                except ValueError:
                    raise DataError(
                        f"Line {index + 1} of '{run.items}' is damaged. {REMEDY}"
                    ) from None
                positions[key] = len(positions)
                indices.append(index)
                rows.lines.append(start)
                rows.lines.append(len(line))
            start += len(line)
    return header, Items(positions, _Column(rows, 2), names=_Column(rows, 1), indices=indices)


class _ItemRows:
    """The rows of the file of items, read when they are needed."""

    def __init__(self, file: int) -> None:
        self.lines = array("q")  # where each line begins, and its length
        self._file = file
        self._latest: tuple[int, Sequence[Any]] = (-1, ())
        weakref.finalize(self, os.close, file)

    def __getitem__(self, position: int) -> Sequence[Any]:
        if self._latest[0] != position:
            start, length = self.lines[2 * position], self.lines[2 * position + 1]
            self._latest = position, json.loads(os.pread(self._file, length, start))
        return self._latest[1]


@dataclass(frozen=True)
class _Column(Sequence[Any]):
    """A column of rows."""

    rows: _ItemRows
    number: int

    def __len__(self) -> int:
        return len(self.rows.lines) // 2

    def __getitem__(self, position: Any) -> Any:
        return self.rows[position][self.number]


def results(folder: str | Path) -> list[ItemResult]:
    """The results of a map so far, read from its folder, in the order of its items.

    Raises
    ------
    ConfigError
        If there is no map in the folder.
    DataError
        If a line is damaged.
    """
    _, recorded = read_map(folder)
    return list(recorded)


@dataclass(frozen=True)
class ResultDifference:
    """A field of an item's value that differs when it is computed or written again."""

    item: str
    field: str
    recorded: object
    again: object


@dataclass(frozen=True)
class Verification:
    """Result of `verify`.

    Attributes
    ----------
    lines, results, items : int
        Intact lines of the journal, finished items, and all items.
    duplicates : tuple of str
        Items with more than one successful result.
    sampled : int
        Number of items that were run again.
    differences : tuple of ResultDifference
    """

    lines: int
    results: int
    items: int
    duplicates: tuple[str, ...]
    sampled: int
    differences: tuple[ResultDifference, ...]

    @property
    def ok(self) -> bool:
        return not (self.duplicates or self.differences)

    @property
    def text(self) -> str:
        """What was checked, and what differs."""
        differing = len({gap.item for gap in self.differences})
        lines = [
            f"{self.lines} lines of the journal are intact.",
            f"{self.results} of {self.items} items are finished.",
            f"Items recorded more than once: {', '.join(self.duplicates) or 'none'}.",
            f"Run again: {self.sampled} items, {differing} differ.",
        ]
        by_field = Counter(gap.field for gap in self.differences)
        lines += [
            f"  {name}: differs in {number} of {self.sampled}"
            for name, number in sorted(by_field.items())
        ]
        lines += [
            f"  {gap.item}: {gap.field} was {gap.recorded!r}, now {gap.again!r}"
            for gap in self.differences[:MOST_SHOWN]
        ]
        return "\n".join(lines)


def verify(
    folder: str | Path,
    *,
    sample: int = 20,
    ignore: Sequence[str] = (),
    tolerance: float = 0.0,
    function: Callable[..., object] | None = None,
    values: Iterable[object] | None = None,
) -> Verification:
    """Check the folder of a map: its lines, its items, and a random sample of its results.

    Parameters
    ----------
    folder : str or Path
    sample : int
        Number of successful items to run again in this process.
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
        If a line of the journal is damaged, or the file of the items was changed.
    ConfigError
        If there is no map, if the function or the items are not available, or if the function has
        changed.
    """
    header, recorded = read_map(folder)
    entries = list(read(RunFolder(Path(folder)).journal))
    keys = recorded.tracker.items.keys
    if values is None:
        values = recorded.tracker.items.values
    remade = make_items(values, header.function, header.version, header.seed)
    if not set(keys) <= remade.positions.keys():
        raise ConfigError(
            "These are not the items of the map; those that JSON cannot hold are not in its "
            "folder. Give the items as values=."
        )
    succeeded = [result for result in recorded if result.ok]
    chosen = random.Random(0).sample(succeeded, min(sample, len(succeeded)))
    if chosen and function is None:
        if not header.reference:
            raise ConfigError(f"The journal names no module: give {header.function} as function=.")
        function = load(header.reference)
    differences: list[ResultDifference] = []
    if function is not None:
        prepared = prepare(function, items=remade.values)
        if prepared.code != header.code and not header.stated:
            raise ConfigError(f"The code of {prepared.name} has changed: restore it to compare.")
        for result in chosen:
            item = remade[remade.positions[result.key]]
            outcome = run_call(function, item.key, item.value, prepared.keywords(item.seed, 1))
            differences += _value_differences(result, outcome, ignore, tolerance)
    batches = [record.value for record in records(entries) if isinstance(record.value, Mapped)]
    outcomes = (outcome for batch in batches for outcome in batch.items)
    successes = Counter(outcome.key for outcome in outcomes if outcome.status == "ok")
    return Verification(
        len(entries),
        len(recorded),
        len(keys),
        tuple(remade[remade.positions[key]].name for key in keys if successes[key] > 1),
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
    before = dict(flatten(result.value))
    after = dict(flatten(outcome.value))
    for name in sorted({*before, *after} - set(ignore)):
        recorded = before.get(name)
        repeated = after.get(name)
        same = recorded == repeated
        if tolerance and isinstance(recorded, float) and isinstance(repeated, int | float):
            same = math.isclose(recorded, repeated, rel_tol=tolerance)
        if not same:
            yield ResultDifference(result.name, name, recorded, repeated)


def compare(path: str | Path, folder: str | Path) -> list[ResultDifference]:
    """Differences between a results file and the journal of its map.

    The results are written to a second file of the same format, and both are compared as they are
    read back.

    Parameters
    ----------
    path : str or Path
        A results file of any format that `write` supports.
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
    """The folder among ``runs`` of the map with most items of a results file.

    Raises ConfigError if none has any.
    """
    table = _read_table(Path(path))
    keys = set(table.get("key", ()))
    counts: Counter[Path] = Counter()
    for folder in sorted(Path(runs).glob("*")):
        # a damaged run beside it is read where it is named
        with suppress(DataError):
            if is_map(folder):
                counts[folder] = sum(result.key in keys for result in results(folder))
    if not counts.total():
        raise ConfigError(
            f"No map in '{runs}' has the items of '{path}'. Name its run: daskmetrics runs verify"
            f" {path} --run FOLDER"
        )
    return counts.most_common(1)[0][0]


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        with readable("The results file", path):
            if path.suffix == ".parquet":
                table = pd.read_parquet(path)
            elif path.suffix == ".csv":
                # as texts: numbers would be rounded, and 'NA' would be missing
                table = pd.read_csv(path, dtype=str, keep_default_na=False)
            else:
                text = path.read_text("utf-8")
                if path.suffix == ".jsonl":
                    text = f"[{','.join(text.splitlines())}]"
                table = pd.json_normalize(json.loads(text))
    except DataError as error:
        raise DataError(f"{error} {REMEDY}") from error
    if "index" not in table:
        raise DataError(
            f"'{path}' is not a results file of a map: it has no column 'index'. Its columns: "
            f"{', '.join(map(str, table)) or 'none'}."
        )
    return table.set_index("index")


def _table_differences(table: pd.DataFrame, expected: pd.DataFrame) -> Iterator[ResultDifference]:
    for index in table.index[table.index.duplicated()]:
        yield ResultDifference(str(index), "row", "twice", "once")
    rows = table[~table.index.duplicated()].astype(object)
    # what only one of them has is absent in the other
    before, after = rows.align(expected.astype(object), fill_value=ABSENT)
    differs = (before != after) & ~(before.isna() & after.isna())
    for row, column in zip(*differs.to_numpy().nonzero(), strict=True):
        names = str(before.index[row]), before.columns[column]
        yield ResultDifference(*names, before.iat[row, column], after.iat[row, column])
