"""The group `runs`: the maintenance of a run, and what goes in and out of one; none needs a
scheduler.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics import experiment
from daskmetrics.cli._common import (
    AMOUNT,
    RUN,
    Output,
    Sections,
    answering,
    as_json_option,
    config_file,
    configuration,
    example,
    flag_option,
    note,
    number_option,
    path_option,
    run_argument,
    run_folder,
    say,
    settings_option,
    text_option,
)
from daskmetrics.core.errors import ConfigError, unknown
from daskmetrics.core.files import RunFolder, require_regular
from daskmetrics.core.table import Table
from daskmetrics.core.text import listed, size_text
from daskmetrics.domain.events import to_json
from daskmetrics.domain.results import Status

if TYPE_CHECKING:
    from daskmetrics.experiment.maintenance import CheckResult

MOST_DIFFERENCES = 10  # of a results file that are shown
DAMAGED = 1  # exit code of `verify`
FAILED = tuple(
    status.name.lower()
    for status in (Status.ERROR, Status.QUARANTINED, Status.OOM, Status.TIMEOUT, Status.NAN)
)


@click.group(cls=Sections, epilog=example("daskmetrics runs verify demo"))
def runs() -> None:
    """Look after runs: logs, repair, export."""


@runs.command(epilog=example("daskmetrics runs worker step --workers 2"))
@run_argument("run")
@number_option("--workers", "How many.", default=1)
@text_option("--memory", "SIZE", "Limit of each worker, such as 16GiB.  [default: as of the run's]")
def worker(run: Path, workers: int, memory: str | None) -> None:
    """Start workers on this machine that take part in the running map RUN.

    They end with the map. With Ctrl-C they leave: each finishes and reports what it runs, and takes
    nothing more; a second Ctrl-C ends them at once. This machine must see the folder of the run and
    have the same packages.
    """
    from daskmetrics.cluster.join import join

    join(run, workers, memory, note)


@runs.command(epilog=example("daskmetrics runs journal demo --type record --tail 5"))
@run_folder
@text_option("--type", "TYPE", "Only entries of this type, such as record.", multiple=True)
@number_option("--tail", "Only the last N entries.")
@as_json_option
def journal(
    run: Path,
    type: tuple[str, ...],
    tail: int | None,
    as_json: bool,
) -> None:
    """Print the journal of RUN, entry by entry; with --json one JSON object per line."""
    from daskmetrics.report import log

    lines = log.journal_lines(RunFolder(run), type, tail)
    if not lines:
        of_types = f" of type {listed(type)}" if type else ""
        note(f"The journal has no entry{of_types}.")
    elif as_json:
        for number, entry in lines:
            say(json.dumps({"line": number, **to_json(entry)}))
    else:
        say(log.journal_text(lines))


@runs.command(epilog=example("daskmetrics runs logs demo tiny-64@step512"))
@run_folder
@click.argument("key")
def logs(run: Path, key: str) -> None:
    """Print the attempts of the work unit KEY of RUN with their tracebacks.

    The log of its worker is printed, too, if there is one. KEY is a unit's name, such as
    `tiny@step8`, its key, or the beginning of either.
    """
    from daskmetrics.report import log

    say(log.log_text(RunFolder(run), key))


@runs.command(epilog=example("daskmetrics runs retry demo --only timeout"))
@run_folder
@text_option("--only", "STATUS", f"Only units with this status: {', '.join(FAILED)}.")
def retry(run: Path, only: str | None) -> None:
    """Reset the failed units of RUN; the next `run` tries them again."""
    from daskmetrics import report
    from daskmetrics.experiment import maintenance

    if only not in (None, *FAILED):
        raise unknown("status of a failed unit", str(only), FAILED)
    loaded = report.Run(run)
    failed = [record.key for record in loaded.failed if only in (None, record.status)]
    if n := maintenance.retry(loaded.folder, failed):
        say(f"{n} failed units are reset; `daskmetrics run` tries them again.")
    else:
        with_status = f" with the status {only}" if only else ""
        say(f"No unit failed{with_status}.")


@runs.command(epilog=example("daskmetrics runs verify demo"))
@run_folder
@click.option("--run", "of", type=RUN, help="The run of a results file.  [default: from runs/]")
@number_option("--sample", "Items of a map to run again.", least=0, default=20)
@text_option("--ignore", "FIELD", "A field of these items that may differ.", multiple=True)
@text_option(
    "--tolerance",
    "SHARE",
    "Relative difference that these items may have.",
    type=AMOUNT,
    default=0.0,
)
@answering
def verify(run: Path, of: Path | None, **again: Any) -> Output:
    """Compare every value of RUN's store with its journal.

    The exit code is 1 if anything is damaged. For a map, all items are compared with the journal,
    and some are run again. RUN may also be a results file of a map: its rows are compared first.
    """
    from daskmetrics.execution.map.folder import folder_of, is_map
    from daskmetrics.execution.map.result_table import SUFFIXES
    from daskmetrics.experiment import maintenance

    if run.suffix in SUFFIXES and run.is_file():
        return _verify_map(of or folder_of(run), again, run)
    if is_map(run):
        return _verify_map(run, again)
    result = maintenance.verify(RunFolder(run))
    fields = {name: getattr(result, name) for name in ("lines", "torn", "cells", "damages")}
    document = {"folder": run, "ok": not result.damaged, **fields}
    conclusion = (
        f"No damage: {result.lines:,} lines of the journal, {result.cells:,} values of the store."
    )
    if result.damaged:
        conclusion = (
            f"{len(result.damaged)} damaged. Rebuild them from the journal with: "
            f"daskmetrics runs repair {run}"
        )
    shown = "\n".join([*_damage_lines(result), conclusion])
    return Output(lambda: document, [shown], DAMAGED if result.damaged else 0)


def _damage_lines(result: CheckResult) -> list[str]:
    lines = [f"{damage.kind.value:<10}{damage.where}: {damage.what}" for damage in result.damages]
    if result.torn:
        lines.append(
            f"The journal ends with an incomplete line ({result.torn} bytes) of a killed writer; it"
            " is ignored."
        )
    return lines


def _verify_map(run: Path, again: Mapping[str, Any], file: Path | None = None) -> Output:
    """A map, after the rows of its results file if there is one."""
    from daskmetrics.execution import map
    from daskmetrics.execution.map.folder import compare

    differences = compare(file, run) if file else []
    result = map.verify(run, **again)
    is_ok = result.ok and not differences
    document = {"folder": run, **vars(result), "ok": is_ok}
    if file:
        document |= {"file": file, "file_differences": differences}
    shown = result.text
    if file:
        lines = [
            f"{gap.item}: {gap.field} is {gap.recorded!r} in the file, {gap.again!r} in the run"
            for gap in differences[:MOST_DIFFERENCES]
        ]
        rows = len({gap.item for gap in differences})
        summary = f"'{file}' compared with '{run}': {rows} rows differ"
        if differences:
            summary += "; run the same map again to write the file again"
        shown = "\n".join([*lines, f"{summary}.", shown])
    return Output(lambda: document, [shown], 0 if is_ok else DAMAGED)


@runs.command(epilog=example("daskmetrics runs repair demo"))
@run_folder
def repair(run: Path) -> None:
    """Rebuild the damaged parts of RUN's store from its journal."""
    from daskmetrics.experiment import maintenance

    result = maintenance.repair(RunFolder(run))
    conclusion = "Nothing to repair."
    if result.damages:
        conclusion = f"{len(result.damages)} parts rewritten."
    say("\n".join([*_damage_lines(result), conclusion]))


