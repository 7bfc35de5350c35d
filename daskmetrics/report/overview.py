"""The runs of a folder, one row each, read again only when their files have changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from jinja2 import TemplateError
from yaml import YAMLError

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError, DaskmetricsError, unknown
from daskmetrics.core.files import RunFolder
from daskmetrics.core.text import plural
from daskmetrics.execution.journal import holder
from daskmetrics.report._format import number, percent
from daskmetrics.report._run import Run

MOST_OPEN = 8  # runs that are kept in memory for pages of their own
MOST_ROWS = 1024  # rows that are
UNFINISHED = "unfinished"
Stamp = tuple[int, int]  # of a journal: its modification time in nanoseconds, and its size
# what reading files may raise that are damaged, or that another program has written
UNREADABLE = (
    *(DaskmetricsError, OSError, EOFError, TemplateError, YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration),
)


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

    def rows(self) -> list[RunRow]:
        """A row for each run, the latest changed first."""
        rows = []
        for folder in self._folders().values():
            row = _row(folder, _stamp(folder))
            # whether a process drives it now, which its journal does not say
            if row.state == UNFINISHED and holder(folder.lock):
                row = replace(row, state="running")
            rows.append(row)
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
        return _opened(folder.path, _stamp(folder))

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
        """What looks like a run, by name; nothing outside of the folder, whatever links point
        to.
        """
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


def _stamp(folder: RunFolder) -> Stamp:
    try:
        stat = folder.journal.stat()
    except OSError:
        stat = folder.path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(MOST_OPEN)
def _opened(path: Path, stamp: Stamp) -> Run:
    return Run(path)


@lru_cache(MOST_ROWS)
def _row(folder: RunFolder, stamp: Stamp) -> RunRow:
    """The row of a run; whatever a damaged or foreign folder holds, one row says what is wrong with
    it.
    """
    unread = RunRow(folder.path.name, changed=stamp[0] / 1e9)
    try:
        run = Run(folder.path)
        measured, planned = run.counts["measure", "ok"], run.start.checkpoints
        progress = f"{measured:,} of {plural(planned, 'checkpoint')}"
        if run.tasks:
            progress = f"{run.counts['score', 'ok']:,} of {plural(run.cells_planned, 'score')}"
        arm = score = cost = ""
        if result := run.result:
            arm = str(result.best_arm)
            if not result.confirmed:
                arm += " (expected)"
            if mean := result.best["mean"]:
                score = number(mean["score"], mean["stderr"])
            cost = f"{percent(result.spent / result.exhaustive)} of scoring everything"
        elif leader := analysis.leader(run):
            arm = f"{leader[0]} (so far)"
            score = number(*leader[1])
        state = "finished" if run.finished else UNFINISHED
        return replace(unread, state=state, progress=progress, arm=arm, score=score, cost=cost)
    except UNREADABLE as error:
        return replace(unread, problem=reason(error))


def reason(error: Exception) -> str:
    """Why a run cannot be read: our own message, or any other error, as of a file that another
    program has written.
    """
    if isinstance(error, DaskmetricsError):
        return str(error)
    return f"{type(error).__name__}: {error}"
