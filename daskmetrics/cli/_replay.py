"""The verb ``replay``: search a table of known scores, without torch or a scheduler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import PATH, RUN, Answer, answering, example, say

if TYPE_CHECKING:
    from daskmetrics.bandit.replay import ReplayPlan, ReplayTrial, Setting

MOST_WORKERS = 10_000  #: that are simulated


@click.command(epilog=example("daskmetrics replay demo --policy race,random --seeds 20"))
@click.argument("scores", type=RUN, nargs=-1, required=True)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("race,random",),
    show_default=True,
    metavar="NAME,NAME,...",
    help="Policies to compare; may be repeated.",
)
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="Searches per policy.")
@click.option("--workers", default="1", show_default=True, metavar="N,N,...", help="Number of simulated workers.")
@click.option("--budget", type=float, default=0.2, show_default=True, help="Share of the exhaustive cost.")
@click.option(
    "--costs",
    type=click.Choice(["published", "shared", "unit"]),
    help="Cost of a cell: the table's seconds, the same with shared encodings, or 1.  [default: the most precise]",
)
@click.option("--overhead", type=float, default=0.0, metavar="SECONDS", help="Seconds added to every cell.")
@click.option(
    "--load", type=float, default=0.0, metavar="SECONDS", help="Seconds to load a checkpoint that no worker holds."
)
@click.option("--subset", type=click.IntRange(1), metavar="N", help="Number of tasks that each seed draws.")
@click.option(
    "--reward",
    type=click.Choice(["mean", "zscore", "running", "rank", "harmonic", "robust"]),
    default="mean",
    show_default=True,
    help="How the scores of different tasks become comparable.",
)
@click.option("--objective", default="all", show_default=True, help="All tasks, a kind of task, or one task.")
@click.option(
    "--baseline",
    metavar="MODEL@REVISION",
    help="Baseline of the reward 'zscore'.  [default: last checkpoint of the last model]",
)
@click.option(
    "--models",
    "--model",
    "models",
    multiple=True,
    metavar="NAME,NAME,...",
    help="Use only these models of the tables; may be repeated.",
)
@click.option("--complete", is_flag=True, help="Leave out arms without a score on every task of the objective.")
@click.option(
    "--metrics", type=PATH, multiple=True, help="CSV file of label-free metrics, one value per line; may be repeated."
)
@click.option(
    "--prior", type=PATH, help="Scores of other models on the same tasks, from which to learn how alike they are."
)
@click.option("--ablate", type=click.Choice(["metrics"]), help="Compare searches with and without metrics as features.")
@click.option("--jobs", type=click.IntRange(1), help="Number of processes.  [default: one per core]")
@click.option("--output", type=PATH, help="Folder for CSV files and a plot.")
@answering
def replay(
    scores: tuple[Path, ...],
    policies: tuple[str, ...],
    seeds: int,
    workers: str,
    budget: float,
    models: tuple[str, ...],
    complete: bool,
    metrics: tuple[Path, ...],
    prior: Path | None,
    ablate: str | None,
    jobs: int | None,
    output: Path | None,
    **scenario: Any,
) -> Answer:
    """Search the known SCORES, to see what a policy would have found and at what cost.

    SCORES is a CSV file, the folder of a run, or a folder of mteb results; several are joined. The searches run the
    code of a live search.
    """
    from daskmetrics.bandit import replay as replays
    from daskmetrics.bandit.replay._statistics import as_lines
    from daskmetrics.core.errors import ConfigError
    from daskmetrics.execution import _score_tables as score_tables

    known = score_tables.read(scores, _names(models), metrics)
    if ablate and known.metrics is None:
        raise ConfigError(
            f"'{', '.join(map(str, scores))}' has no metrics to leave out. Name a file of metrics with --metrics."
        )
    posed = replays.Scenario(**scenario, prior=score_tables.read(prior) if prior else None)
    plan = replays.ReplayPlan(known.complete(posed.needed(known)) if complete else known, posed, budget)
    settings = [
        replays.Setting(policy, number, with_metrics)
        for policy in _names(policies)
        for number in _numbers(workers)
        for with_metrics in ((True, False) if ablate else (True,))
    ]
    trials = _run(plan, settings, seeds, jobs or os.cpu_count() or 1)
    shares = [share for share in replays.COST_SHARES if share <= budget * (1 + 1e-9)]
    files = _save(trials, shares, output) if output else []
    problem = replays.describe(plan)

    def show() -> None:
        say(problem)
        for table in replays.summary_tables(trials, shares, plan.scenario.costs_for(known) != "unit"):
            say()
            table.show()
        for path in files:
            say(path)

    return Answer(lambda: {"problem": problem, **as_lines(trials, shares), "files": files}, show)


def _names(given: Sequence[str]) -> list[str]:
    """The names in options that may be repeated, each with one name or several after commas."""
    return [name.strip() for text in given for name in text.split(",")]


def _numbers(text: str) -> list[int]:
    from daskmetrics.core.errors import ConfigError

    parts = text.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part[:20]) <= MOST_WORKERS for part in parts):
        raise ConfigError(
            f"'--workers {text[:40]}' is not a list of numbers from 1 to {MOST_WORKERS}. Write for instance 1,8,32."
        )
    return [int(part) for part in parts]


def _run(plan: ReplayPlan, settings: Sequence[Setting], seeds: int, jobs: int) -> list[ReplayTrial]:
    from rich.console import Console
    from rich.progress import track

    from daskmetrics.bandit import replay as replays

    trials = replays.run_trials(plan, settings, range(seeds), jobs)
    console = Console(stderr=True)
    total = len(settings) * seeds
    return list(track(trials, "searching", total, console=console, transient=True, disable=not console.is_terminal))


def _save(trials: Sequence[ReplayTrial], shares: Sequence[float], folder: Path) -> list[Path]:
    """Write the CSV files and the plot; returns their paths."""
    from daskmetrics.bandit.replay import _report as report
    from daskmetrics.bandit.replay import write_csv

    paths = write_csv(trials, shares, folder)
    try:
        paths.append(report.draw(trials, folder / "replay.png"))
    except ImportError:
        say("No plot: matplotlib is not installed. Install daskmetrics[plot].", err=True)
    return paths


COMMANDS = (replay,)
