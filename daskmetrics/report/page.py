"""The report as one self-contained page.

The page loads nothing and sends nothing. Its content policy forbids every connection, and every
script but two, which it names by their digests: BokehJS and `page.js`. No text is evaluated as
code.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from daskmetrics.answer import analysis
from daskmetrics.answer.posterior import path_of
from daskmetrics.answer.status import worker_use
from daskmetrics.core.errors import room_for
from daskmetrics.core.files import atomic_write, private
from daskmetrics.core.serialization import as_json
from daskmetrics.core.table import Table
from daskmetrics.domain.failures import failures_table
from daskmetrics.domain.names import arm_name
from daskmetrics.report._quantities import LINES, METRICS, SCORES, Quantities
from daskmetrics.report._run import Run
from daskmetrics.report.markup import template
from daskmetrics.report.status import status_lines
from daskmetrics.report.tables import (
    decisions_table,
    predictors_table,
    tables,
    trade_offs_table,
    workers_table,
)

if TYPE_CHECKING:
    from bokeh.plotting import figure

GENERATOR = f"daskmetrics {version('daskmetrics')}"
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src"
    " 'unsafe-inline'"
)
MANY = 2000  # arms from which on errors of metrics are left out, for the size of the page


def write(run: Run, vectors: bool = False) -> Path:
    """Write the report, its figures and ``summary.json``; return the page.

    Parameters
    ----------
    run : Run
    vectors : bool
        Whether to write each figure as SVG, too.

    Raises
    ------
    StorageError
        If the disk is full.
    """
    folder = run.folder.report
    with private(), room_for(f"the report in '{folder}'"):
        folder.mkdir(exist_ok=True)
        pictures: Collection[str] = ()
        if find_spec("matplotlib") is not None:
            from daskmetrics.report.figures import write_pictures

            pictures = write_pictures(run, vectors, run.marked)
        answer = run.result and run.answer
        summary = {"name": run.plan.name, "finished": run.finished, "answer": answer}
        atomic_write(folder / "summary.json", as_json(summary))
        return atomic_write(folder / "index.html", page(run, pictures))


def page(run: Run, pictures: Collection[str]) -> str:
    """The page as HTML, which loads nothing.

    ``pictures`` names the files of figures beside it.
    """
    from bokeh.core.json_encoder import serialize_json
    from bokeh.resources import Resources

    drawn = figures(run)
    scripts = [files("daskmetrics.report").joinpath("page.js").read_text(encoding="utf-8")]
    data = ""
    if drawn:
        library = Resources(mode="inline", minified=True, components=["bokeh"])
        scripts.insert(0, library.js_raw[0])
        # no text of a run can end the element that holds it
        data = serialize_json(drawn["data"]).replace("<", "\\u003c")
    named = []  # as a content policy names scripts
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        named.append(f"'sha256-{base64.b64encode(digest).decode()}'")
    failures = analysis.failures(run.records)
    answer = run.answer if run.result else None
    of_answer = tables(answer) if answer else []
    return template("page.html").render(
        run=run,
        best=run.result and run.best(),
        tables={table.title: replace(table, title="") for table in of_answer},
        folded=folded_tables(run),
        missing=sum(failure.count for failure in failures),
        failures=failures_table(failures),
        board=run.leaderboard() if run.recorded else None,
        status=dict(status_lines(run, answer)),
        figures=drawn,
        data=data,
        scripts=scripts,
        policy=f"{POLICY}; script-src {' '.join(named)}",
        pictures=pictures,
        about=yaml.safe_dump(settings_of(run), sort_keys=False, allow_unicode=True),
        generator=GENERATOR,
    )


def folded_tables(run: Run) -> dict[str, Table]:
    """The tables that the page folds, by their titles.

    They have no rows if there is nothing to show.
    """
    folded = {}
    if run.means:
        folded["What a better score costs"] = trade_offs_table(
            run.trade_offs(), run.plan.layer_names
        )
    if run.recorded:
        predictors = predictors_table(analysis.correlations(run))
        folded["Which metrics predict quality here"] = predictors
    folded["The last decisions of the search"] = decisions_table(path_of(run))
    folded["Workers"] = workers_table(worker_use(run.entries, run.records))
    return folded


def settings_of(run: Run) -> dict[str, object]:
    """What a repetition needs.

    Not all of the configuration: a profile may hold what is secret.
    """
    settings: dict[str, object] = {"name": run.plan.name, "key": run.plan.key}
    settings |= {name: run.config[name] for name in ("seed", "corpus", "protocol", "search")}
    if protocols := run.plan.protocols:
        settings["protocol of each model"] = dict(protocols)
    return {**settings, "versions": dict(run.start.environment)}


def figures(run: Run) -> Mapping[str, Any]:
    """The interactive figures of a page; empty without data.

    Their names, the quantities and models to choose from, those that are shown first, and the data
    that the script of the page needs to draw and to change them.
    """
    from bokeh.document import Document

    from daskmetrics.dashboard import drawing

    drawable = Quantities(run)
    suites = drawable.suites
    arms = drawable.arms(suites)
    quantities = drawable.fields(arms) if suites else []
    marks: dict[str, Any] = {}
    named = partial(arm_name, names=run.plan.layer_names)
    # a metric or, without metrics, a cost is compared with the quantity that is shown first
    others = [quantity for quantity in quantities[1:] if quantity.group != SCORES]
    drawn: list[figure] = []
    if quantities:
        columns = {}
        for quantity in quantities:
            columns[f"values of {quantity.name}"] = quantity.values
            if len(arms) <= MANY or quantity.group != METRICS:
                columns[f"errors of {quantity.name}"] = quantity.errors
        source = drawing.arms_source(arms, suites, **columns)
        if any(len(suite.revisions) > 1 for suite in suites):
            drawn.append(drawing.heat_map(source))
        # of each task and, under "", of all other quantities
        for name in sorted({"", *(quantity.name for quantity in quantities)} & {"", *run.kinds}):
            if marked := run.marked(name):
                names = {kind: map(named, arms) for kind, arms in marked.items()}
                marks[name] = drawing.marked(source, names)
        drawn.append(drawing.layer_lines())
        if others:
            drawn.append(drawing.comparison(source, suites))
        if len(path := path_of(run)):
            drawn += [drawing.search_path(path), drawing.expected_loss(path)]
    if losses := analysis.losses(run.plan, run.records):
        drawn.append(drawing.training_loss(losses))
    if not drawn:
        return {}
    document = Document()
    for fig in drawn:
        document.add_root(fig)
    roots = {fig.id: f"figure-{fig.name}" for fig in drawn}
    return {
        "names": [fig.name for fig in drawn],
        "has_readouts": any(len(suite.readouts) > 1 for suite in suites),
        "has_numbered_layers": not all(suite.layer_names for suite in suites),
        "shown": quantities[0].name if quantities else "",
        "against": others[0].name if others else "",
        "data": {
            "documents": {"all": document.to_json(deferred=False)},
            "item": {"docid": "all", "roots": roots, "root_ids": list(roots)},
            "fields": [
                {"name": quantity.name, "group": quantity.group, "label": quantity.label}
                for quantity in quantities
            ],
            "models": {suite.model: drawing.axes_of(suite) for suite in suites},
            "marks": marks,
            "tasks": list(run.kinds)[:LINES],
            "colours": drawing.COLOURS,
        },
    }
