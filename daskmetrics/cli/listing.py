"""Verbs that list what there is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli.common import friendly, table

if TYPE_CHECKING:
    from daskmetrics.tasks import Task


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
    from daskmetrics.experiment.seen import costs
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


VERBS = (metrics, tasks)
