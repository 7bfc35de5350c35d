"""One static page that lists the runs in a folder, with a link to the report of each."""

from __future__ import annotations

from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from shlex import quote
from time import localtime, strftime
from typing import Any

from yaml import YAMLError

from daskmetrics.answer import analysis
from daskmetrics.core.errors import DaskmetricsError, room_for
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.text import plural
from daskmetrics.domain.names import arm_name
from daskmetrics.execution.map.folder import is_map
from daskmetrics.report._format import measured, percent
from daskmetrics.report._run import Run
from daskmetrics.report.markup import template

Row = dict[str, Any]
# what reading files may raise that are damaged, or that another program has written
UNREADABLE = (
    *(OSError, EOFError, YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration),
)


def runs_in(folder: Path) -> list[RunFolder]:
    """The runs in a folder, without links.

    A folder that does not exist has none.
    """
    runs = []
    for path in folder.iterdir() if folder.is_dir() else ():
        run = RunFolder(path)
        with suppress(OSError):  # that of another user
            if not path.is_symlink() and (run.journal.exists() or run.config.exists()):
                runs.append(run)
    return runs


def write_index(folder: Path) -> Path:
    """Write ``index.html``, which lists the runs in a folder.

    Raises
    ------
    StorageError
        If the disk is full.
    """
    content = template("index.html").render(folder=folder, rows=rows(folder))
    with room_for(f"the list of runs in '{folder}'"):
        return atomic_write(folder / "index.html", content)


def rows(folder: Path) -> list[Row]:
    """A row for each run, the latest changed first.

    It has ``name``, ``changed`` (seconds since 1970), ``when`` (the same as text), ``report``
    (whether it is written), and its columns or the ``problem``.
    """
    listed = sorted(map(_row, runs_in(folder)), key=itemgetter("changed"), reverse=True)
    for row in listed:
        row["when"] = strftime("%Y-%m-%d %H:%M:%S", localtime(row["changed"]))
    return listed


def _row(folder: RunFolder) -> Row:
    """A row, whatever a damaged or foreign folder holds."""
    row: Row = {"name": folder.path.name, "changed": 0.0, "report": False}
    try:
        changed = folder.journal if folder.journal.exists() else folder.path
        row["changed"] = changed.stat().st_mtime
        page = folder.report / "index.html"
        row["report"] = page.is_file() and not page.is_symlink()
        if not is_map(folder.path):
            return row | _columns(Run(folder.path))
        command = f"daskmetrics status {quote(str(folder.path))}"
        return row | {"state": "map", "problem": f"Its items are listed by: {command}"}
    except DaskmetricsError as error:
        return row | {"state": "not readable", "problem": str(error)}
    except UNREADABLE as error:
        return row | {"state": "not readable", "problem": f"{type(error).__name__}: {error}"}


def _columns(run: Run) -> Row:
    done = run.counts["measure", "ok"]
    progress = f"{done:,} of {plural(len(run.plan.checkpoints), 'checkpoint')}"
    if run.kinds:
        progress = f"{run.compared.size:,} of {plural(run.plan.cells, 'score')}"
    columns = {"state": "unfinished", "progress": progress}
    if run.finished:
        columns["state"] = "finished"
    elif run.driver:
        columns["state"] = "running"
    shown = None
    if best := run.recommendation:
        shown = best.arm
        columns["arm"] = arm_name(shown, run.plan.layer_names)
        if not best.confirmed:
            columns["arm"] += " (expected)"
        columns["cost"] = f"{percent(best.spent / best.exhaustive)} of scoring everything"
    elif leader := analysis.leader(run.means):
        shown = leader.arm
        columns["arm"] = f"{arm_name(shown, run.plan.layer_names)} (so far)"
    if shown in run.means:
        columns["score"] = measured(run.plan.tasks, run.plan.weights, *run.means[shown])
    return columns
