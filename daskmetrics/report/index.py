"""One static page that lists the runs in a folder, with a link to the report of each."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from shlex import quote
from time import localtime, strftime
from typing import Any

from jinja2 import TemplateError
from yaml import YAMLError

from daskmetrics.answer import analysis
from daskmetrics.core.errors import DaskmetricsError, room_for
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.execution.journal import holder
from daskmetrics.execution.map.folder import is_map
from daskmetrics.report._run import Run
from daskmetrics.report.templates import rows_of, template

Row = dict[str, Any]
# what reading files may raise that are damaged, or that another program has written
UNREADABLE = (
    *(OSError, EOFError, TemplateError, YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration),
)


def runs_in(folder: Path) -> list[RunFolder]:
    """The runs in a folder, but for links; none of a folder that does not exist."""
    paths = folder.iterdir() if folder.is_dir() else ()
    return [RunFolder(path) for path in paths if not path.is_symlink() and _is_run(path)]


def _is_run(path: Path) -> bool:
    folder = RunFolder(path)
    try:
        return folder.journal.exists() or folder.config.exists()
    except OSError:  # that of another user
        return False


def write_index(folder: Path) -> Path:
    """Write ``index.html``, the list of the runs in a folder, into it, and return its path.

    Raises
    ------
    StorageError
        If the disk is full.
    """
    content = template("index.html").render(folder=folder, rows=rows(folder))
    with room_for(f"the list of runs in '{folder}'"):
        return atomic_write(folder / "index.html", content)


def rows(folder: Path) -> list[Row]:
    """A row for each run, the latest changed first: ``name``, ``changed`` (seconds since 1970),
    ``when`` (the same as text), ``report`` (whether it is written), and what the template `run` says or the ``problem``.
    """
    listed = sorted(map(_row, runs_in(folder)), key=itemgetter("changed"), reverse=True)
    for row in listed:
        row["when"] = strftime("%Y-%m-%d %H:%M:%S", localtime(row["changed"]))
    return listed


def _row(folder: RunFolder) -> Row:
    """What the list says of a run, whatever a damaged or foreign folder holds."""
    row: Row = {"name": folder.path.name, "changed": 0.0, "report": False}
    try:
        changed = folder.journal if folder.journal.exists() else folder.path
        row["changed"] = changed.stat().st_mtime
        page = folder.report / "index.html"
        row["report"] = page.is_file() and not page.is_symlink()
        return row | _found(folder)
    except DaskmetricsError as error:
        return row | {"state": "not readable", "problem": str(error)}
    except UNREADABLE as error:
        return row | {"state": "not readable", "problem": f"{type(error).__name__}: {error}"}


def _found(folder: RunFolder) -> Row:
    if is_map(folder.path):
        command = f"daskmetrics status {quote(str(folder.path))}"
        return {"state": "map", "problem": f"Its items are listed by: {command}"}
    run = Run(folder.path)
    found = dict(rows_of("run", run=run, leader=analysis.leader(run)))
    # whether a process drives it now, which its journal does not say
    if found["state"] == "unfinished" and holder(folder.lock):
        found["state"] = "running"
    return found
