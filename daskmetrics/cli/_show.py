"""Commands that read a run from its files, without torch and without a scheduler."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import PATH, RUN, Answer, answering, example, friendly, run_folder, say
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.core.names import Cell
    from daskmetrics.execution._score_tables import KnownScore
    from daskmetrics.experiment._estimate import TaskCost
    from daskmetrics.metrics import Metric
    from daskmetrics.report import Run
    from daskmetrics.tasks import Task

FORMATS = ("html", "csv", "parquet", "netcdf")
DATA = "DASKMETRICS_PUBLISHED_DATA"  # the environment variable with the folder of the published table


@click.command(epilog=example("daskmetrics status demo"))
@run_folder
@answering
def status(run: Path) -> Answer:
    """Show the progress, the failures, the workers and the Slurm jobs of RUN.

    They are read from its files and from Slurm's queue.
    """
    from daskmetrics import report
    from daskmetrics.execution import _capacity
    from daskmetrics.execution.map._folder import is_map, read_map
    from daskmetrics.execution.map._results import summary_text
    from daskmetrics.report._format import fact
    from daskmetrics.report._terminal import idle_now

    workers = _capacity.read(RunFolder(run))
    shown = fact("workers", workers.text(time.time())) if workers else []
    if not RunFolder(run).journal.exists() and (job := _driver_job(run)):  # the job has not started the run
        return Answer(lambda: {"folder": run, "finished": False, "job": job}, lambda: say(job))
    if is_map(run):
        recorded = read_map(run)
        counts = Counter(result.status for result in recorded.results)
        idle = idle_now(RunFolder(run))
        lines = [*shown, *(f"Worker {worker}: {reason}." for worker, reason in idle.items())]
        return Answer(
            lambda: {
                "folder": run,
                "finished": len(recorded.results) == len(recorded.items),
                "items": len(recorded.items),
                "counts": counts,
                "idle_gpus": idle,
                "workers": workers,
            },
            lambda: say("\n".join([summary_text(recorded.results, len(recorded.items)), *lines])),
        )
    loaded = report.Run(run)
    job = None if loaded.finished else _driver_job(run)

    def show() -> None:
        if job:
            say(job)
        say("\n".join([report.status_text(loaded), *shown]))
        if loaded.driver and loaded.config["cluster"]["kind"] == "slurm":
            from daskmetrics.cluster.slurm._commands import queue_text
            from daskmetrics.cluster.slurm._script import job_name

            say(f"jobs        {queue_text(job_name(loaded.start.name))}")

    def document() -> dict[str, Any]:
        from daskmetrics.report._documents import status_document

        return {**status_document(loaded), "job": job, "workers": workers}

    return Answer(document, show)


def _driver_job(run: Path) -> str | None:
    """The state of the job that drives the run, if the run was submitted as a job."""
    from daskmetrics.cluster.slurm import _driver_job as driver_job
    from daskmetrics.cluster.slurm._commands import SlurmError, job_state

    job = driver_job.submitted(RunFolder(run).driver)
    if job is None:
        return None
    try:
        return driver_job.describe(job, job_state(job.job))
    except (SlurmError, ConfigError) as error:
        return f"Job {job.job} was submitted to drive the run. Its state is unknown: {error}"


@click.command(epilog=example("daskmetrics report demo", "daskmetrics report demo --format csv"))
@run_folder
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="A page, or numbers in one file.",
)
@click.option("--output", type=PATH, help="File for the numbers.  [default: in RUN/report]")
@click.option("--svg", is_flag=True, help="Write each figure as SVG, too.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@friendly
def report(run: Path, kind: str, output: Path | None, svg: bool, open_page: bool) -> None:
    """Write the HTML report and the figures of RUN, or all its numbers for other programs."""
    from daskmetrics import report as reports
    from daskmetrics.execution.map._folder import is_map
    from daskmetrics.report._html import write_map_figure

    if is_map(run):
        if kind != "html" or svg or open_page:
            raise ConfigError("Of a map, report writes one figure as PNG. Its results are written by map --output.")
        say(write_map_figure(RunFolder(run)))
        return
    loaded = reports.Run(run)
    if kind != "html":
        if open_page:
            raise ConfigError(f"--open shows the page, but --format {kind} writes numbers: omit one of them.")
        say(reports.export(loaded, kind, output))  # type: ignore[arg-type]  # click has checked it
        return
    page = reports.write(loaded, svg)
    say(reports.summary_text(loaded))
    say(reports.whereabouts(loaded.folder))
    if open_page:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            say("No browser could be started here: open the link above yourself.", err=True)


@click.command(epilog=example("daskmetrics best demo", "daskmetrics best demo --within 1%"))
@run_folder
@click.option(
    "--within",
    metavar="SHARE",
    help="Show the simplest arm that loses at most this share of the score in the worst case, such as 1%.",
)
@click.option("--pareto", is_flag=True, help="Show the arms that no other arm beats in both score and cost.")
@click.option("--output", type=PATH, metavar="FILE.png", help="Draw scores against costs; with --pareto.")
@answering
def best(run: Path, within: str | None, pareto: bool, output: Path | None) -> Answer:
    """Print the best arm of RUN and the Python that loads it."""
    from daskmetrics import report
    from daskmetrics.report import _documents as documents
    from daskmetrics.report._explain import near_best_text, trade_offs_text

    if output and not pareto:
        raise ConfigError("--output draws scores against costs: add --pareto.")
    loaded = report.Run(run)
    if pareto:
        drawn = [_draw(loaded, output)] if output else []
        text = partial(trade_offs_text, loaded)
        return Answer(
            lambda: {**documents.trade_offs_document(loaded), "files": drawn},
            lambda: say("\n\n".join([text(), *map(str, drawn)])),
        )
    if within is None:
        return Answer(lambda: documents.best_document(loaded), lambda: say(report.best_text(loaded)))
    share = _share(within)
    return Answer(
        lambda: documents.near_best_document(loaded, share),
        lambda: say(near_best_text(loaded, share)),
    )


def _draw(run: Run, output: Path) -> Path:
    """Draw scores against costs into a file."""
    if output.suffix.lower() != ".png" or not output.parent.is_dir():
        raise ConfigError(f"--output '{output}' is not a file such as tradeoffs.png in a folder that exists.")
    from daskmetrics.core._files import atomic_write
    from daskmetrics.report.plots._figures import trade_offs

    return atomic_write(output, trade_offs(run).png)


def _share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise ConfigError(f"--within '{text}' is not a share between 0 and 1: write 1% or 0.01.")
    return share


@click.command(epilog=example("daskmetrics explain demo tiny-64@step512/3"))
@click.argument("run", type=RUN)
@click.argument("arm")
@friendly
def explain(run: Path, arm: str) -> None:
    """Explain why the search of RUN chose ARM or not.

    It shows the posterior, the decisions, the scores and the metrics. ARM is written `MODEL@REVISION/LAYER`,
    with a readout `MODEL@REVISION/LAYER/READOUT`.
    """
    from daskmetrics import report
    from daskmetrics.report._explain import explain_text

    say(explain_text(report.Run(run), arm))


@click.command(
    epilog=example(
        "daskmetrics compare demo minilm", "daskmetrics compare demo --arms tiny-64@step512/3 tiny-64@step512/0"
    )
)
@click.argument("run", type=RUN)
@click.argument("other", type=RUN, required=False)
@click.option(
    "--published", type=PATH, help=f"Table of published scores (CSV).  [default: published_scores.csv.gz in ${DATA}]"
)
@click.option("--arms", nargs=2, metavar="ARM ARM", help="Compare two arms; the second is of OTHER, if there is one.")
@answering
def compare(run: Path, other: Path | None, published: Path | None, arms: tuple[str, str] | None) -> Answer:
    """Compare two runs, a run with published scores of its models, or two arms.

    Without OTHER, RUN is compared with the published scores. Differences of arms are paired: their error comes from
    the outcomes of the same items.
    """
    from daskmetrics import report
    from daskmetrics.report import _compare as comparisons
    from daskmetrics.report import _paired as paired

    one, two = report.Run(run), report.Run(other) if other is not None else None
    if arms:
        return Answer(
            lambda: paired.comparison_document(paired.compare_named(one, *arms, two)),
            lambda: say(paired.compare_arms_text(one, *arms, two)),
        )
    table = _published(published) if two is None or published is not None else None

    def document() -> dict[str, Any]:
        runs = comparisons.compare_document(one, two) if two else {}
        return {**runs, **(comparisons.published_document(one, *table) if table else {})}

    def show() -> None:
        if two:
            say(comparisons.compare_text(one, two))
        if table:
            say(comparisons.compare_published_text(one, *table))

    return Answer(document, show)


def _published(path: Path | None) -> tuple[Mapping[Cell, KnownScore], str]:
    """The published scores, and where they are from."""
    from daskmetrics.execution import _score_tables as score_tables

    if path is None:
        if (folder := os.environ.get(DATA)) is None:
            raise ConfigError(f"Give a second RUN, or a table of published scores by --published FILE or ${DATA}.")
        path = Path(folder) / "published_scores.csv.gz"
    return score_tables.published(path), str(path)


@click.command(epilog=example("daskmetrics metrics"))
@answering
def metrics() -> Answer:
    """List the metrics by family: unit, formula, source, cost and parameters."""
    from daskmetrics.metrics import catalogue, families

    by_family = {name: each for name, each in families(catalogue().values()).items() if name != "all"}
    names = ("name", "units", "takes", "description", "formula", "source", "cost", "parameters")

    def document() -> dict[str, Any]:
        rows = [
            {"family": family, **{name: getattr(each, name) for name in names}, "parameters": map(str, each.parameters)}
            for family, members in by_family.items()
            for each in members
        ]
        return {"metrics": rows}

    return Answer(document, lambda: _show_metrics(by_family))


def _show_metrics(families: Mapping[str, Sequence[Metric]]) -> None:
    for family, members in families.items():
        say(f"{family}\n")
        for each in members:
            say(f"  {each.name}  ({each.units}, of {each.takes})  {each.description}")
            parameters = ", ".join(map(str, each.parameters))
            about = {"source: ": each.source, "cost: ": each.cost, "parameters: ": parameters}
            lines = [each.formula, *(word + what for word, what in about.items() if what)]
            for line in filter(None, lines):
                say(f"      {line}")
        say()
    say(
        "Whether a metric rises or falls with the scores differs between families of models: no value is good\n"
        "in itself, and a rule fitted on other models chooses no better than the last layer. A search learns it\n"
        "from its own scores, and its report says what the metrics contributed. See docs/search.md, Metrics.\n"
    )
    say("Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under 'metrics:'.")


@dataclass(frozen=True)
class ListedTask:
    """A task as `tasks` lists it; the subsets and splits are those that a benchmark evaluates."""

    name: str
    kind: str
    subsets: tuple[str, ...]
    splits: tuple[str, ...]
    score: str
    texts: int | None
    seconds: TaskCost | None  # to encode all layers of a checkpoint and to score one layer, in earlier runs
    is_local: bool
    description: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns of the table."""
        many = len(self.subsets) > 6
        return (
            self.name,
            self.kind,
            f"{len(self.subsets)}: {'+'.join(self.subsets[:3])}+..." if many else "+".join(self.subsets),
            "+".join(self.splits),
            self.score,
            f"{'' if self.is_local else 'about '}{self.texts:,}" if self.texts else "",
            f"{self.seconds.encode:.1f} + {self.seconds.score:.2f} s" if self.seconds else "",
            "local" if self.is_local else "not downloaded",
            self.description,
        )


