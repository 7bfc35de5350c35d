"""The group `list`: the names that a configuration can use."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import PATH, Output, Sections, answering, example, friendly, say
from daskmetrics.core.table import Table

if TYPE_CHECKING:
    from daskmetrics.config import Cluster
    from daskmetrics.metrics import Metric
    from daskmetrics.planning.calibration import TaskCost
    from daskmetrics.tasks import Task

SHOWN_SUBSETS = 3  # of a task that has more than twice as many


@click.group("list", cls=Sections, epilog=example("daskmetrics list tasks"))
def list_() -> None:
    """List the tasks, metrics, policies or cluster profiles that a configuration can name."""


@list_.command(epilog=example("daskmetrics list metrics"))
@answering
def metrics() -> Output:
    """List the metrics by family: unit, formula, source, cost and parameters."""
    from daskmetrics.metrics import catalogue, families

    by_family = {
        family: members
        for family, members in families(catalogue().values()).items()
        if family != "all"
    }
    fields = ("name", "units", "takes", "description", "formula", "source", "cost")

    def document() -> dict[str, Any]:
        rows = []
        for family, members in by_family.items():
            for metric in members:
                row = {"family": family, **{field: getattr(metric, field) for field in fields}}
                rows.append({**row, "parameters": map(str, metric.parameters)})
        return {"metrics": rows}

    return Output(document, lambda: _show_metrics(by_family))


def _show_metrics(families: Mapping[str, Sequence[Metric]]) -> None:
    for family, members in families.items():
        say(f"{family}\n")
        for metric in members:
            say(f"  {metric.name}  ({metric.units}, of {metric.takes})  {metric.description}")
            say(f"      {metric.formula}")
            say(f"      source: {metric.source}")
            if metric.cost:
                say(f"      cost: {metric.cost}")
            if metric.parameters:
                say(f"      parameters: {', '.join(map(str, metric.parameters))}")
        say()
    say(
        "No value is good in itself: whether a metric rises or falls with the scores differs\n"
        "between families of models. A search learns it from its own scores.\n\n"
        "Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under"
        " 'metrics:'."
    )


@dataclass(frozen=True)
class ListedTask:
    """A task as it is listed; the subsets and splits are those that a benchmark evaluates."""

    name: str
    kind: str
    subsets: tuple[str, ...]
    splits: tuple[str, ...]
    score: str
    texts: int | None
    #: to encode all layers of a checkpoint and to score one layer, in earlier runs
    seconds: TaskCost | None
    is_local: bool
    description: str

    @classmethod
    def of(cls, task: Task, seconds: TaskCost | None) -> ListedTask:
        """The entry of a task."""
        selection = getattr(task, "selection", None)
        return cls(
            name=task.name,
            kind=task.kind,
            subsets=tuple(getattr(selection, "subsets", ())),
            splits=tuple(getattr(selection, "splits", ())),
            score=task.main_score,
            texts=_text_count(task),
            seconds=seconds,
            is_local=task.is_local,
            description=task.description,
        )

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of the table."""
        subsets = "+".join(self.subsets)
        if len(self.subsets) > 2 * SHOWN_SUBSETS:
            subsets = f"{len(self.subsets)}: {'+'.join(self.subsets[:SHOWN_SUBSETS])}+..."
        texts = cost = ""
        data = "local"
        if self.texts:
            texts = f"{self.texts:,}"
        if not self.is_local:
            data = "not downloaded"
            texts = texts and f"about {texts}"
        if self.seconds:
            cost = f"{self.seconds.encode:.1f} + {self.seconds.score:.2f} s"
        return (
            self.name,
            self.kind,
            subsets,
            "+".join(self.splits),
            self.score,
            texts,
            cost,
            data,
            self.description,
        )


def _text_count(task: Task) -> int | None:
    """The number of texts; of a task that is not downloaded, the number that mteb lists."""
    if task.is_local:
        return len(task.texts())
    statistics = getattr(task, "statistics", None)
    return getattr(statistics, "texts", None)


