"""Verbs that read a run from its files; they need neither torch nor a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli.common import friendly, run_folder
from daskmetrics.errors import ConfigError
from daskmetrics.layout import RunFolder


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
@friendly
def report(run: Path) -> None:
    """Write the HTML report and figures of RUN from its files."""
    from daskmetrics import report as reports

    loaded = reports.Run(run)
    reports.write(loaded.folder)
    click.echo(reports.summary_text(loaded))
    click.echo(reports.whereabouts(loaded.folder))


@click.command()
@run_folder
@friendly
def best(run: Path) -> None:
    """Print the best arm of RUN and the lines of Python that load it."""
    from daskmetrics import report

    click.echo(report.best_text(report.Run(run)))


VERBS = (status, report, best)
