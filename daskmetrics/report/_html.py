"""The report as one self-contained page, and small cards for notebooks."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from daskmetrics.report import _analysis as analysis
from daskmetrics.report import _terminal as terminal
from daskmetrics.report import _timing as timing
from daskmetrics.report._run import Best, Run

if TYPE_CHECKING:
    from daskmetrics.report.plots._figures import Picture

EXTRA = "No figures: they need matplotlib, which comes with the extra 'plot': pip install 'daskmetrics[plot]'"


def write_page(run: Run, vectors: bool = False) -> Path:
    """Write ``report/index.html`` and the figures beside it, unless they show the journal as it is; the page's path.

    With ``vectors`` the figures are written as SVG files, too.
    """
    folder = run.folder.report
    folder.mkdir(exist_ok=True)
    if _is_fresh(folder / "index.html", run) and not vectors:
        return folder / "index.html"
    pictures, note = _pictures(run)
    for picture in pictures:
        _write(folder / f"{picture.name}.png", picture.png)
        if vectors:
            _write(folder / f"{picture.name}.svg", picture.svg)
    return _write(folder / "index.html", page(run, pictures, note).encode())


def _is_fresh(page: Path, run: Run) -> bool:
    """Whether this version wrote the page after the journal's last line, with figures if they can be drawn."""
    if not page.is_file() or page.stat().st_mtime_ns <= run.folder.journal.stat().st_mtime_ns:
        return False
    head = page.read_text(encoding="utf-8")[:1000]
    drawn = any(page.parent.glob("*.png")) or find_spec("matplotlib") is None
    return f'content="{_generator()}"' in head and drawn


def _generator() -> str:
    return f"daskmetrics {version('daskmetrics')}"


def page(run: Run, pictures: list[Picture], note: str = "") -> str:
    """The page's HTML; figures are embedded, and nothing is loaded from anywhere."""
    return (
        _environment()
        .get_template("template.html")
        .render(
            run=run,
            best=run.best() if run.result else None,
            facts=analysis,
            prediction=timing,
            words=terminal,
            pictures=pictures,
            note=note,
            about=_about(run),
            generator=_generator(),
            version=run.start["environment"]["daskmetrics"],
        )
    )


def best_card(best: Best) -> str:
    """A best arm as a notebook shows it."""
    rows = {
        "mean score": terminal.number(best.score, best.stderr),
        f"default {best.default}": terminal.number(best.default_score, best.default_stderr),
        "difference": terminal.difference(best),
        "certainty": terminal.certainty(best),
        "cost": f"{terminal.percent(best.share)} of the exhaustive sweep's (assumed)",
    }
    return _card(f"Best arm: {best.arm}", rows, best.code)


def run_card(run: Run) -> str:
    """A run as a notebook shows it."""
    rows = {
        "state": terminal.state(run),
        "answer": terminal.headline(run),
        "searched": terminal.searched(run) if run.tasks else "no tasks",
        "folder": str(run.folder.path),
    }
    return _card(run.start["name"], rows)


def _card(title: str, rows: Mapping[str, str], code: str = "") -> str:
    return _environment().get_template("card.html").render(title=title, rows=rows, code=code)


def _pictures(run: Run) -> tuple[list[Picture], str]:
    try:
        from daskmetrics.report.plots._figures import pictures
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return [], EXTRA
    return list(pictures(run)), ""


def _about(run: Run) -> dict[str, Mapping[str, Any]]:
    """What one must know to repeat the run."""
    config = run.config
    return {
        "Protocol": config["protocol"],
        "Corpus": config["corpus"],
        "Search": config["search"],
        "Run": {"name": run.start["name"], "seed": config["seed"], "key": run.start["key"]},
        "Versions": run.start["environment"],
    }


def _write(path: Path, content: bytes) -> Path:
    """Write under another name and rename: a reader sees the old file or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    return part.replace(path)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("daskmetrics.report", ""),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment
