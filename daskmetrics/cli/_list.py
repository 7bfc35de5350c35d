"""The group `list`: the names that a configuration can use."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import Output, Sections, answering, example, say
from daskmetrics.core.table import Table
from daskmetrics.core.text import plural

if TYPE_CHECKING:
    from daskmetrics.tasks import Task


ABOUT_METRICS = """\
No value is good in itself: whether a metric rises or falls with the scores differs
between families of models. A search learns it from its own scores.

Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under 'metrics:'."""
MOST_SUBSETS = 6  # of a task that are listed in full


@click.group("list", cls=Sections, epilog=example("daskmetrics list tasks"))
def list_() -> None:
    """List the tasks, probes, metrics, policies or cluster profiles that a configuration can name."""


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
        lines += [family, ""]
        for metric in members:
            row = {field: getattr(metric, field) for field in fields}
            rows.append({"family": family, **row, "parameters": map(str, metric.parameters)})
            lines += [
                f"  {metric.name}  ({metric.units}, of {metric.takes})  {metric.description}",
                f"      {metric.formula}",
                f"      source: {metric.source}",
            ]
            if metric.cost:
                lines.append(f"      cost: {metric.cost}")
            if metric.parameters:
                lines.append(f"      parameters: {', '.join(map(str, metric.parameters))}")
        lines.append("")
    return Output(lambda: {"metrics": rows}, ["\n".join([*lines, ABOUT_METRICS])])


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
    sizes = [task["texts"] for task in listed if task["texts"]]
    notes = [f"Total: {sum(sizes):,} texts of {len(sizes)} of {len(listed)} tasks."]
    if not names:
        notes.append(
            "Others: preset:layer-by-layer-32, mteb:NAME, file:PATH; see them with: "
            "daskmetrics list tasks NAME ..."
        )
    rows = []
    for task in listed:
        subsets = "+".join(task["subsets"])
        if len(task["subsets"]) > MOST_SUBSETS:
            subsets = f"{'+'.join(task['subsets'][:3])}+{len(task['subsets']) - 3} more"
        about, data = "about ", "not downloaded"
        if task["is_local"]:
            about, data = "", "local"
        texts = f"{about}{task['texts']:,}" if task["texts"] else ""
        splits = "+".join(task["splits"])
        what = (task["name"], task["kind"], subsets, splits)
        rows.append((*what, task["score"], texts, data, task["description"]))
    header = ("task", "kind", "subsets", "split", "score", "texts", "data", "question")
    return Output(lambda: {"tasks": listed}, [Table(header, rows, notes=notes)])


def _listed(task: Task) -> dict[str, Any]:
    texts = None
    if task.is_local:
        texts = len(task.texts())
    elif task.statistics:  # what mteb lists
        texts = task.statistics.texts
    return {
        "name": task.name,
        "kind": task.kind,
        "subsets": task.selection.subsets,
        "splits": task.selection.splits,
        "score": task.main_score,
        "texts": texts,
        "is_local": task.is_local,
        "description": task.description,
    }


@list_.command(epilog=example("daskmetrics list probes"))
def probes() -> None:
    """List the probes of classifications, with their settings."""
    from daskmetrics.tasks import FOLDS, PROBE_SETTINGS

    notes = [
        f"Each is fitted in {FOLDS} stratified folds. The first is the default; to choose another:",
        "file:reviews.csv(probe=ridge).",
    ]
    Table(("probe", "settings"), list(PROBE_SETTINGS.items()), notes=notes).show()


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

    folder = config.folder() / "clusters"
    rows = []
    for path in sorted(folder.glob("*.yaml")):
        profile = config.cluster(str(path))
        partition = profile.partition or ""
        resources = [plural(profile.threads, "CPU")]
        if profile.kind == "slurm" and profile.gpus_per_job:
            resources.insert(0, f"1 {profile.gpu_type or 'GPU'}")
        if profile.memory:
            resources.append(profile.memory)
        of_each = ", ".join(resources)
        rows.append((path.stem, profile.kind, str(profile.workers), of_each, partition))
    say(Table(("profile", "kind", "workers", "resources of each", "partition"), rows))
    say(f"These files are in {folder}. You can also use your own file: --cluster FILE.")
