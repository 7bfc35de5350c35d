"""The report as one self-contained page."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.core._files import atomic_write
from daskmetrics.report import _analysis as analysis
from daskmetrics.report import _format as formats
from daskmetrics.report import _terminal as terminal
from daskmetrics.report import _timing as timing
from daskmetrics.report._fresh import fresh_items
from daskmetrics.report._run import Run

if TYPE_CHECKING:
    from daskmetrics.report.plots._figures import Picture

EXTRA = "No figures: they need matplotlib, which comes with the extra 'plot': pip install 'daskmetrics[plot]'"


def write_page(run: Run, vectors: bool = False) -> Path:
    """Write ``report/index.html`` and its figures, unless they are newer than the journal; returns the page's path.

    With ``vectors`` the figures are written as SVG files, too.
    """
    folder = run.folder.report
    folder.mkdir(exist_ok=True)
    if _is_fresh(folder / "index.html", run) and not vectors:
        return folder / "index.html"
    pictures, note = _pictures(run)
    for picture in pictures:
        atomic_write(folder / f"{picture.name}.png", picture.png)
        if vectors:
            atomic_write(folder / f"{picture.name}.svg", picture.svg)
    atomic_write(folder / "summary.json", json.dumps(summary(run), indent=1))
    return atomic_write(folder / "index.html", page(run, pictures, note))


def summary(run: Run) -> dict[str, Any]:
    """The verdict of a run and what would settle a tie, as plain JSON values for other programs."""
    if run.result is None:
        return {"name": run.start.name, "state": run.state, "verdict": None, "settle": None}
    settle = vars(run.settlement) if run.settlement else None
    return {"name": run.start.name, "state": run.state, "verdict": run.verdict.as_dict(), "settle": settle}


def _is_fresh(page: Path, run: Run) -> bool:
    """Whether this version wrote the page after the last line of the journal, with figures if matplotlib is there."""
    if not page.is_file() or page.stat().st_mtime_ns <= run.folder.journal.stat().st_mtime_ns:
        return False
    head = page.read_text(encoding="utf-8")[:1000]
    drawn = any(page.parent.glob("*.png")) or find_spec("matplotlib") is None
    return f'content="{_generator()}"' in head and drawn


def _generator() -> str:
    return f"daskmetrics {version('daskmetrics')}"


def page(run: Run, pictures: list[Picture], note: str = "") -> str:
    """The page as HTML with embedded figures; it loads nothing."""
    config = run.config
    about = {  # what a repetition of the run needs
        "Protocol": config["protocol"],
        **_protocols(run),
        "Corpus": config["corpus"],
        "Search": config["search"],
        "Run": {"name": run.start.name, "seed": config["seed"], "key": run.start.key},
        "Versions": run.start.environment,
    }
    return formats.template("page.html").render(
        run=run,
        best=run.best() if run.result else None,
        analysis=analysis,
        timing=timing,
        verdict=run.verdict if run.result else None,
        fresh=fresh_items(run),
        terminal=terminal,
        formats=formats,
        pictures=pictures,
        note=note,
        about=about,
        generator=_generator(),
        version=run.start.environment["daskmetrics"],
    )


def _protocols(run: Run) -> dict[str, Any]:
    """What was done for models of which the protocol of the configuration does not say everything."""
    protocols = run.tree.attrs.get("protocols", {})
    done = {model: each for model, each in protocols.items() if {"shipped", "prompts"} & set(each)}
    return {"Protocol by model": done} if done else {}


def _pictures(run: Run) -> tuple[list[Picture], str]:
    try:
        from daskmetrics.report.plots._figures import pictures
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        return [], EXTRA
    return list(pictures(run)), ""
