"""The report as one self-contained page.

The page loads nothing and sends nothing. Its content policy forbids every connection, and every
script but two, which it names by their digests: BokehJS and `page.js`. No text is evaluated as
code. Without JavaScript the page shows static figures.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from daskmetrics.answer import analysis
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder, atomic_write
from daskmetrics.core.serialization import as_json
from daskmetrics.core.telemetry import read_samples
from daskmetrics.report import _terminal as terminal
from daskmetrics.report._format import number, template
from daskmetrics.report._run import Run
from daskmetrics.report._sections import folded_tables, tables
from daskmetrics.report.plots import need_matplotlib

if TYPE_CHECKING:
    from daskmetrics.report.plots.figures import Picture

GENERATOR = f"daskmetrics {version('daskmetrics')}"
EMBEDDED = 1_000_000  # bytes of static figures within the page, for readers without JavaScript
MOST_ROWS = 200  # of the leaderboard: the page of thousands of candidates stays small
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src"
    " 'unsafe-inline'"
)


def write_page(run: Run, vectors: bool = False) -> Path:
    """Write ``report/index.html`` and its figures, unless they are newer than the journal; returns
    the page's path.

    With ``vectors`` the figures are written as SVG files, too.
    """
    folder = run.folder.report
    folder.mkdir(exist_ok=True)
    index = folder / "index.html"
    if _is_fresh(index, run) and not vectors:
        return index
    pictures: list[Picture] = []
    if find_spec("matplotlib") is not None:
        from daskmetrics.report.plots import figures

        pictures += figures.pictures(run)
        # delete the files of figures that the run no longer has; other files are not ours
        for name in (figures.NAMES | figures.EARLIER) - {picture.name for picture in pictures}:
            for kind in ("png", "svg"):
                (folder / f"{name}.{kind}").unlink(missing_ok=True)
    for picture in pictures:
        atomic_write(folder / f"{picture.name}.png", picture.png)
        if vectors:
            atomic_write(folder / f"{picture.name}.svg", picture.svg)
    answer = run.result and run.answer
    summary = {"name": run.start.name, "finished": run.finished, "answer": answer}
    atomic_write(folder / "summary.json", as_json(summary))
    return atomic_write(index, page(run, pictures))


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
    return atomic_write(folder.report / "telemetry.png", telemetry(samples).png)


def _is_fresh(page: Path, run: Run) -> bool:
    """Whether this version wrote the page after the last line of the journal, with pictures if
    matplotlib is there.
    """
    if not page.is_file() or page.stat().st_mtime_ns <= run.folder.journal.stat().st_mtime_ns:
        return False
    with page.open(encoding="utf-8") as file:
        head = file.read(1000)
    drawn = any(page.parent.glob("*.png")) or find_spec("matplotlib") is None
    return f'content="{GENERATOR}"' in head and drawn


def page(run: Run, pictures: Sequence[Picture]) -> str:
    """The page as HTML with its figures; it loads nothing."""
    from bokeh.core.json_encoder import serialize_json
    from bokeh.resources import Resources

    from daskmetrics.report.plots.interactive import figures

    drawn = figures(run)
    scripts = [files("daskmetrics.report").joinpath("page.js").read_text(encoding="utf-8")]
    data = ""
    if drawn:
        library = Resources(mode="inline", minified=True, components=["bokeh"])
        scripts.insert(0, library.js_raw[0])
        # no text of a run can end the element that holds it
        data = serialize_json(drawn.data).replace("<", "\\u003c")
    # how a content policy names a script
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()) for text in scripts]
    named = " ".join(f"'sha256-{digest.decode()}'" for digest in digests)
    embedded, remaining = set(), EMBEDDED
    for picture in pictures:  # those that fit into the page; the others are beside it
        if len(picture.png) <= remaining:
            embedded.add(picture.name)
            remaining -= len(picture.png)
    of_answer = tables(run.answer) if run.result else []
    return template("page.html").render(
        run=run,
        best=run.result and run.best(),
        tables={table.title: replace(table, title="") for table in of_answer},
        folded=folded_tables(run),
        analysis=analysis,
        terminal=terminal,
        number=number,
        board=run.leaderboard() if run.recorded else None,
        most_rows=MOST_ROWS,
        figures=drawn,
        data=data,
        scripts=scripts,
        policy=f"{POLICY}; script-src {named}",
        pictures=pictures,
        embedded=embedded,
        about=_settings(run),
        generator=GENERATOR,
        version=run.start.environment["daskmetrics"],
    )


def _settings(run: Run) -> str:
    """What a repetition of the run needs, as YAML."""
    settings: dict[str, object] = {"name": run.start.name, "key": run.start.key}
    # not all of the configuration: a profile may hold what a reader must not see
    settings |= {name: run.config[name] for name in ("seed", "corpus", "protocol", "search")}
    if protocols := run.tree.attrs.get("protocols"):
        settings["protocol of each model"] = protocols
    settings["versions"] = dict(run.start.environment)
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