@list_.command(
    epilog=example("daskmetrics list tasks", "daskmetrics list tasks stdlib:order file:reviews.csv")
)
@click.argument("names", nargs=-1)
@click.option(
    "--runs",
    type=PATH,
    default=Path("runs"),
    show_default=True,
    help="Folder of earlier runs, for measured costs.",
)
@answering
def tasks(names: tuple[str, ...], runs: Path) -> Output:
    """List tasks: kind, score, number of texts and measured cost.

    NAMES are written as in a configuration; by default the embedded and the installed tasks are
    listed. The cost is the median of earlier runs: seconds to encode all layers of a checkpoint,
    and to score one layer.
    """
    from daskmetrics.planning.calibration import task_costs
    from daskmetrics.tasks import catalogue, resolve

    costs = task_costs(runs)
    listed = [
        ListedTask.of(task, costs.get(task.name)) for task in resolve(names or tuple(catalogue()))
    ]
    return Output(lambda: {"tasks": listed}, lambda: _show_tasks(listed, everything=not names))


def _show_tasks(tasks: Sequence[ListedTask], everything: bool) -> None:
    sizes = [task.texts for task in tasks if task.texts]
    total = f"Total: {sum(sizes):,} texts of {len(sizes)} of {len(tasks)} tasks."
    notes = [total]
    if len(sizes) < len(tasks) and find_spec("mteb") is None:
        notes.append("The sizes of mteb's tasks need: pip install 'daskmetrics[mteb]'")
    if everything:
        notes.append(
            "Others: preset:layer-by-layer-32, mteb:NAME, file:PATH; see them with:"
            " daskmetrics list tasks NAME ..."
        )
    headers = (
        "task",
        "kind",
        "subsets",
        "split",
        "score",
        "texts",
        "measured cost",
        "data",
        "question",
    )
    Table(headers, tuple(task.row for task in tasks), notes=tuple(notes)).show()


@list_.command(epilog=example("daskmetrics list policies"))
@friendly
def policies() -> None:
    """List the policies of a search: built-in ones, and those of installed packages."""
    from daskmetrics.bandit import installed_policies

    rows = []
    for name, policy in installed_policies().items():
        summary, _, _ = (inspect.getdoc(policy) or "").partition("\n\n")
        rows.append((name, " ".join(summary.split())))
    note = "Your own: --policy package.module:function. See docs/search.md."
    Table(("policy", "what it pays for next"), tuple(rows), notes=(note,)).show()


@list_.command(epilog=example("daskmetrics list profiles"))
@friendly
def profiles() -> None:
    """List the profiles of places to run, and your site's settings."""
    import dask.config

    from daskmetrics import config

    folder = config.folder() / "clusters"
    rows = []
    for path in sorted(folder.glob("*.yaml")):
        profile = config.cluster(str(path))
        workers, partition = str(profile.workers), profile.partition or ""
        rows.append((path.stem, profile.kind, workers, _resources(profile), partition, path.name))
    headers = ("profile", "kind", "workers", "resources of each", "partition", "file")
    Table(headers, tuple(rows)).show()
    say(f"These files are in {folder}. You can also use your own file: --cluster FILE.")
    if settings := dask.config.get("daskmetrics.cluster", {}):
        keys = ", ".join(f"{key}: {value}" for key, value in settings.items())
        say(f"Settings of your site, from Dask's configuration, which replace a profile's: {keys}")


def _resources(profile: Cluster) -> str:
    """What each worker of a profile has, such as ``1 a100, 8 CPUs, 64GiB``."""
    from daskmetrics.core.text import plural

    resources = [plural(profile.threads, "CPU")]
    if profile.kind == "slurm" and profile.gpus_per_job:
        resources.insert(0, f"1 {profile.gpu_type or 'GPU'}")
    if profile.memory:
        resources.append(profile.memory)
    return ", ".join(resources)


COMMANDS = (list_,)
