"""The group `list`: the names that a configuration can use."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import Output, Sections, answering, example, say
from daskmetrics.core.table import Table

if TYPE_CHECKING:
    from daskmetrics.tasks import Task


@click.group("list", cls=Sections, epilog=example("daskmetrics list tasks"))
def list_() -> None:
    """List the tasks, metrics, policies or cluster profiles that a configuration can name."""


@list_.command(epilog=example("daskmetrics list metrics"))
@answering
def metrics() -> Output:
    """List the metrics by family: unit, formula, source, cost and parameters."""
    from daskmetrics.metrics import catalogue, families
    from daskmetrics.report.templates import text_of

    by_family = dict(families(catalogue().values()))
    del by_family["all"]
    fields = ("name", "units", "takes", "description", "formula", "source", "cost")

    rows = []
    for family, members in by_family.items():
        for metric in members:
            row = {field: getattr(metric, field) for field in fields}
            rows.append({"family": family, **row, "parameters": map(str, metric.parameters)})
    return Output(lambda: {"metrics": rows}, [text_of("list_metrics", families=by_family)])


@list_.command(
    epilog=example("daskmetrics list tasks", "daskmetrics list tasks stdlib:order file:reviews.csv")
)
@click.argument("names", nargs=-1)
@answering
def tasks(names: tuple[str, ...]) -> Output:
    """List tasks: kind, score and number of texts.

    NAMES are written as in a configuration; by default the embedded and the installed tasks are
    listed.
    """
    from daskmetrics.report.templates import table_of
    from daskmetrics.tasks import catalogue, resolve

    listed = [_listed(task) for task in resolve(names or tuple(catalogue()))]
    shown = table_of("list_tasks", tasks=listed, everything=not names)
    return Output(lambda: {"tasks": listed}, [shown])


def _listed(task: Task) -> dict[str, Any]:
    """A task as `list tasks --json` prints it; the subsets and splits are those that a benchmark
    evaluates.
    """
    selection = getattr(task, "selection", None)
    # of a task that is not downloaded, the number that mteb lists
    texts = getattr(getattr(task, "statistics", None), "texts", None)
    if task.is_local:
        texts = len(task.texts())
    return {
        "name": task.name,
        "kind": task.kind,
        "subsets": tuple(getattr(selection, "subsets", ())),
        "splits": tuple(getattr(selection, "splits", ())),
        "score": task.main_score,
        "texts": texts,
        "is_local": task.is_local,
        "description": task.description,
    }


@list_.command(epilog=example("daskmetrics list policies"))
def policies() -> None:
    """List the policies of a search: built-in ones, and those of installed packages."""
    from daskmetrics.bandit import installed_policies

    rows = []
    for name, policy in installed_policies().items():
        summary, _, _ = (inspect.getdoc(policy) or "").partition("\n\n")
        rows.append((name, " ".join(summary.split())))
    note = "Your own: --policy package.module:function. See docs/searching.md."
    Table(("policy", "what it pays for next"), rows, notes=(note,)).show()


@list_.command(epilog=example("daskmetrics list profiles"))
def profiles() -> None:
    """List the profiles of places to run."""
    from daskmetrics import config
    from daskmetrics.report.templates import table_of

    folder = config.folder() / "clusters"
    paths = sorted(folder.glob("*.yaml"))
    say(
        table_of("list_profiles", profiles={path.stem: config.cluster(str(path)) for path in paths})
    )
    say(f"These files are in {folder}. You can also use your own file: --cluster FILE.")
