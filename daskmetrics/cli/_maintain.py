"""Verbs that look after a run: its journal and logs, its failures, its soundness; none needs a scheduler."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import friendly, run_folder
from daskmetrics.core._files import RunFolder

if TYPE_CHECKING:
    from daskmetrics.execution.map import ResultDifference
    from daskmetrics.experiment._maintain import Findings

DAMAGED = 1  # exit code of `verify`
SHOWN = 10  # differences of a results file


@click.command()
@run_folder
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only such entries: record, attempt, ask, ...")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@friendly
def journal(run: Path, types: tuple[str, ...], tail: int | None, as_json: bool) -> None:
    """Print what happened in RUN, entry by entry."""
    from daskmetrics.report import _log as log

    lines = log.journal_lines(RunFolder(run), types, tail)
    click.echo(log.journal_json(lines) if as_json else log.journal_text(lines))


@click.command()
@run_folder
@click.argument("key")
@friendly
def logs(run: Path, key: str) -> None:
    """Print the attempts of the unit KEY of RUN with their tracebacks, and its worker's log if there is one.

    KEY is a unit's name, such as tiny@step8, its key, or the beginning of one.
    """
    from daskmetrics.report import _log as log

    click.echo(log.log_text(RunFolder(run), key))


@click.command()
@run_folder
@click.option("--only", metavar="STATUS", help="Only units that failed so: error, quarantined, oom, timeout, nan.")
@friendly
def retry(run: Path, only: str | None) -> None:
    """Give the failed units of RUN another chance; the next `run` tries them again."""
    from daskmetrics import report
    from daskmetrics.core.errors import unknown
    from daskmetrics.experiment import _maintain as maintain

    loaded = report.Run(run)
    if only is not None and loaded.failed and only not in (statuses := {record.status for record in loaded.failed}):
        raise unknown("status of a failed unit", only, statuses)
    n = maintain.retry(loaded.folder, [record.key for record in loaded.failed if only in (None, record.status)])
    click.echo(f"{n} failed units get another chance: run the same command again." if n else "No unit failed.")


@click.command()
@run_folder
@click.option("--run", "of", type=click.Path(path_type=Path), help="Whose results a file is.  [default: look in runs/]")
@click.option("--sample", type=click.IntRange(0), default=20, show_default=True, help="Items of a map to run again.")
@click.option("--ignore", multiple=True, metavar="FIELD", help="Of those: a field that may differ.")
@click.option("--tolerance", type=float, default=0.0, help="Of those: relative difference allowed.")
@friendly
def verify(run: Path, of: Path | None, **again: Any) -> None:
    """Compare every cell of RUN's store with its journal; exit code 1 if anything is damaged.

    Of a map, its items are compared with the journal, and some of them are run again. RUN may also be a results file
    that a map wrote: its rows are compared first.
    """
    from daskmetrics.execution.map import _verify as results_file
    from daskmetrics.execution.map._folder import is_map
    from daskmetrics.experiment import _maintain as maintain

    if results_file.is_results(run):
        of = of or results_file.folder_of(run)
        differences = results_file.compare(run, of)
        _tell_of_rows(run, of, differences)
        sys.exit(max(_verify_map(of, again), DAMAGED if differences else 0))
    if is_map(run):
        sys.exit(_verify_map(run, again))
    found = maintain.verify(RunFolder(run))
    _tell(found)
    if found.damaged:
        click.echo(f"{len(found.damaged)} damaged. Rebuild them from the journal with: daskmetrics repair {run}")
        sys.exit(DAMAGED)
    click.echo(f"Sound: {found.lines:,} lines of the journal, {found.cells:,} cells of the store.")


def _verify_map(run: Path, again: Mapping[str, Any]) -> int:
    from daskmetrics.execution import map

    told = map.verify(run, **again)
    click.echo(told.text())
    return 0 if told.ok else DAMAGED


def _tell_of_rows(path: Path, run: Path, differences: Sequence[ResultDifference]) -> None:
    for each in differences[:SHOWN]:
        click.echo(f"{each.item}: {each.field} is {each.recorded!r} in the file, {each.again!r} in the run")
    rows = len({each.item for each in differences})
    remedy = "; running the same map again writes it anew" if rows else ""
    click.echo(f"'{path}' against '{run}': {rows} rows differ{remedy}.")


@click.command()
@run_folder
@friendly
def repair(run: Path) -> None:
    """Rebuild what is damaged in RUN's store from its journal."""
    from daskmetrics.experiment import _maintain as maintain

    found = maintain.repair(RunFolder(run))
    _tell(found)
    click.echo(f"{len(found.damages)} parts rewritten." if found.damages else "Nothing to repair.")


def _tell(found: Findings) -> None:
    for damage in found.damages:
        click.echo(f"{damage.kind.value:<10}{damage.where}: {damage.what}")
    if found.torn:
        click.echo(f"Half a line ({found.torn} bytes) ends the journal, as a killed writer leaves it: never committed.")


@click.command()
@run_folder
@friendly
def unlock(run: Path) -> None:
    """Remove the lease of a driver of RUN that will not come back, such as one on a machine that is gone."""
    from daskmetrics.experiment import _maintain as maintain

    removed = maintain.unlock_run(RunFolder(run))
    if removed is None:
        click.echo(f"Nobody holds the run in '{run}'.")
    else:
        click.echo(f"Removed the lease of {removed}. Should that process still live, it stops before it writes again.")


VERBS = (journal, logs, retry, verify, repair, unlock)
