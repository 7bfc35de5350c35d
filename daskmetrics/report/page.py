"""The report as one self-contained page.

The page loads nothing and sends nothing. Its content policy forbids every connection, and every
script but two, which it names by their digests: BokehJS and `page.js`. No text is evaluated as
code. Without JavaScript the page shows static figures.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskmetrics.answer import analysis
from daskmetrics.answer.status import worker_use
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.serialization import as_json
from daskmetrics.core.telemetry import read_samples
from daskmetrics.execution.journal import read
from daskmetrics.report import _explain as explained
from daskmetrics.report import _format as formats
from daskmetrics.report import _tables as tables
from daskmetrics.report import _terminal as terminal
from daskmetrics.report._run import Run
from daskmetrics.report._sections import facts, sections
from daskmetrics.report.plots import need_matplotlib

if TYPE_CHECKING:
    from daskmetrics.report.plots.figures import Picture

EMBEDDED = 1_000_000  # bytes of static figures within the page, for readers without JavaScript
MOST_ROWS = 200  # of the leaderboard: the page of thousands of candidates stays small
POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'"


def write_page(run: Run, vectors: bool = False) -> Path:
    """Write ``report/index.html`` and its figures, unless they are newer than the journal; returns
    the page's path.

    With ``vectors`` the figures are written as SVG files, too.
    """
    folder = run.folder.report
    folder.mkdir(exist_ok=True)
    if _is_fresh(folder / "index.html", run) and not vectors:
        return folder / "index.html"
    pictures = _pictures(run)
    if pictures:
        _remove_others(folder, pictures)
    for picture in pictures:
        atomic_write(folder / f"{picture.name}.png", picture.png)
        if vectors:
            atomic_write(folder / f"{picture.name}.svg", picture.svg)
    answer = run.answer if run.result else None
    summary = {"name": run.start.name, "finished": run.finished, "answer": answer}
    atomic_write(folder / "summary.json", as_json(summary))
    return atomic_write(folder / "index.html", page(run, pictures))


def write_map_figure(folder: RunFolder) -> Path:
    """Write the one figure that a map has, what its workers used; ConfigError if there is nothing
    to draw.
    """
    if len(samples := read_samples(folder.telemetry)) < 2:
        raise ConfigError(
            f"'{folder.path}' has no telemetry: the map was too short, or ran in one process."
        )
    need_matplotlib()
    from daskmetrics.report.plots.figures import telemetry

    folder.report.mkdir(exist_ok=True)
    return atomic_write(
        folder.report / "telemetry.png", telemetry(samples, list(read(folder.journal))).png
    )


def _remove_others(folder: Path, pictures: Sequence[Picture]) -> None:
    """Delete the files of figures that the run no longer has; other files are not ours."""
    from daskmetrics.report.plots.figures import NAMES

    for name in NAMES - {picture.name for picture in pictures}:
        for kind in ("png", "svg"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)


def _is_fresh(page: Path, run: Run) -> bool:
    """Whether this version wrote the page after the last line of the journal, with pictures if
    matplotlib is there.
    """
    if not page.is_file() or page.stat().st_mtime_ns <= run.folder.journal.stat().st_mtime_ns:
        return False
    with page.open(encoding="utf-8") as file:
        head = file.read(1000)
    drawn = any(page.parent.glob("*.png")) or find_spec("matplotlib") is None
    return f'content="{_generator()}"' in head and drawn


def _generator() -> str:
    return f"daskmetrics {version('daskmetrics')}"


def page(run: Run, pictures: Sequence[Picture]) -> str:
    """The page as HTML with its figures; it loads nothing."""
    from bokeh.core.json_encoder import serialize_json

    from daskmetrics.report.plots._explore import figures

    config = run.config
    settings = {  # what a repetition of the run needs
        "Protocol": config["protocol"],
        **_protocols(run),
        "Corpus": config["corpus"],
        "Search": config["search"],
        "Run": {"name": run.start.name, "seed": config["seed"], "key": run.start.key},
        "Versions": run.start.environment,
    }
    drawn = figures(run)
    scripts = _scripts(drawn is not None)
    return formats.template("page.html").render(
        run=run,
        best=run.best() if run.result else None,
        facts=facts(run.answer, str(run.folder.path)) if run.result else {},
        sections=sections(run.answer) if run.result else [],
        analysis=analysis,
        explained=explained,
        workers=terminal.worker_table(worker_use(run)),
        terminal=terminal,
        formats=formats,
        board=run.leaderboard() if run.recorded else None,
        most_rows=MOST_ROWS,
        metrics=tables.metrics_table(run),
        predictors=tables.predictors(run),
        figures=drawn,
        # no text of a run can end the element that holds it
        data=serialize_json(drawn.data).replace("<", "\\u003c") if drawn else "",
        scripts=scripts,
        policy=f"{POLICY}; script-src {' '.join(_digest(script) for script in scripts)}",
        pictures=pictures,
        embedded=_embedded(pictures),
        no_pictures=terminal.NO_PICTURES,
        about=settings,
        generator=_generator(),
        version=run.start.environment["daskmetrics"],
    )


@cache
def _scripts(figures: bool) -> tuple[str, ...]:
    """The scripts of a page: BokehJS if it has figures, and its own."""
    from daskmetrics.report.plots._explore import library

    script = files("daskmetrics.report").joinpath("page.js").read_text(encoding="utf-8")
    return (library(), script) if figures else (script,)


def _digest(script: str) -> str:
    """How a content policy names a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _embedded(pictures: Sequence[Picture]) -> set[str]:
    """The names of the pictures that fit into a page; the others are beside it."""
    names = set()
    remaining = EMBEDDED
    for picture in pictures:
        if len(picture.png) <= remaining:
            names.add(picture.name)
            remaining -= len(picture.png)
    return names


def _protocols(run: Run) -> dict[str, Any]:
    """What was done for models of which the protocol of the configuration does not say everything."""
    by_model = {
        model: protocol
        for model, protocol in run.tree.attrs.get("protocols", {}).items()
        if "shipped" in protocol or "prompts" in protocol
    }
    return {"Protocol by model": by_model} if by_model else {}


def _pictures(run: Run) -> list[Picture]:
    if find_spec("matplotlib") is None:
        return []
    from daskmetrics.report.plots.figures import pictures

    return list(pictures(run))
