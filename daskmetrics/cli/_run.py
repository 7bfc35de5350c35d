"""The commands `run` and `watch`, a run that follows checkpoints."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics import experiment
from daskmetrics.cli._common import (
    PATH,
    all_settings,
    cluster_option,
    config_file,
    configuration,
    end_as_by_ctrl_c,
    example,
    exit_when_recorded,
    flag_option,
    folder_option,
    ignore_input,
    require_jobs,
    say,
    settings_option,
    submit_config,
    submit_option,
    text_option,
    workers_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RUNS, RunFolder
from daskmetrics.core.text import plural

if TYPE_CHECKING:
    from daskmetrics.config import Config
    from daskmetrics.core.keys import Key

NOTHING_TO_DO = "Nothing to do: the run in '{}' is finished."
budget_option = text_option(
    "--budget", "SHARE", "Share of the cost of every score, or auto: --set search.budget=SHARE."
)


@click.command(epilog=example("daskmetrics run", "daskmetrics run mine.yaml --dry-run"))
@config_file
@settings_option
@cluster_option
@workers_option
@text_option(
    "--policy",
    "NAME",
    "Search policy; short for --set search.policy=NAME. `sweep` scores everything.",
)
@budget_option
@folder_option
@flag_option("--dry-run", "Show what would be done, and submit nothing.")
@submit_option
@flag_option("--in-job", "Use the Slurm job of this shell: one worker per GPU, by srun.")
def run(
    config: Path | None,
    folder: Path | None,
    dry_run: bool,
    submit: bool,
    in_job: bool,
    **options: Any,
) -> None:
    """Measure, search and report what CONFIG describes; without a file, the embedded demo.

    Run the same command again to resume; a finished run is not changed.
    """
    from rich.console import Console

    if submit and in_job:
        raise ConfigError("--submit and --in-job exclude each other: choose one.")
    if options["policy"] == "sweep" and options["budget"] is None:
        options["budget"] = "1.0"  # a sweep scores every cell
    loaded = configuration(config, all_settings(options))
    if in_job:
        loaded = _on_allocation(loaded, options["workers"])
    run_folder = RunFolder(folder or RUNS / loaded.name)
    # after the configuration is valid: importing Dask takes half a second
    if any(model.program for model in loaded.models):
        if submit:
            _submit(loaded, run_folder)
        elif dry_run:
            from daskmetrics.experiment import train

            for program, model in zip(train.programs(loaded), loaded.models, strict=True):
                ranks = plural(program.ranks, "rank")
                say(f"{program.name}: {ranks} of {' '.join(program.words)}")
                say(
                    f"Each checkpoint in '{model.source}' is measured and scored once it is complete."
                )
        else:
            _follow(loaded, run_folder, trains=True)
        return
    console = Console(stderr=True)
    with console.status("Checking models, tasks and texts ..."):  # shown on a terminal alone
        prepared = experiment.prepare(loaded, on_message=console.print)
    if dry_run:
        from daskmetrics.planning.preview import preview

        preview(prepared, run_folder).show()
        return
    if submit:
        if _is_finished(run_folder, prepared.plan.key):
            say(NOTHING_TO_DO.format(run_folder.path))
        else:
            _submit(loaded, run_folder)
        return
    ignore_input()
    end_as_by_ctrl_c()
    with exit_when_recorded() as ends, ExitStack() as cluster:
        with experiment.Display(console) as display:
            ran = experiment.run(prepared, run_folder, display, cluster=cluster)
        if not ran:
            say(NOTHING_TO_DO.format(run_folder.path))
        from daskmetrics import report
        from daskmetrics.report import terminal

        finished = report.Run(run_folder.path)
        page = run_folder.report / "index.html"
        # a run that was killed before it wrote its page has none, or one of an earlier budget
        is_current = page.is_file() and page.stat().st_mtime > run_folder.journal.stat().st_mtime
        if ran or not is_current:
            report.write(finished)
        if _is_finished(run_folder, prepared.plan.key):
            ends(0)
        say(terminal.best_text(finished, in_short=True))


def _is_finished(folder: RunFolder, plan: Key) -> bool:
    from daskmetrics.domain.events import is_finished
    from daskmetrics.execution.journal import read

    return is_finished(read(folder.journal), plan)


def _submit(config: Config, run_folder: RunFolder) -> None:
    require_jobs(config.cluster)
    run_folder.create()
    words = ["run", "--folder", str(run_folder.path.resolve())]
    submit_config(config, run_folder.path, words, [run_folder.path])


def _follow(config: Config, folder: RunFolder, trains: bool = False) -> None:
    """Measure and score each checkpoint as it appears; ``trains`` by the programs of the models."""
    from daskmetrics import report
    from daskmetrics.experiment.watch import watch as follow
    from daskmetrics.report import terminal

    ignore_input()
    end_as_by_ctrl_c()
    with exit_when_recorded() as ends:
        with experiment.Display() as display:
            follow(
                config,
                folder,
                display,
                on_round=lambda: report.write(report.Run(folder.path)),
                trains=trains,
            )
        ends(0)
        say(terminal.best_text(report.Run(folder.path), in_short=True))


def _on_allocation(config: Config, workers: int | None) -> Config:
    """The configuration with the Slurm job of this shell as its cluster, by default with all of its
    slots.
    """
    from daskmetrics.cluster.slurm.allocation import present

    count = present(os.environ).slots(config.cluster.threads, workers)
    changes = {"kind": "allocation", "workers": count, "scoring": None}
    return config.model_copy(update={"cluster": config.cluster.model_copy(update=changes)})


@click.command(
    epilog=example(
        "daskmetrics watch mine.yaml",
        "daskmetrics watch mine.yaml --until-idle 10m",
    )
)
@click.argument("config", type=PATH)
@settings_option
@cluster_option
@workers_option
@budget_option
@text_option("--until-idle", "TIME", "End without a new checkpoint for this time, such as 10m.")
@folder_option
def watch(config: Path, folder: Path | None, **options: Any) -> None:
    """Measure and score checkpoints as a training writes them, and say when the score has stopped
    rising.

    The models of CONFIG are folders to which checkpoints are added (`step500`, `checkpoint-500`),
    or encoders with a pattern of checkpoints (`out/*.pth`); a folder may not exist yet. Report,
    live page and `events.jsonl` in the folder of the run follow. The watch ends with the training:
    when `training.finished` is in the folder, or the last checkpoint is that of the last step of a
    trainer. Ctrl-C ends it, too; the same command goes on.
    """
    loaded = configuration(config, all_settings(options))
    _follow(loaded, RunFolder(folder or RUNS / loaded.name))
