"""Verbs that read a run from its files; they need neither torch nor a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli.common import friendly, run_folder
from daskmetrics.errors import ConfigError
from daskmetrics.layout import RunFolder

FORMATS = ("html", "csv", "parquet", "netcdf")


@click.command()
@run_folder
@friendly
def status(run: Path) -> None:
    """How far RUN is, what failed and why, and how its Slurm jobs stand; read from its files and Slurm's queue."""
    from daskmetrics import mapping, report

    if not RunFolder(run).journal.exists() and (job := _driver_job(run)):
        click.echo(job)  # it has not begun
        return
    if mapping.is_map(run):
        told = mapping.recorded(run)
        click.echo(mapping.summary_text(told.results, len(told.items)))
        return
    loaded = report.Run(run)
    if not loaded.finished and (job := _driver_job(run)):
        click.echo(job)
    click.echo(report.status_text(loaded))
    if loaded.driver and loaded.config["cluster"]["kind"] == "slurm":
        click.echo(f"jobs        {_worker_jobs(loaded.start['name'])}")


def _driver_job(run: Path) -> str | None:
    """How the job stands that drives the run, if it was submitted as one."""
    from daskmetrics.cluster import controller
    from daskmetrics.cluster.queue import SlurmError

    job = controller.submitted(controller.Place(RunFolder(run).controller))
    if job is None:
        return None
    try:
        return controller.told(job, controller.state_of(job.job))
    except (SlurmError, ConfigError) as error:
        return f"Job {job.job} was submitted to drive it; how it stands is not known: {error}"


def _worker_jobs(name: str) -> str:
    from daskmetrics.cluster.queue import SlurmError, queue, summary
    from daskmetrics.cluster.script import job_name

    try:
        return summary(queue(name=job_name(name)))
    except (SlurmError, ConfigError) as error:
        return f"not known: {error}"


@click.command()
@run_folder
@click.option("--format", "kind", type=click.Choice(FORMATS), default="html", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="File of the numbers.  [default: in RUN/report]")
@click.option("--svg", is_flag=True, help="Also each figure as SVG.")
@friendly
def report(run: Path, kind: str, output: Path | None, svg: bool) -> None:
    """Write the HTML report and figures of RUN from its files, or all its numbers for other programs."""
    from daskmetrics import report as reports

    loaded = reports.Run(run)
    if kind != "html":
        from daskmetrics.report.export import export

        click.echo(export(loaded, kind, output))  # type: ignore[arg-type]  # click has checked it
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
    from daskmetrics.report.enough import enough_text

    click.echo(enough_text(loaded, _share(within), sure))


def _share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    from daskmetrics.errors import ConfigError

    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise ConfigError(f"--within '{text}' is no share between 0 and 1: write 1% or 0.01.")
    return share


VERBS = (status, report, best)
