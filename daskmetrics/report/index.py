"""One static page that lists the runs in a folder, with a link to the report of each."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

from jinja2 import TemplateError
from yaml import YAMLError

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError, DaskmetricsError, room_for
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.execution.journal import holder
from daskmetrics.execution.map.folder import is_map
from daskmetrics.report._run import Run
from daskmetrics.report.templates import rows_of, template

Row = dict[str, Any]
# what reading files may raise that are damaged, or that another program has written
UNREADABLE = (
    *(DaskmetricsError, OSError, EOFError, TemplateError, YAMLError),
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, StopIteration),
)


def runs_in(folder: Path) -> list[RunFolder]:
    """The runs in a folder, whatever links point to; none of a folder that does not exist."""
    paths = folder.iterdir() if folder.is_dir() else ()
    inside = (RunFolder(path) for path in paths if not path.is_symlink())
    return [run for run in inside if run.journal.exists() or run.config.exists()]


def write_index(folder: Path) -> Path:
    """Write ``index.html`` into a folder of runs, and return its path.

    Raises
    ------
    ConfigError
        If the folder holds no run.
    StorageError
        If the disk is full.
    """
    listed = rows(folder)
    if not listed:
        raise ConfigError(
            f"'{folder}' is no run and holds none. Give the name or the folder of a run, or the"
            " folder that holds the runs, such as 'runs'."
        )
    content = template("index.html").render(folder=folder, rows=listed)
    with room_for(f"the list of runs in '{folder}'"):
        return atomic_write(folder / "index.html", content)


def rows(folder: Path) -> list[Row]:
    """A row for each run, the latest changed first: ``name``, ``changed`` (local time),
    ``report`` (whether it is written), and what the template `run` says or the ``problem``.
    """
    listed = [_row(run) for run in runs_in(folder)]
    return sorted(listed, key=lambda row: row["changed"], reverse=True)


def _row(folder: RunFolder) -> Row:
    changed = folder.journal if folder.journal.exists() else folder.path
    return {
        "name": folder.path.name,
        "changed": datetime.fromtimestamp(changed.stat().st_mtime).isoformat(" ", "seconds"),
        "report": (folder.report / "index.html").is_file(),
        **_found(folder),
    }


def _found(folder: RunFolder) -> Row:
    """What the list says of a run, whatever a damaged or foreign folder holds."""
    if is_map(folder.path):
        command = f"daskmetrics status {quote(str(folder.path))}"
        return {"state": "map", "problem": f"Its items are listed by: {command}"}
    try:
        run = Run(folder.path)
        found = dict(rows_of("run", run=run, leader=analysis.leader(run)))
    except DaskmetricsError as error:
        return {"state": "not readable", "problem": str(error)}
    except UNREADABLE as error:
        return {"state": "not readable", "problem": f"{type(error).__name__}: {error}"}
    # whether a process drives it now, which its journal does not say
    if found["state"] == "unfinished" and holder(folder.lock):
        found["state"] = "running"
    return found