@runs.command(epilog=example("daskmetrics runs unlock demo"))
@run_folder
def unlock(run: Path) -> None:
    """Remove the lock of a driver of RUN that has ended without removing it."""
    from daskmetrics.execution.journal import unlock as remove_lock

    folder = RunFolder(run)
    if not run.is_dir():
        folder.must_exist()  # it may have been locked before it had a journal
    removed = remove_lock(folder.lock)
    if removed is None:
        say(f"No driver holds the run in '{run}'.")
    else:
        say(
            f"Removed the lock of {removed}. If that process still runs, it stops before its next "
            "write."
        )


@runs.command(epilog=example("daskmetrics runs prefetch mine.yaml --dry-run"))
@config_file
@settings_option
@text_option("--task", "NAME", "Only the data of this task; may be repeated.", multiple=True)
@flag_option("--dry-run", "Show what is missing and its size, and download nothing.")
def prefetch(
    config: Path | None,
    settings: tuple[str, ...],
    task: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Download the models and data sets that CONFIG needs.

    Workers then need no network. Files on this machine are not downloaded again, and an interrupted
    download resumes.
    """
    from rich.console import Console
    from rich.progress import track

    from daskmetrics.experiment import prefetch as downloading
    from daskmetrics.tasks import resolve

    subject = "Everything"
    if task:
        missing = downloading.data_sets(resolve(task))
    else:
        prepared = experiment.prepare(configuration(config, settings))
        missing = downloading.downloads(prepared)
        limited = [model for model in prepared.config.models if model.disk]
        if limited:
            subject = "Everything else"
            names = ", ".join(f"{model.name} (through {model.disk} of disk)" for model in limited)
            say(f"The run itself downloads the checkpoints of {names}, as it needs them.")
    if not missing:
        say(f"{subject} is on this machine.")
        return
    sizes = [download.size() for download in missing]
    rows = []
    for download, size in zip(missing, sizes, strict=True):
        rows.append((download.kind, download.name, "unknown" if size is None else size_text(size)))
    say(Table(("what", "name", "size"), rows))
    total = f"{size_text(sum(filter(None, sizes)))} to download into '{downloading.cache()}'"
    if None in sizes:
        total += f", and {sizes.count(None)} of unknown size"
    say(f"{total}.")
    if dry_run:
        sys.exit(1)
    downloading.require_space(sizes, downloading.cache())
    console = Console(stderr=True)
    failed = []
    downloads = downloading.fetch(missing)
    for download, reason in track(downloads, "downloading", len(missing), console=console):
        if reason:
            failed.append(f"  {download.name}: {reason}")
        outcome = "failed" if reason else "done"
        console.print(f"{outcome:<6} {download.kind} {download.name}", highlight=False)
    if failed:
        problem = f"{len(failed)} of {len(missing)} could not be downloaded"
        raise ConfigError("\n".join([f"{problem}; run the same command to try again.", *failed]))


@runs.command(epilog=example("daskmetrics runs export demo"))
@run_folder
@path_option("--output", "[default: export-mteb in RUN]")
def export(run: Path, output: Path | None) -> None:
    """Write the scores of RUN as files of mteb.

    The files are those of mteb's ResultCache, with one experiment per layer. All numbers in one
    table: `report --format csv`.
    """
    from daskmetrics import report

    loaded = report.Run(run)
    path = output or loaded.folder.export
    require_regular(loaded.folder.export, below=True)
    written, others = report.to_mteb(loaded.records, loaded.config["models"], path)
    say(f"{written} scores: {path}")
    if others:
        say(f"{others} scores are of tasks that mteb does not have; report --format csv has them.")
