"""The verb ``replay``: search a table of known scores, without torch or a scheduler."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    RUN,
    Output,
    answering,
    example,
    number_option,
    text_option,
)
from daskmetrics.core.table import Table

if TYPE_CHECKING:
    from daskmetrics.bandit.replay import ReplayPlan, ReplayTrial, Setting


@click.command(epilog=example("daskmetrics runs replay demo --policy race --seeds 20"))
@click.argument("scores", type=RUN)
@text_option("--policy", "NAME", "A policy, or package.module:function.", default="race")
@number_option("--seeds", "Number of searches.", default=20)
@text_option(
    "--budget", "SHARE", "Share of the cost of scoring everything.", type=float, default=0.2
)
@text_option(
    "--models",
    "NAME,NAME,...",
    "Use only these models of the table; may be repeated.",
    multiple=True,
)
@text_option("--objective", "NAME", "All tasks, a kind of task, or one task.", default="all")
@number_option("--subset", "Number of tasks that each seed draws.")
@click.option(
    "--costs",
    type=click.Choice(["published", "shared", "unit"]),
    help=(
        "Cost of a score: the table's seconds, the same with shared encodings, or 1.  [default: the"
        " most precise]"
    ),
)
@click.option(
    "--metrics", is_flag=True, help="Use the table's metrics as features of the candidates."
)
@text_option("--overhead", "SECONDS", "Seconds added to every score.", type=float, default=0.0)
@click.option(
    "--workers", type=click.IntRange(1, 10_000), default=1, help="Number of simulated workers."
)
@number_option("--jobs", "Number of processes.  [default: one per core]")
@answering
def replay(
    scores: Path,
    policy: str,
    seeds: int,
    budget: float,
    models: tuple[str, ...],
    workers: int,
    jobs: int | None,
    **scenario: Any,
) -> Output:
    """Search the known SCORES, to see what a policy would have found and at what cost.

    SCORES is a CSV file or the folder of a run. The searches run the code of a live search.
    """
    from daskmetrics.bandit.replay import (
        COST_SHARES,
        ReplayPlan,
        Scenario,
        Setting,
        curve,
        ground_truth,
    )
    from daskmetrics.experiment import score_tables

    chosen = [name.strip() for name in ",".join(models).split(",") if name]
    table = score_tables.read(scores, chosen)
    plan = ReplayPlan(table, Scenario(**scenario), budget, confidence_at=())
    trials = _searched(plan, Setting(policy, workers), seeds, jobs or os.cpu_count() or 1)
    shares = [share for share in COST_SHARES if share < budget * (1 - 1e-9)]
    points = curve(trials, [*shares, budget])
    truth = ground_truth(table, plan.scenario.build_problem(table))
    best = str(table.arms[truth.best])
    sentence = (
        f"With a share of {budget:.3g} of the cost of every score, {points[-1].found} of {seeds}"
        f" searches by {policy} recommended a candidate within 1 % of the best, {best}."
    )
    document = {
        "candidates": len(table.arms),
        "tasks": len(table.tasks),
        "scores": table.known,
        "best": best,
        "curve": [asdict(point) for point in points],
        "sentence": sentence,
    }

    def show() -> None:
        rows = [
            (
                f"{100 * point.share:.3g} %",
                f"{point.found} of {point.searches}",
                f"{100 * point.loss:.2f} %" if math.isfinite(point.loss) else "no answer yet",
            )
            for point in points
        ]
        grid = f"{len(table.arms):,} candidates x {len(table.tasks)} tasks"
        title = f"{grid}, {table.known:,} scores known"
        header = ("cost", "within 1 % of the best", "median loss")
        Table(header, tuple(rows), title, notes=(sentence,)).show()

    return Output(lambda: document, show)


def _searched(plan: ReplayPlan, setting: Setting, seeds: int, jobs: int) -> list[ReplayTrial]:
    from rich.console import Console
    from rich.progress import track

    from daskmetrics.bandit.replay import run_trials

    console = Console(stderr=True)
    trials = run_trials(plan, [setting], range(seeds), jobs)
    is_hidden = not console.is_terminal
    return list(
        track(trials, "searching", seeds, console=console, transient=True, disable=is_hidden)
    )


COMMANDS = (replay,)
