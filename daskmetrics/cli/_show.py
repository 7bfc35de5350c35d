"""Verbs that read a run from its files; they need neither torch nor a scheduler."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import friendly, run_folder, table
from daskmetrics.core._files import RunFolder
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.tasks import Task

FORMATS = ("html", "csv", "parquet", "netcdf")


@click.command()
@run_folder
@friendly
def status(run: Path) -> None:
    """How far RUN is, what failed and why, and how its Slurm jobs stand; read from its files and Slurm's queue."""
    from daskmetrics import report
    from daskmetrics.execution.map._folder import is_map, read_map
    from daskmetrics.execution.map._results import summary_text

    if not RunFolder(run).journal.exists() and (job := _driver_job(run)):
        click.echo(job)  # it has not begun
        return
    if is_map(run):
        recorded = read_map(run)
        click.echo(summary_text(recorded.results, len(recorded.items)))
        return
    loaded = report.Run(run)
    if not loaded.finished and (job := _driver_job(run)):
        click.echo(job)
    click.echo(report.status_text(loaded))
    if loaded.driver and loaded.config["cluster"]["kind"] == "slurm":
        click.echo(f"jobs        {_worker_jobs(loaded.start.name)}")


def _driver_job(run: Path) -> str | None:
    """How the job stands that drives the run, if it was submitted as one."""
    from daskmetrics.cluster.slurm import _driver_job as driver_job
    from daskmetrics.cluster.slurm._commands import SlurmError, job_state

    job = driver_job.submitted(driver_job.DriverFiles(RunFolder(run).driver))
    if job is None:
        return None
    try:
        return driver_job.describe(job, job_state(job.job))
    except (SlurmError, ConfigError) as error:
        return f"Job {job.job} was submitted to drive it; how it stands is not known: {error}"


def _worker_jobs(name: str) -> str:
    from daskmetrics.cluster.slurm._commands import SlurmError, queue, summary
    from daskmetrics.cluster.slurm._script import job_name

    try:
        return summary(queue(name=job_name(name)))
    except (SlurmError, ConfigError) as error:
        return f"not known: {error}"


@click.command()
@run_folder
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="A page, or numbers in one file.",
)
@click.option("--output", type=click.Path(path_type=Path), help="File of the numbers.  [default: in RUN/report]")
@click.option("--svg", is_flag=True, help="Also each figure as SVG.")
@friendly
def report(run: Path, kind: str, output: Path | None, svg: bool) -> None:
    """Write the HTML report and figures of RUN from its files, or all its numbers for other programs."""
    from daskmetrics import report as reports

    loaded = reports.Run(run)
    if kind != "html":
        click.echo(reports.export(loaded, kind, output))  # type: ignore[arg-type]  # click has checked it
        return
    reports.write(loaded.folder, svg)
    click.echo(reports.summary_text(loaded))
    click.echo(reports.whereabouts(loaded.folder))


@click.command()
@run_folder
@click.option(
    "--within", metavar="SHARE", help="Instead the shallowest and the earliest arm within so much of it, e.g. 1%."
)
@click.option("--sure", type=float, default=0.8, show_default=True, help="Probability with which --within must hold.")
@friendly
def best(run: Path, within: str | None, sure: float) -> None:
    """Print the best arm of RUN and the lines of Python that load it."""
    from daskmetrics import report

    loaded = report.Run(run)
    if within is None:
        click.echo(report.best_text(loaded))
        return
    from daskmetrics.report._explain import near_best_text

    click.echo(near_best_text(loaded, _share(within), sure))


def _share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    from daskmetrics.core.errors import ConfigError

    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise ConfigError(f"--within '{text}' is no share between 0 and 1: write 1% or 0.01.")
    return share


DATA = "DASKMETRICS_PUBLISHED_DATA"  # names the folder of the published table


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("arm")
@friendly
def explain(run: Path, arm: str) -> None:
    """Why ARM (MODEL@REVISION/LAYER) of RUN was chosen, or was not: features, scores, posterior, decisions."""
    from daskmetrics import report
    from daskmetrics.report._explain import explain_text

    click.echo(explain_text(report.Run(run), arm))


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("other", type=click.Path(path_type=Path), required=False)
@click.option(
    "--published",
    type=click.Path(path_type=Path),
    help=f"Table of published scores (CSV).  [default: published_scores.csv.gz in ${DATA}]",
)
@friendly
def compare(run: Path, other: Path | None, published: Path | None) -> None:
    """RUN and OTHER side by side; without OTHER, RUN beside the published scores of its models."""
    from daskmetrics import report
    from daskmetrics.report._compare import compare_published_text, compare_text

    one = report.Run(run)
    if other is not None:
        click.echo(compare_text(one, report.Run(other)))
    if other is None or published is not None:
        from daskmetrics.report import _score_tables as score_tables

        source = published or _published()
        click.echo(compare_published_text(one, score_tables.read(source).cells(), str(source)))


def _published() -> Path:
    from daskmetrics.core.errors import ConfigError

    folder = os.environ.get(DATA)
    if folder is None:
        raise ConfigError(f"Name a second RUN, or a table of published scores: --published FILE, or ${DATA}.")
    return Path(folder) / "published_scores.csv.gz"


@click.command()
@friendly
def metrics() -> None:
    """List the metrics: definition, unit, input, source, cost and parameters, by family."""
    from daskmetrics.metrics import catalogue, families

    for family, members in families(catalogue().values()).items():
        if family == "all":
            continue
        click.echo(f"{family}\n")
        for each in members:
            click.echo(f"  {each.name}  ({each.units}, of {each.takes})  {each.description}")
            parameters = ", ".join(map(str, each.parameters))
            about = {"source: ": each.source, "cost: ": each.cost, "parameters: ": parameters}
            lines = [each.formula, *(word + what for word, what in about.items() if what)]
            for line in filter(None, lines):
                click.echo(f"      {line}")
        click.echo()
    click.echo("Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under 'metrics:'.")


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="For costs seen."
)
@friendly
def tasks(names: tuple[str, ...], runs: Path) -> None:
    """List the tasks NAMES, written as in a configuration; by default those that are embedded or installed.

    Cost is the median of what earlier runs spent: seconds to encode all layers of a checkpoint, and to score one layer.
    """
    from daskmetrics.experiment._preview import costs
    from daskmetrics.tasks import catalogue, resolve

    seen = costs(runs)
    chosen = resolve(names or tuple(catalogue()))
    table(
        ("task", "kind", "score", "texts", "cost seen", "data", "question"),
        [
            (
                task.name,
                task.kind,
                task.main_score,
                _texts(task),
                f"{cost.encode:.1f} + {cost.score:.2f} s" if (cost := seen.get(task.name)) else "",
                "here" if task.is_local else "not here",
                task.description,
            )
            for task in chosen
        ],
    )
    if not names:
        click.echo("Others: preset:layer-by-layer-32, mteb:NAME, file:PATH; list them with: daskmetrics tasks NAME ...")


def _texts(task: Task) -> str:
    """How many there are; of what is not here, what its benchmark lists."""
    if task.is_local:
        return f"{len(task.texts()):,}"
    listed = getattr(task, "listed", None)
    return f"about {listed.texts:,}" if listed else ""


VERBS = (status, report, best, explain, compare, metrics, tasks)