@click.command(epilog=example("daskmetrics tasks", "daskmetrics tasks stdlib:order file:reviews.csv"))
@click.argument("names", nargs=-1)
@click.option(
    "--runs", type=PATH, default=Path("runs"), show_default=True, help="Folder of earlier runs, for measured costs."
)
@answering
def tasks(names: tuple[str, ...], runs: Path) -> Answer:
    """List tasks: kind, score, number of texts and measured cost.

    NAMES are written as in a configuration; by default the embedded and the installed tasks are listed. The cost is
    the median of earlier runs: seconds to encode all layers of a checkpoint, and to score one layer.
    """
    from daskmetrics.experiment._estimate import task_costs
    from daskmetrics.tasks import catalogue, resolve

    seen = task_costs(runs)
    rows = [
        ListedTask(
            name=task.name,
            kind=task.kind,
            subsets=tuple(selection.subsets) if (selection := getattr(task, "selection", None)) else (),
            splits=tuple(selection.splits) if selection else (),
            score=task.main_score,
            texts=_texts(task),
            seconds=seen.get(task.name),
            is_local=task.is_local,
            description=task.description,
        )
        for task in resolve(names or tuple(catalogue()))
    ]
    return Answer(lambda: {"tasks": rows}, lambda: _show_tasks(rows, everything=not names))


def _show_tasks(tasks: Sequence[ListedTask], everything: bool) -> None:
    sizes = [task.texts for task in tasks]
    headers = ("task", "kind", "subsets", "split", "score", "texts", "measured cost", "data", "question")
    known = [size for size in sizes if size]
    note = f"Total: {sum(known):,} texts" + (f" of {len(known)} of {len(sizes)} tasks" if None in sizes else "")
    if None in sizes and find_spec("mteb") is None:
        note += ". The sizes of tasks of the benchmark need mteb: pip install 'daskmetrics[mteb]'"
    Table(headers, tuple(task.cells for task in tasks), notes=(note,)).show()
    if everything:
        say("Others: preset:layer-by-layer-32, mteb:NAME, file:PATH; list them with: daskmetrics tasks NAME ...")


def _texts(task: Task) -> int | None:
    """The number of texts; for a task that is not downloaded, the number that its benchmark lists."""
    if task.is_local:
        return len(task.texts())
    statistics = getattr(task, "statistics", None)
    return statistics.texts if statistics else None


COMMANDS = (status, report, best, explain, compare, metrics, tasks)
