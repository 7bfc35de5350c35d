"""Commands that read a run from its files, without torch and without a scheduler."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import PATH, friendly, run_folder
from daskmetrics.core._files import RunFolder
from daskmetrics.core._table import Table
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.report import Run
    from daskmetrics.tasks import Task

FORMATS = ("html", "csv", "parquet", "netcdf")
DATA = "DASKMETRICS_PUBLISHED_DATA"  # the environment variable with the folder of the published table


@click.command()
@run_folder
@friendly
def status(run: Path) -> None:
    """Show the progress, the failures and the Slurm jobs of RUN, from its files and Slurm's queue."""
    from daskmetrics import report
    from daskmetrics.execution.map._folder import is_map, read_map
    from daskmetrics.execution.map._results import summary_text

    if not RunFolder(run).journal.exists() and (job := _driver_job(run)):
        click.echo(job)  # the job has not started the run
        return
    if is_map(run):
        recorded = read_map(run)
        click.echo(summary_text(recorded.results, len(recorded.items)))
        return
    loaded = report.Run(run)
    if not loaded.finished and (job := _driver_job(run)):
        click.echo(job)
    click.echo(report.status_text(loaded))
    if loaded.driver and loaded.config["cluster"]["kind"] == "slurm":
        from daskmetrics.cluster.slurm._commands import queue_text
        from daskmetrics.cluster.slurm._script import job_name

        click.echo(f"jobs        {queue_text(job_name(loaded.start.name))}")


def _driver_job(run: Path) -> str | None:
    """The state of the job that drives the run, if the run was submitted as a job."""
    from daskmetrics.cluster.slurm import _driver_job as driver_job
    from daskmetrics.cluster.slurm._commands import SlurmError, job_state

    job = driver_job.submitted(driver_job.DriverFiles(RunFolder(run).driver))
    if job is None:
        return None
    try:
        return driver_job.describe(job, job_state(job.job))
    except (SlurmError, ConfigError) as error:
        return f"Job {job.job} was submitted to drive the run. Its state is unknown: {error}"


@click.command()
@run_folder
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="A page, or numbers in one file.",
)
@click.option("--output", type=PATH, help="File for the numbers.  [default: in RUN/report]")
@click.option("--svg", is_flag=True, help="Write each figure as SVG, too.")
@friendly
def report(run: Path, kind: str, output: Path | None, svg: bool) -> None:
    """Write the HTML report and the figures of RUN, or all its numbers for other programs."""
    from daskmetrics import report as reports

    loaded = reports.Run(run)
    if kind != "html":
        click.echo(reports.export(loaded, kind, output))  # type: ignore[arg-type]  # click has checked it
        return
    reports.write(loaded, svg)
    click.echo(reports.summary_text(loaded))
    click.echo(reports.whereabouts(loaded.folder))


@click.command()
@run_folder
@click.option(
    "--within",
    metavar="SHARE",
    help="Show the shallowest and the earliest arm that lose at most this share, such as 1%.",
)
@click.option("--sure", type=float, default=0.8, show_default=True, help="Least probability that --within holds.")
@click.option("--pareto", is_flag=True, help="Show the arms that no other arm beats in both score and cost.")
@click.option("--output", type=PATH, metavar="FILE.png", help="Draw scores against costs; with --pareto.")
@friendly
def best(run: Path, within: str | None, sure: float, pareto: bool, output: Path | None) -> None:
    """Print the best arm of RUN and the Python that loads it."""
    from daskmetrics import report

    if output and not pareto:
        raise ConfigError("--output draws scores against costs: add --pareto.")
    loaded = report.Run(run)
    if pareto:
        _trade_offs(loaded, output)
        return
    if within is None:
        click.echo(report.best_text(loaded))
        return
    from daskmetrics.report._explain import near_best_text

    click.echo(near_best_text(loaded, _share(within), sure))


def _trade_offs(run: Run, output: Path | None) -> None:
    from daskmetrics.report._explain import trade_offs_text

    if output and (output.suffix.lower() != ".png" or not output.parent.is_dir()):
        raise ConfigError(f"--output '{output}' is not a file such as tradeoffs.png in a folder that exists.")
    click.echo(trade_offs_text(run))
    if output:
        from daskmetrics.core._files import atomic_write
        from daskmetrics.report.plots._figures import trade_offs

        click.echo(f"\n{atomic_write(output, trade_offs(run).png)}")


def _share(text: str) -> float:
    """A share such as ``1%`` or ``0.01``."""
    try:
        share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise ConfigError(f"--within '{text}' is not a share between 0 and 1: write 1% or 0.01.")
    return share


