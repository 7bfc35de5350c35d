"""Verbs that search what is known already; they need neither torch nor a scheduler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import friendly, table

if TYPE_CHECKING:
    from daskmetrics.bandit.replay import Plan, Setting, Trial


@click.command()
@click.argument("scores", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("race,random",),
    show_default=True,
    metavar="NAME,NAME,...",
    help="What to compare; may be repeated.",
)
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="Searches per policy.")
@click.option("--workers", default="1", show_default=True, metavar="N,N,...", help="Workers that search side by side.")
@click.option("--budget", type=float, default=0.2, show_default=True, help="Share of the exhaustive cost.")
@click.option(
    "--costs",
    type=click.Choice(["published", "shared", "unit"]),
    help="What a cell costs: the table's seconds; the same with encodings shared by layers; one.  [default: as known]",
)
@click.option("--overhead", type=float, default=0.0, metavar="SECONDS", help="Added to every cell.")
@click.option("--load", type=float, default=0.0, metavar="SECONDS", help="For a checkpoint that no worker holds.")
@click.option("--subset", type=click.IntRange(1), metavar="N", help="Each seed draws so many of the tasks.")
@click.option(
    "--reward",
    type=click.Choice(["mean", "zscore", "running", "rank", "harmonic", "robust"]),
    default="mean",
    show_default=True,
    help="How scores of different tasks are made comparable.",
)
@click.option("--objective", default="all", show_default=True, help="All tasks, a kind of task, or one task.")
@click.option(
    "--baseline", metavar="MODEL@REVISION", help="For 'zscore'.  [default: last checkpoint of the last model]"
)
@click.option("--model", "models", multiple=True, help="Only this model of the table; may be repeated.")
@click.option("--metrics", type=click.Path(path_type=Path), help="CSV of label-free metrics, one value per line.")
@click.option("--ablate", type=click.Choice(["metrics"]), help="Search with and without them, side by side.")
@click.option("--jobs", type=click.IntRange(1), help="Processes.  [default: one per core]")
@click.option("--output", type=click.Path(path_type=Path), help="Folder for CSV files and a plot.")
@friendly
def replay(
    scores: Path,
    policies: tuple[str, ...],
    seeds: int,
    workers: str,
    budget: float,
    models: tuple[str, ...],
    metrics: Path | None,
    ablate: str | None,
    jobs: int | None,
    output: Path | None,
    **terms: Any,
) -> None:
    """Search the known SCORES, to see what a policy would have found and at what cost.

    SCORES is a CSV file, the folder of a run, or a folder of mteb results. The policies are those of a live search, run
    by the same code.
    """
    from daskmetrics.bandit import replay as replays
    from daskmetrics.core.errors import ConfigError
    from daskmetrics.report import _score_tables as score_tables

    known = score_tables.read(scores, models, metrics)
    if ablate and known.metrics is None:
        raise ConfigError(f"'{scores}' has no metrics to leave out. Name a file of them by --metrics.")
    plan = replays.Plan(known, replays.Terms(**terms), budget)
    settings = [
        replays.Setting(policy, number, with_metrics)
        for policy in ",".join(policies).split(",")
        for number in _numbers(workers)
        for with_metrics in ((True, False) if ablate else (True,))
    ]
    click.echo(replays.about(plan))
    trials = _conduct(plan, settings, seeds, jobs or os.cpu_count() or 1)
    shares = [share for share in replays.SHARES if share <= budget * (1 + 1e-9)]
    for sheet in replays.sheets(trials, shares, plan.terms.costs_of(known) != "unit"):
        click.echo(f"\n{sheet.title}")
        table(sheet.header, sheet.rows)
        if sheet.note:
            click.echo(sheet.note)
    if output:
        _save(trials, shares, output)


def _numbers(text: str) -> list[int]:
    from daskmetrics.core.errors import ConfigError

    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ConfigError(f"'--workers {text}' is not a list of numbers of workers, for instance 1,8,32.")
    return [int(part) for part in parts]


def _conduct(plan: Plan, settings: Sequence[Setting], seeds: int, jobs: int) -> list[Trial]:
    from rich.console import Console
    from rich.progress import track

    from daskmetrics.bandit import replay as replays

    found = replays.conduct(plan, settings, range(seeds), jobs)
    console = Console(stderr=True)
    total = len(settings) * seeds
    return list(track(found, "searching", total, console=console, transient=True, disable=not console.is_terminal))


def _save(trials: Sequence[Trial], shares: Sequence[float], folder: Path) -> None:
    from daskmetrics.bandit import replay as replays

    for path in replays.write(trials, shares, folder):
        click.echo(path)
    try:
        from daskmetrics.bandit.replay import _report as report
    except ImportError:
        click.echo("No plot: matplotlib is not installed. Install daskmetrics[plot].")
        return
    click.echo(report.draw(trials, folder / "replay.png"))


COMMANDS = (replay,)
