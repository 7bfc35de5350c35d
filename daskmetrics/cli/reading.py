"""Verbs that read a run from its files; they need neither torch nor a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli.common import friendly, run_folder

FORMATS = ("html", "csv", "parquet", "netcdf")


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
