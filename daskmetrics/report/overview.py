"""The runs of a folder, one row each, read again only when their files have changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import cell_of
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unknown
from daskmetrics.core.files import RunFolder
from daskmetrics.core.text import duration
from daskmetrics.report._format import number, percent
from daskmetrics.report._run import Run

MOST_OPEN = 8  # runs that are kept in memory for pages of their own
PATIENCE = (
    10  # a run that changes is read again after this many times the seconds that reading it took
)
Stamp = tuple[int, int]  # of a journal: its modification time in nanoseconds, and its size
T = TypeVar("T")


@dataclass(frozen=True)
class RunRow:
    """A run in the list of runs, as text; ``problem`` says why it cannot be read."""

    name: str  # of its folder
    changed: float  # seconds since 1970
    state: str = "not readable"
    progress: str = ""
    arm: str = ""
    score: str = ""
    cost: str = ""
    problem: str = ""


class RunCollection:
    """The runs in a folder; it reads their files, and writes nothing.

    Parameters
    ----------
    folder : Path
        The folder that holds the folders of the runs.

    Raises
    ------
    ConfigError
        If it is not a folder, or itself the folder of a run.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigError(
                f"'{folder}' is not a folder. Give the folder that holds the runs, such as runs/."
            )
        if RunFolder(folder).journal.exists():
            raise ConfigError(
                f"'{folder}' is a run. Give the folder that holds it: '{folder.resolve().parent}'."
            )
        self.folder = folder
        self._rows: dict[str, _Read[RunRow]] = {}
        self._open: dict[str, _Read[Run]] = {}  # the latest last

    def rows(self) -> list[RunRow]:
        """A row for each run, the latest changed first."""
        found = self._folders()
        self._rows = {name: known for name, known in self._rows.items() if name in found}
        return sorted(
            (self._row(name, place) for name, place in found.items()), key=lambda row: -row.changed
        )

    def run(self, name: str) -> Run:
        """A run by the name of its folder, as its files are now.

        Raises
        ------
        ConfigError
            If there is no such run in the folder: a path is not a name.
        DataError
            If it cannot be read.
        """
        place = self._place(name)
        self._open[name] = _read_again(
            place, self._open.pop(name, None), lambda stamp: Run(place.path)
        )
        for oldest in list(self._open)[:-MOST_OPEN]:
            del self._open[oldest]
        return self._open[name].value

    def file_of_report(self, name: str, file: str) -> Path | None:
        """A file of a run's report, if there is one of this name; links to other places are not
        followed.
        """
        folder = self._place(name).report
        inside = (
            {path.name: path for path in folder.iterdir()}
            if folder.is_dir() and not folder.is_symlink()
            else {}
        )
        path = inside.get(file)
        return path if path and path.is_file() and not path.is_symlink() else None

    def _folders(self) -> Mapping[str, RunFolder]:
        """What looks like a run, by name; nothing outside of the folder, whatever links point to."""
        places = (
            RunFolder(path)
            for path in self.folder.iterdir()
            if path.is_dir() and not path.is_symlink()
        )
        return {
            each.path.name: each for each in places if each.journal.exists() or each.config.exists()
        }

    def _place(self, name: str) -> RunFolder:
        found = self._folders()
        if name not in found:
            raise unknown("run", name, sorted(found))
        return found[name]

    def _row(self, name: str, place: RunFolder) -> RunRow:
        self._rows[name] = _read_again(place, self._rows.get(name), partial(_read_row, place))
        row = self._rows[name].value
        return replace(row, state=_state(place)) if row.state == UNFINISHED else row


UNFINISHED = "unfinished"


@dataclass(frozen=True)
class _Read(Generic[T]):
    """What was read of a run, of which state of its journal, and when it may be read again."""

    stamp: Stamp
    value: T
    after: float


def _read_again(place: RunFolder, known: _Read[T] | None, read: Callable[[Stamp], T]) -> _Read[T]:
    """What is known of a run, read again if its journal has changed; a long one is not read without
    a pause.
    """
    stamp, began = _stamp(place), time.monotonic()
    if known and (known.stamp == stamp or began < known.after):
        return known
    value, ended = read(stamp), time.monotonic()
    return _Read(stamp, value, ended + PATIENCE * (ended - began))


def _stamp(place: RunFolder) -> Stamp:
    try:
        about = place.journal.stat()
    except OSError:
        about = place.path.stat()
    return about.st_mtime_ns, about.st_size


def _state(place: RunFolder) -> str:
    """Whether a process drives an unfinished run now, which its journal does not say."""
    from daskmetrics.execution.journal import holder

    return "running" if holder(place.lock) else UNFINISHED


def _read_row(place: RunFolder, stamp: Stamp) -> RunRow:
    """The row of a run; whatever a damaged or foreign folder holds, one row says what is wrong with
    it.
    """
    row = RunRow(place.path.name, changed=stamp[0] / 1e9)
    try:
        return _row_of(Run(place.path), row)
    except Exception as error:
        return replace(row, problem=reason(error))


def reason(error: Exception) -> str:
    """Why a run cannot be read: our own message, or any other error, as of a file that another
    program has written.
    """
    return str(error) if isinstance(error, DaskmetricsError) else f"{type(error).__name__}: {error}"


def _row_of(run: Run, row: RunRow) -> RunRow:
    result = run.result
    if result:
        best = f"{result.best_arm}{'' if result.confirmed else ' (expected)'}"
        mean = result.best["mean"]
        score = number(mean["score"], mean["stderr"]) if mean else ""
        cost = f"{percent(result.spent / result.exhaustive)} of the sweep"
    else:
        leader, best, score = analysis.leader(run), "", ""
        if leader:
            best, score = (
                f"{leader[0]} (so far)",
                number(*run.mean_over(leader[0], tuple(run.weights))),
            )
        cost = f"{duration(sum(pick['cost'] for pick in run.picks))} (assumed)" if run.picks else ""
    state = "finished" if run.finished else UNFINISHED
    return replace(row, state=state, progress=run.done, arm=best, score=score, cost=cost)


def ago(then: float) -> str:
    """How long ago a time was, in words."""
    seconds = time.time() - then
    return "now" if seconds < 2 else f"{duration(seconds)} ago"


def score_of(run: Run, pick: Mapping[str, Any]) -> str:
    """The score of a decision's cell with its error, if it is known."""
    cell = cell_of(pick)
    score = run.recorded.get(cell.arm, {}).get(cell.task)
    return number(score.score, score.stderr) if score else "open"
