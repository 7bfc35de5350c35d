"""Commands that maintain a run: journal, logs, retry, verify, repair, unlock; none needs a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import RUN, Answer, answering, example, friendly, run_folder, say
from daskmetrics.core._files import RunFolder
from daskmetrics.core._text import listed
from daskmetrics.core.status import Status

if TYPE_CHECKING:
    from daskmetrics.experiment._maintain import CheckResult

DAMAGED = 1  # exit code of `verify`
FAILED = tuple(each.label for each in (Status.ERROR, Status.QUARANTINED, Status.OOM, Status.TIMEOUT, Status.NAN))
SHOWN = 10  # differences of a results file


@click.command(epilog=example("daskmetrics journal demo --type record --tail 5"))
@run_folder
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only entries of this type, such as record.")
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N entries.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@friendly
def journal(run: Path, types: tuple[str, ...], tail: int | None, as_json: bool) -> None:
    """Print the journal of RUN, entry by entry."""
    from daskmetrics.report import _log as log

    if lines := log.journal_lines(RunFolder(run), types, tail):
        say(log.journal_json(lines) if as_json else log.journal_text(lines))
    else:
        say(f"The journal has no entry{f' of type {listed(types)}' if types else ''}.", err=True)


@click.command(epilog=example("daskmetrics logs demo tiny-64@step512"))
@run_folder
@click.argument("key")
@friendly
def logs(run: Path, key: str) -> None:
    """Print the attempts of the work unit KEY of RUN with their tracebacks.

    The log of its worker is printed, too, if there is one. KEY is a unit's name, such as `tiny@step8`, its key, or
    the beginning of either.
    """
    from daskmetrics.report import _log as log

    say(log.log_text(RunFolder(run), key))


@click.command(epilog=example("daskmetrics retry demo --only timeout"))
@run_folder
@click.option("--only", metavar="STATUS", help=f"Only units with this status: {', '.join(FAILED)}.")
@friendly
def retry(run: Path, only: str | None) -> None:
    """Reset the failed units of RUN; the next `run` tries them again."""
    from daskmetrics import report
    from daskmetrics.core.errors import unknown
    from daskmetrics.experiment import _maintain as maintain

    if only not in (None, *FAILED):
        raise unknown("status of a failed unit", str(only), FAILED)
    loaded = report.Run(run)
    n = maintain.retry(loaded.folder, [record.key for record in loaded.failed if only in (None, record.status)])
    none = f"No unit failed{f' with the status {only}' if only else ''}."
    say(f"{n} failed units are reset; `daskmetrics run` tries them again." if n else none)


@click.command(epilog=example("daskmetrics verify demo"))
@run_folder
@click.option("--run", "of", type=RUN, help="The run of a results file.  [default: from runs/]")
@click.option("--sample", type=click.IntRange(0), default=20, show_default=True, help="Items of a map to run again.")
@click.option("--ignore", multiple=True, metavar="FIELD", help="A field of these items that may differ.")
@click.option("--tolerance", type=float, default=0.0, help="Relative difference that these items may have.")
@answering
def verify(run: Path, of: Path | None, **again: Any) -> Answer:
    """Compare every cell of RUN's store with its journal.

    The exit code is 1 if anything is damaged. For a map, all items are compared with the journal, and some are run
    again. RUN may also be a results file of a map: its rows are compared first.
    """
    from daskmetrics.execution.map import _verify as results_file
    from daskmetrics.execution.map._folder import is_map
    from daskmetrics.experiment import _maintain as maintain

    if results_file.is_results(run):
        return _verify_file(run, of or results_file.folder_of(run), again)
    if is_map(run):
        return _verify_map(run, again)
    result = maintain.verify(RunFolder(run))

    def show() -> None:
        _report(result)
        if result.damaged:
            say(f"{len(result.damaged)} damaged. Rebuild them from the journal with: daskmetrics repair {run}")
        else:
            say(f"No damage: {result.lines:,} lines of the journal, {result.cells:,} cells of the store.")

    code = DAMAGED if result.damaged else 0
    found = {name: getattr(result, name) for name in ("lines", "torn", "cells", "damages")}
    return Answer(lambda: {"folder": run, "ok": not result.damaged, **found}, show, code)


def _verify_map(run: Path, again: Mapping[str, Any]) -> Answer:
    from daskmetrics.execution import map

    result = map.verify(run, **again)
    code = 0 if result.ok else DAMAGED
    return Answer(lambda: {"folder": run, "ok": result.ok, **vars(result)}, lambda: say(result.text()), code)


def _verify_file(path: Path, run: Path, again: Mapping[str, Any]) -> Answer:
    """The rows of a results file, and then the map."""
    from daskmetrics.execution.map import _verify as results_file

    differences = results_file.compare(path, run)
    of_map = _verify_map(run, again)

    def show() -> None:
        for each in differences[:SHOWN]:
            say(f"{each.item}: {each.field} is {each.recorded!r} in the file, {each.again!r} in the run")
        rows = len({each.item for each in differences})
        remedy = "; run the same map again to write the file again" if rows else ""
        say(f"'{path}' compared with '{run}': {rows} rows differ{remedy}.")
        of_map.show()

    def document() -> dict[str, Any]:
        found = of_map.document()
        return {**found, "ok": found["ok"] and not differences, "file": path, "file_differences": differences}

    return Answer(document, show, max(of_map.code, DAMAGED if differences else 0))


@click.command(epilog=example("daskmetrics repair demo"))
@run_folder
@friendly
def repair(run: Path) -> None:
    """Rebuild the damaged parts of RUN's store from its journal."""
    from daskmetrics.experiment import _maintain as maintain

    result = maintain.repair(RunFolder(run))
    _report(result)
    say(f"{len(result.damages)} parts rewritten." if result.damages else "Nothing to repair.")


def _report(result: CheckResult) -> None:
    for damage in result.damages:
        say(f"{damage.kind.value:<10}{damage.where}: {damage.what}")
    if result.torn:
        say(f"The journal ends with an incomplete line ({result.torn} bytes) of a killed writer; it is ignored.")


@click.command(epilog=example("daskmetrics unlock demo"))
@run_folder
@friendly
def unlock(run: Path) -> None:
    """Remove the lock of a driver of RUN that has ended without removing it."""
    from daskmetrics.experiment import _maintain as maintain

    removed = maintain.unlock_run(RunFolder(run))
    if removed is None:
        say(f"No driver holds the run in '{run}'.")
    else:
        say(f"Removed the lock of {removed}. If that process still runs, it stops before its next write.")


COMMANDS = (journal, logs, retry, verify, repair, unlock)
