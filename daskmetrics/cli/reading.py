"""Verbs that read a run from its files; they need neither torch nor a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli.common import friendly, run_folder


@click.command()
@run_folder
@friendly
def status(run: Path) -> None:
    """How far RUN is, what failed and why; read from its files."""
    from daskmetrics import mapping, report

    if mapping.is_map(run):
        told = mapping.recorded(run)
        click.echo(mapping.summary_text(told.results, len(told.items)))
        return
    click.echo(report.status_text(report.Run(run)))


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