@click.command()
@click.argument("run", type=PATH)
@click.argument("arm")
@friendly
def explain(run: Path, arm: str) -> None:
    """Explain why the search of RUN chose ARM or not: posterior, decisions, scores, metrics.

    ARM is written `MODEL@REVISION/LAYER`.
    """
    from daskmetrics import report
    from daskmetrics.report._explain import explain_text

    click.echo(explain_text(report.Run(run), arm))


@click.command()
@click.argument("run", type=PATH)
@click.argument("other", type=PATH, required=False)
@click.option(
    "--published", type=PATH, help=f"Table of published scores (CSV).  [default: published_scores.csv.gz in ${DATA}]"
)
@click.option("--arms", nargs=2, metavar="ARM ARM", help="Compare two arms; the second is of OTHER, if there is one.")
@friendly
def compare(run: Path, other: Path | None, published: Path | None, arms: tuple[str, str] | None) -> None:
    """Compare RUN with OTHER or, without OTHER, with the published scores of its models; or compare two arms.

    Differences of arms are paired: their error comes from the outcomes of the same items.
    """
    from daskmetrics import report
    from daskmetrics.report._compare import compare_published_text, compare_text
    from daskmetrics.report._paired import compare_arms_text

    one = report.Run(run)
    if arms:
        click.echo(compare_arms_text(one, *arms, report.Run(other) if other else None))
        return
    if other is not None:
        click.echo(compare_text(one, report.Run(other)))
    if other is None or published is not None:
        from daskmetrics.execution import _score_tables as score_tables

        if published is None:
            if (folder := os.environ.get(DATA)) is None:
                raise ConfigError(f"Give a second RUN, or a table of published scores by --published FILE or ${DATA}.")
            published = Path(folder) / "published_scores.csv.gz"
        click.echo(compare_published_text(one, score_tables.published(published), str(published)))


@click.command()
@friendly
def metrics() -> None:
    """List the metrics by family: definition, unit, input, source, cost and parameters."""
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
    click.echo(
        "Whether a metric rises or falls with the scores differs between families of models: no value is good\n"
        "in itself, and a rule fitted on other models chooses no better than the last layer. A search learns it\n"
        "from its own scores, and its report says what the metrics contributed. See docs/search.md, Metrics.\n"
    )
    click.echo("Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under 'metrics:'.")


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--runs", type=PATH, default=Path("runs"), show_default=True, help="Folder of earlier runs, for measured costs."
)
@friendly
def tasks(names: tuple[str, ...], runs: Path) -> None:
    """List the tasks NAMES, written as in a configuration; by default the embedded and the installed tasks.

    The cost is the median of earlier runs: seconds to encode all layers of a checkpoint, and to score one layer.
    """
    from daskmetrics.experiment._estimate import task_costs
    from daskmetrics.tasks import catalogue, resolve

    seen = task_costs(runs)
    chosen = resolve(names or tuple(catalogue()))
    sizes = [_texts(task) for task in chosen]
    rows = [
        (
            task.name,
            task.kind,
            *_scope(task),
            task.main_score,
            f"{'' if task.is_local else 'about '}{size:,}" if size else "",
            f"{cost.encode:.1f} + {cost.score:.2f} s" if (cost := seen.get(task.name)) else "",
            "local" if task.is_local else "not downloaded",
            task.description,
        )
        for task, size in zip(chosen, sizes, strict=True)
    ]
    headers = ("task", "kind", "subsets", "split", "score", "texts", "measured cost", "data", "question")
    known = [size for size in sizes if size]
    note = f"Total: {sum(known):,} texts" + (f" of {len(known)} of {len(sizes)} tasks" if None in sizes else "")
    if None in sizes and find_spec("mteb") is None:
        note += ". The sizes of tasks of the benchmark need mteb: pip install 'daskmetrics[mteb]'"
    Table(headers, tuple(rows), notes=(note,)).show()
    if not names:
        click.echo("Others: preset:layer-by-layer-32, mteb:NAME, file:PATH; list them with: daskmetrics tasks NAME ...")


def _scope(task: Task) -> tuple[str, str]:
    """The subsets and splits of a task that a benchmark evaluates."""
    selection = getattr(task, "selection", None)
    if selection is None:
        return "", ""
    names = selection.subsets
    few = "+".join(names) if len(names) <= 6 else f"{len(names)}: {'+'.join(names[:3])}+..."
    return few, "+".join(selection.splits)


def _texts(task: Task) -> int | None:
    """The number of texts; for a task that is not downloaded, the number that its benchmark lists."""
    if task.is_local:
        return len(task.texts())
    statistics = getattr(task, "statistics", None)
    return statistics.texts if statistics else None


COMMANDS = (status, report, best, explain, compare, metrics, tasks)
