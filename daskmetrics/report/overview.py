"""The runs of a folder, one row each, read again only when their files have changed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from yaml import YAMLError

from daskmetrics.answer import analysis
from daskmetrics.answer.recorded import cell_of
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unknown
from daskmetrics.core.files import RunFolder
from daskmetrics.core.text import duration
from daskmetrics.execution.journal import holder
from daskmetrics.report._format import number, percent, scored
from daskmetrics.report._run import UNFINISHED, Run, state_word

MOST_OPEN = 8  # runs that are kept in memory for pages of their own
PATIENCE = (
    10  # a run that changes is read again after this many times the seconds that reading it took
)
Stamp = tuple[int, int]  # of a journal: its modification time in nanoseconds, and its size
# what reading files may raise that are damaged, or that another program has written
UNREADABLE = (
    *(DaskmetricsError, OSError, EOFError, YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration),
)
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
        folders = self._folders()
        for name in self._rows.keys() - folders.keys():
            del self._rows[name]
        rows = itertools.starmap(self._row, folders.items())
        return sorted(rows, key=lambda row: -row.changed)

    def run(self, name: str) -> Run:
        """A run by the name of its folder, as its files are now.

        Raises
        ------
        ConfigError
            If there is no such run in the folder: a path is not a name.
        DataError
            If it cannot be read.
        """
        folder = self._folder_of(name)
        self._open[name] = _read_again(
            folder, self._open.pop(name, None), lambda stamp: Run(folder.path)
        )
        for oldest in list(self._open)[:-MOST_OPEN]:
            del self._open[oldest]
        return self._open[name].value

    def file_of_report(self, name: str, file: str) -> Path | None:
        """A file of a run's report, if there is one of this name; links to other places are not
        followed.
        """
        folder = self._folder_of(name).report
        if folder.is_dir() and not folder.is_symlink():
            for path in folder.iterdir():
                if path.name == file and path.is_file() and not path.is_symlink():
                    return path
        return None

    def _folders(self) -> Mapping[str, RunFolder]:
        """What looks like a run, by name; nothing outside of the folder, whatever links point to."""
        folders = {}
        for path in self.folder.iterdir():
            folder = RunFolder(path)
            is_own = path.is_dir() and not path.is_symlink()
            if is_own and (folder.journal.exists() or folder.config.exists()):
                folders[path.name] = folder
        return folders

    def _folder_of(self, name: str) -> RunFolder:
        folders = self._folders()
        if name not in folders:
            raise unknown("run", name, sorted(folders))
        return folders[name]

    def _row(self, name: str, folder: RunFolder) -> RunRow:
        self._rows[name] = _read_again(folder, self._rows.get(name), partial(_read_row, folder))
        row = self._rows[name].value
        # whether a process drives it now, which its journal does not say
        if row.state == UNFINISHED and holder(folder.lock):
            return replace(row, state="running")
        return row


@dataclass(frozen=True)
class _Read(Generic[T]):
    """What was read of a run, of which state of its journal, and when it may be read again."""

    stamp: Stamp
    value: T
    after: float


def _read_again(
    folder: RunFolder, previous: _Read[T] | None, read: Callable[[Stamp], T]
) -> _Read[T]:
    """What is known of a run, read again if its journal has changed; a long one is not read without
    a pause.
    """
    stamp = _stamp(folder)
    began = time.monotonic()
    if previous and (previous.stamp == stamp or began < previous.after):
        return previous
    value = read(stamp)
    ended = time.monotonic()
    return _Read(stamp, value, ended + PATIENCE * (ended - began))


def _stamp(folder: RunFolder) -> Stamp:
    try:
        stat = folder.journal.stat()
    except OSError:
        stat = folder.path.stat()
    return stat.st_mtime_ns, stat.st_size


def _read_row(folder: RunFolder, stamp: Stamp) -> RunRow:
    """The row of a run; whatever a damaged or foreign folder holds, one row says what is wrong with
    it.
    """
    row = RunRow(folder.path.name, changed=stamp[0] / 1e9)
    try:
        return _row_of(Run(folder.path), row)
    except UNREADABLE as error:
        return replace(row, problem=reason(error))


def reason(error: Exception) -> str:
    """Why a run cannot be read: our own message, or any other error, as of a file that another
    program has written.
    """
    if isinstance(error, DaskmetricsError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _row_of(run: Run, row: RunRow) -> RunRow:
    best = score = cost = ""
    if result := run.result:
        best = str(result.best_arm)
        if not result.confirmed:
            best += " (expected)"
        if mean := result.best["mean"]:
            score = number(mean["score"], mean["stderr"])
        cost = f"{percent(result.spent / result.exhaustive)} of scoring everything"
    else:
        if leader := analysis.leader(run):
            best = f"{leader[0]} (so far)"
            score = number(*run.mean_over(leader[0], tuple(run.weights)))
        if run.picks:
            cost = f"{duration(sum(pick['cost'] for pick in run.picks))} (estimated)"
    return replace(row, state=state_word(run), progress=run.done, arm=best, score=score, cost=cost)


def ago(moment: float) -> str:
    """How long ago a time was, in words."""
    seconds = time.time() - moment
    if seconds < 2:
        return "now"
    return f"{duration(seconds)} ago"


def score_of(run: Run, pick: Mapping[str, Any]) -> str:
    """The score of a decision's cell with its error, if it is known."""
    cell = cell_of(pick)
    score = run.recorded.get(cell.arm, {}).get(cell.task)
    return scored(score, without="open")
