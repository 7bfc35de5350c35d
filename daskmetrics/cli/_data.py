"""Commands that download inputs, export scores and import results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import (
    config_file,
    configuration,
    example,
    flag_option,
    folder_option,
    path_option,
    run_folder,
    say,
    settings_option,
    text_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import Table
from daskmetrics.core.text import size_text

if TYPE_CHECKING:
    from daskmetrics.experiment.prefetch import MissingFiles
    from daskmetrics.experiment.preparation import Experiment


@click.command(epilog=example("daskmetrics runs prefetch mine.yaml --dry-run"))
@config_file
@settings_option
@text_option("--task", "NAME", "Only the data of this task; may be repeated.", multiple=True)
@flag_option("--dry-run", "Show what is missing and its size, and download nothing.")
def prefetch(
    config: Path | None, settings: tuple[str, ...], task: tuple[str, ...], dry_run: bool
) -> None:
    """Download the models and data sets that CONFIG needs.

    Workers then need no network. Files on this machine are not downloaded again, and an interrupted
    download resumes.
    """
    from daskmetrics.experiment import prefetch as downloading
    from daskmetrics.tasks import resolve

    limited = []
    if task:
        missing = downloading.data_sets(resolve(task))
    else:
        experiment = _prepared(config, settings)
        missing = downloading.downloads(experiment)
        limited = [
            f"{model.name} (through {model.disk} of disk)"
            for model in experiment.config.models
            if model.disk
        ]
    subject = "Everything"
    if limited:
        subject = "Everything else"
        say(f"The run itself downloads the checkpoints of {', '.join(limited)}, as it needs them.")
    if not missing:
        say(f"{subject} is on this machine.")
        return
    sizes = [download.size() for download in missing]
    rows = [
        (download.kind, download.name, "unknown" if size is None else size_text(size))
        for download, size in zip(missing, sizes, strict=True)
    ]
    Table(("what", "name", "size"), tuple(rows)).show()
    total = f"{size_text(sum(filter(None, sizes)))} to download into '{downloading.cache()}'"
    if None in sizes:
        total += f", and {sizes.count(None)} of unknown size"
    say(f"{total}.")
    if dry_run:
        sys.exit(1)
    downloading.require_space(sizes, downloading.cache())
    if failed := _download(missing):
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise ConfigError(
            f"{len(failed)} of {len(missing)} could not be downloaded; run the same command to "
            f"try again.\n{reasons}"
        )


def _download(missing: list[MissingFiles]) -> dict[str, str]:
    """Download with a progress bar; return the reasons of failures, by name."""
    from rich.console import Console
    from rich.progress import Progress

    from daskmetrics.experiment import prefetch as downloading

    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("downloading", total=len(missing))

        def done(download: MissingFiles, reason: str | None) -> None:
            progress.advance(bar)
            outcome = "failed" if reason else "done  "
            progress.console.print(f"{outcome} {download.kind} {download.name}", highlight=False)

        return dict(downloading.fetch(missing, done))


@click.command(epilog=example("daskmetrics runs export demo"))
@run_folder
@path_option("--output", "[default: export-mteb in RUN]")
def export(run: Path, output: Path | None) -> None:
    """Write the scores of RUN as files of mteb.

    The files are those of mteb's ResultCache, with one experiment per layer. All numbers in one
    table: `report --format csv`.
    """
    from daskmetrics.experiment import transfer

    path = output or run / "export-mteb"
    written, others = transfer.to_mteb(RunFolder(run), path)
    say(f"{written} scores: {path}")
    if others:
        say(f"{others} scores are of tasks that mteb does not have; report --format csv has them.")


@click.command(
    "import-results", epilog=example("daskmetrics runs import-results results mine.yaml")
)
@click.argument("results", type=click.Path(path_type=Path, exists=True, file_okay=False))
@config_file
@settings_option
@folder_option
def import_results(
    results: Path, config: Path | None, settings: tuple[str, ...], folder: Path | None
) -> None:
    """Import scores of mteb into the run of CONFIG, at no cost.

    RESULTS is a folder of mteb results by layer.
    """
    from daskmetrics.experiment import transfer

    experiment = _prepared(config, settings)
    run = RunFolder(folder or Path("runs") / experiment.config.name)
    counts = transfer.import_results(experiment, run, results)
    say(f"{counts.new} scores imported into '{run.path}'; {counts.known} were known.")
    remarks = {
        "do not name their protocol; the protocol of the run is assumed": counts.unmarked,
        "had more splits or subsets than the task; only those of the task are used": counts.reduced,
        f"lack a split or subset of the task and are left out; {counts.example}": counts.incomplete,
        "were made with another protocol and are left out": counts.other_protocol,
        "are of models, revisions, layers or tasks that the configuration does not name": (
            counts.elsewhere
        ),
    }
    for remark, count in remarks.items():
        if count:
            say(f"{count} {remark}.")


def _prepared(config: Path | None, settings: tuple[str, ...]) -> Experiment:
    from daskmetrics import experiment

    return experiment.prepare(configuration(config, settings))


COMMANDS = (prefetch, export, import_results)
