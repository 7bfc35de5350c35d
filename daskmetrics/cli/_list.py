"""The group `list`: the names that a configuration can use."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import Output, Sections, answering, example, say
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural

if TYPE_CHECKING:
    from daskmetrics.tasks import Task

SHOWN_SUBSETS = 6  # of a task
ABOUT_METRICS = """\
No value is good in itself: whether a metric rises or falls with the scores differs
between families of models. A search learns it from its own scores.

Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under 'metrics:'."""


@click.group("list", cls=Sections, epilog=example("daskmetrics list tasks"))
def list_() -> None:
    """List the tasks, metrics, policies or cluster profiles that a configuration can name."""


@list_.command(epilog=example("daskmetrics list metrics"))
@answering
def metrics() -> Output:
    """List the metrics by family: unit, formula, source, cost and parameters."""
    from daskmetrics.metrics import catalogue, families

    by_family = dict(families(catalogue().values()))
    del by_family["all"]
    fields = ("name", "units", "takes", "description", "formula", "source", "cost")

    rows = []
    lines = []
    for family, members in by_family.items():
        lines.append(f"{family}\n")
        for metric in members:
            row = {field: getattr(metric, field) for field in fields}
            parameters = list(map(str, metric.parameters))
            rows.append({"family": family, **row, "parameters": parameters})
            lines.append(
                f"  {metric.name}  ({metric.units}, of {metric.takes})  {metric.description}"
            )
            lines.append(f"      {metric.formula}")
            about = {"source": metric.source, "cost": metric.cost}
            about["parameters"] = ", ".join(parameters)
            lines += [f"      {label}: {text}" for label, text in about.items() if text]
        lines.append("")
    return Output(lambda: {"metrics": rows}, [*lines, ABOUT_METRICS])


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
    from daskmetrics.tasks import catalogue, resolve

    listed = [_listed(task) for task in resolve(names or tuple(catalogue()))]
    return Output(lambda: {"tasks": listed}, [_tasks_table(listed, everything=not names)])


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


def _tasks_table(tasks: Sequence[dict[str, Any]], everything: bool) -> Table:
    rows = []
    for task in tasks:
        subsets = list(task["subsets"])
        if len(subsets) > SHOWN_SUBSETS:
            subsets = [*subsets[:3], f"{len(subsets) - 3} more"]
        texts = f"{task['texts']:,}" if task["texts"] else ""
        state = "local"
        if not task["is_local"]:
            state = "not downloaded"
            texts = texts and f"about {texts}"
        shown = {**task, "subsets": "+".join(subsets), "splits": "+".join(task["splits"])}
        named = [shown[name] for name in ("name", "kind", "subsets", "splits", "score")]
        rows.append((*named, texts, state, task["description"]))
    sizes = [task["texts"] for task in tasks if task["texts"]]
    notes = [f"Total: {sum(sizes):,} texts of {len(sizes)} of {len(tasks)} tasks."]
    if everything:
        notes.append(
            "Others: preset:layer-by-layer-32, mteb:NAME, file:PATH; see them with:"
            " daskmetrics list tasks NAME ..."
        )
    header = "task,kind,subsets,split,score,texts,data,question"
    return Table(header.split(","), rows, notes=notes)


@list_.command(epilog=example("daskmetrics list policies"))
def policies() -> None:
    """List the policies of a search: built-in ones, and those of installed packages."""
    from daskmetrics.bandit import installed_policies

    rows = []
    for name, policy in installed_policies().items():
        summary, _, _ = (inspect.getdoc(policy) or "").partition("\n\n")
        rows.append((name, " ".join(summary.split())))
    note = "Your own: --policy package.module:function. See docs/search.md."
    Table(("policy", "what it pays for next"), rows, notes=(note,)).show()


@list_.command(epilog=example("daskmetrics list profiles"))
def profiles() -> None:
    """List the profiles of places to run."""
    from daskmetrics import config

    folder = config.folder() / "clusters"
    rows = []
    for path in sorted(folder.glob("*.yaml")):
        profile = config.cluster(str(path))
        resources = [plural(profile.threads, "CPU"), profile.memory or ""]
        if profile.kind == "slurm" and profile.gpus_per_job:
            resources.insert(0, f"1 {profile.gpu_type or 'GPU'}")
        of_each = ", ".join(filter(None, resources))
        workers = str(profile.workers)
        rows.append((path.stem, profile.kind, workers, of_each, profile.partition or ""))
    headers = ("profile", "kind", "workers", "resources of each", "partition")
    Table(headers, rows).show()
    say(f"These files are in {folder}. You can also use your own file: --cluster FILE.")
