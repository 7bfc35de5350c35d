"""The group `runs`: pages of all runs, and the maintenance of one; none needs a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskmetrics.cli._common import (
    PATH,
    RUN,
    Output,
    Sections,
    answering,
    example,
    friendly,
    run_folder,
    say,
)
from daskmetrics.core.files import RunFolder
from daskmetrics.core.status import Status
from daskmetrics.core.text import listed

if TYPE_CHECKING:
    from daskmetrics.experiment.maintenance import CheckResult

DAMAGED = 1  # exit code of `verify`
FAILED = tuple(
    status.label
    for status in (Status.ERROR, Status.QUARANTINED, Status.OOM, Status.TIMEOUT, Status.NAN)
)
SHOWN = 10  # differences of a results file


@click.group(cls=Sections, epilog=example("daskmetrics runs verify demo"))
def runs() -> None:
    """Look after runs: pages of all, logs, repair, export, replay."""


@runs.command(epilog=example("daskmetrics runs serve runs/"))
@click.argument("folder", type=PATH, default=Path("runs"))
@click.option(
    "--port", type=int, default=0, help="On the loopback interface.  [default: any that is free]"
)
@friendly
def serve(folder: Path, port: int) -> None:
    """Show all runs in FOLDER in a browser: their progress and answers, side by side, as they
    change.

    The pages are read from the files of the runs, so a run needs nothing else to be shown, and no
    page changes one. Only those who have the printed link can open them. Ctrl-C ends it.
    """
    import asyncio

    from daskmetrics.cluster.links import here, link_lines
    from daskmetrics.report.overview import RunCollection
    from daskmetrics.report.server import serve as run_server

    def show(link: str) -> None:
        for line in link_lines(link, "local", here(), label="Runs"):
            say(line)

    with suppress(KeyboardInterrupt):
        asyncio.run(run_server(RunCollection(folder), port, show))


@runs.command(epilog=example("daskmetrics runs worker step --workers 2"))
@click.argument("run", type=RUN)
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="How many."
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="Limit of each worker, such as 16GiB.  [default: as of the run's]",
)
@friendly
def worker(run: Path, workers: int, memory: str | None) -> None:
    """Start workers on this machine that take part in the running map RUN.

    They end with the map. With Ctrl-C they leave: each finishes and reports what it runs, and takes
    nothing more; a second Ctrl-C ends them at once. This machine must see the folder of the run and
    have the same packages.
    """
    from daskmetrics.cluster.join import join

    join(run, workers, memory, lambda line: say(line, err=True))


@runs.command(epilog=example("daskmetrics runs journal demo --type record --tail 5"))
@run_folder
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only entries of this type, such as record.",
)
@click.option("--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N entries.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@friendly
def journal(run: Path, types: tuple[str, ...], tail: int | None, as_json: bool) -> None:
    """Print the journal of RUN, entry by entry."""
    from daskmetrics.report import log

    lines = log.journal_lines(RunFolder(run), types, tail)
    if not lines:
        of_types = f" of type {listed(types)}" if types else ""
        say(f"The journal has no entry{of_types}.", err=True)
    elif as_json:
        say(log.journal_json(lines))
    else:
        say(log.journal_text(lines))


@runs.command(epilog=example("daskmetrics runs logs demo tiny-64@step512"))
@run_folder
@click.argument("key")
@friendly
def logs(run: Path, key: str) -> None:
    """Print the attempts of the work unit KEY of RUN with their tracebacks.

    The log of its worker is printed, too, if there is one. KEY is a unit's name, such as
    `tiny@step8`, its key, or the beginning of either.
    """
    from daskmetrics.report import log

    say(log.log_text(RunFolder(run), key))


@runs.command(epilog=example("daskmetrics runs retry demo --only timeout"))
@run_folder
@click.option("--only", metavar="STATUS", help=f"Only units with this status: {', '.join(FAILED)}.")
@friendly
def retry(run: Path, only: str | None) -> None:
    """Reset the failed units of RUN; the next `run` tries them again."""
    from daskmetrics import report
    from daskmetrics.core.errors import unknown
    from daskmetrics.experiment import maintenance as maintain

    if only not in (None, *FAILED):
        raise unknown("status of a failed unit", str(only), FAILED)
    loaded = report.Run(run)
    n = maintain.retry(
        loaded.folder, [record.key for record in loaded.failed if only in (None, record.status)]
    )
    if n:
        say(f"{n} failed units are reset; `daskmetrics run` tries them again.")
    elif only:
        say(f"No unit failed with the status {only}.")
    else:
        say("No unit failed.")


@runs.command(epilog=example("daskmetrics runs verify demo"))
@run_folder
@click.option("--run", "of", type=RUN, help="The run of a results file.  [default: from runs/]")
@click.option(
    "--sample",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Items of a map to run again.",
)
@click.option(
    "--ignore", multiple=True, metavar="FIELD", help="A field of these items that may differ."
)
@click.option(
    "--tolerance", type=float, default=0.0, help="Relative difference that these items may have."
)
@answering
def verify(run: Path, of: Path | None, **again: Any) -> Output:
    """Compare every cell of RUN's store with its journal.

    The exit code is 1 if anything is damaged. For a map, all items are compared with the journal,
    and some are run again. RUN may also be a results file of a map: its rows are compared first.
    """
    from daskmetrics.execution.map import folder as results_file
    from daskmetrics.execution.map.folder import is_map
    from daskmetrics.experiment import maintenance as maintain

    if results_file.is_results(run):
        return _verify_file(run, of or results_file.folder_of(run), again)
    if is_map(run):
        return _verify_map(run, again)
    result = maintain.verify(RunFolder(run))

    def show() -> None:
        _report(result)
        if result.damaged:
            say(
                f"{len(result.damaged)} damaged. Rebuild them from the journal with: daskmetrics "
                f"runs repair {run}"
            )
        else:
            say(
                f"No damage: {result.lines:,} lines of the journal, {result.cells:,} cells of the "
                "store."
            )

    code = DAMAGED if result.damaged else 0
    fields = {name: getattr(result, name) for name in ("lines", "torn", "cells", "damages")}
    return Output(lambda: {"folder": run, "ok": not result.damaged, **fields}, show, code)


def _verify_map(run: Path, again: Mapping[str, Any]) -> Output:
    from daskmetrics.execution import map

    result = map.verify(run, **again)
    code = 0 if result.ok else DAMAGED
    return Output(
        lambda: {"folder": run, "ok": result.ok, **vars(result)}, lambda: say(result.text()), code
    )


def _verify_file(path: Path, run: Path, again: Mapping[str, Any]) -> Output:
    """The rows of a results file, and then the map."""
    from daskmetrics.execution.map import folder as results_file

    differences = results_file.compare(path, run)
    of_map = _verify_map(run, again)

    def show() -> None:
        for difference in differences[:SHOWN]:
            say(
                f"{difference.item}: {difference.field} is {difference.recorded!r} in the file, {difference.again!r} in "
                "the run"
            )
        rows = len({difference.item for difference in differences})
        comparison = f"'{path}' compared with '{run}': {rows} rows differ"
        if rows:
            comparison += "; run the same map again to write the file again"
        say(f"{comparison}.")
        of_map.show()

    def document() -> dict[str, Any]:
        verified = of_map.document()
        return {
            **verified,
            "ok": verified["ok"] and not differences,
            "file": path,
            "file_differences": differences,
        }

    code = DAMAGED if differences else of_map.code
    return Output(document, show, code)


@runs.command(epilog=example("daskmetrics runs repair demo"))
@run_folder
@friendly
def repair(run: Path) -> None:
    """Rebuild the damaged parts of RUN's store from its journal."""
    from daskmetrics.experiment import maintenance as maintain

    result = maintain.repair(RunFolder(run))
    _report(result)
    if result.damages:
        say(f"{len(result.damages)} parts rewritten.")
    else:
        say("Nothing to repair.")


def _report(result: CheckResult) -> None:
    for damage in result.damages:
        say(f"{damage.kind.value:<10}{damage.where}: {damage.what}")
    if result.torn:
        say(
            f"The journal ends with an incomplete line ({result.torn} bytes) of a killed writer; "
            "it is ignored."
        )


@runs.command(epilog=example("daskmetrics runs unlock demo"))
@run_folder
@friendly
def unlock(run: Path) -> None:
    """Remove the lock of a driver of RUN that has ended without removing it."""
    from daskmetrics.experiment import maintenance as maintain

    removed = maintain.unlock_run(RunFolder(run))
    if removed is None:
        say(f"No driver holds the run in '{run}'.")
    else:
        say(
            f"Removed the lock of {removed}. If that process still runs, it stops before its next "
            "write."
        )


COMMANDS = (runs,)
