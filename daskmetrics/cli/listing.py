"""Verbs that list what there is."""

from __future__ import annotations

import click

from daskmetrics.cli.common import friendly, table


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
@friendly
def tasks() -> None:
    """List the tasks that need nothing but this package: name, kind, score and question."""
    from daskmetrics.tasks import catalogue

    made = (make() for make in catalogue().values())
    table(
        ("task", "kind", "score", "question"),
        [(task.name, task.kind, task.main_score, task.description) for task in made],
    )


VERBS = (metrics, tasks)
