"""Verbs that look closer at what a run found; they read its files and need neither torch nor a scheduler."""

from __future__ import annotations

import os
from pathlib import Path

import click

from daskmetrics.cli.common import friendly

DATA = "DASKMETRICS_PUBLISHED_DATA"  # names the folder of the published table


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("arm")
@friendly
def explain(run: Path, arm: str) -> None:
    """Why ARM (MODEL@REVISION/LAYER) of RUN was chosen, or was not: features, scores, posterior, decisions."""
    from daskmetrics import report
    from daskmetrics.report.explain import explain_text

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
    from daskmetrics.report.compare import compare_published_text, compare_text

    one = report.Run(run)
    if other is not None:
        click.echo(compare_text(one, report.Run(other)))
    if other is None or published is not None:
        from daskmetrics import replays

        source = published or _published()
        click.echo(compare_published_text(one, replays.read(source).cells(), str(source)))


def _published() -> Path:
    from daskmetrics.errors import ConfigError

    folder = os.environ.get(DATA)
    if folder is None:
        raise ConfigError(f"Name a second RUN, or a table of published scores: --published FILE, or ${DATA}.")
    return Path(folder) / "published_scores.csv.gz"


VERBS = (explain, compare)
