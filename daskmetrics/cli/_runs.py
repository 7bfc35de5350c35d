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
    as_json_option,
    example,
    number_option,
    run_folder,
    say,
    text_option,
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
@number_option("--port", "On the loopback interface.  [default: any that is free]", least=0)
def serve(folder: Path, port: int | None) -> None:
    """Show all runs in FOLDER in a browser: their progress and answers, side by side, as they
    change.

    The pages are read from the files of the runs, so a run needs nothing else to be shown, and no
    page changes one. Only those who have the printed link can open them. Ctrl-C ends it.
    """
    import asyncio

    from daskmetrics.cluster.links import link_lines
    from daskmetrics.report.overview import RunCollection
    from daskmetrics.report.server import serve as run_server

    def show(link: str) -> None:
        for line in link_lines(link, "local", label="Runs"):
            say(line)

    with suppress(KeyboardInterrupt):
        asyncio.run(run_server(RunCollection(folder), port or 0, show))


@runs.command(epilog=example("daskmetrics runs worker step --workers 2"))
@click.argument("run", type=RUN)
@number_option("--workers", "How many.", default=1)
@text_option("--memory", "SIZE", "Limit of each worker, such as 16GiB.  [default: as of the run's]")
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
@text_option("--type", "TYPE", "Only entries of this type, such as record.", multiple=True)
@number_option("--tail", "Only the last N entries.")
@as_json_option
def journal(run: Path, type: tuple[str, ...], tail: int | None, as_json: bool) -> None:
    """Print the journal of RUN, entry by entry; with --json one JSON object per line."""
    from daskmetrics.report import log

    lines = log.journal_lines(RunFolder(run), type, tail)
    if not lines:
        of_types = ""
        if type:
            of_types = f" of type {listed(type)}"
        say(f"The journal has no entry{of_types}.", err=True)
    elif as_json:
        say(log.journal_json(lines))
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
    from daskmetrics.core.errors import unknown
    from daskmetrics.experiment import maintenance

    if only not in (None, *FAILED):
        raise unknown("status of a failed unit", str(only), FAILED)
    loaded = report.Run(run)
    n = maintenance.retry(
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
@number_option("--sample", "Items of a map to run again.", least=0, default=20)
@text_option("--ignore", "FIELD", "A field of these items that may differ.", multiple=True)
@text_option(
    "--tolerance",
    "SHARE",
    "Relative difference that these items may have.",
    type=float,
    default=0.0,
)
@answering
def verify(run: Path, of: Path | None, **again: Any) -> Output:
    """Compare every value of RUN's store with its journal.

    The exit code is 1 if anything is damaged. For a map, all items are compared with the journal,
    and some are run again. RUN may also be a results file of a map: its rows are compared first.
    """
    from daskmetrics.execution.map import folder as results_file
    from daskmetrics.experiment import maintenance

    if results_file.is_results(run):
        return _verify_map(of or results_file.folder_of(run), again, run)
    if results_file.is_map(run):
        return _verify_map(run, again)
    result = maintenance.verify(RunFolder(run))

    def show() -> None:
        _report(result)
        if result.damaged:
            say(
                f"{len(result.damaged)} damaged. Rebuild them from the journal with: daskmetrics "
                f"runs repair {run}"
            )
        else:
            say(
                f"No damage: {result.lines:,} lines of the journal, {result.cells:,} values of the "
                "store."
            )

    fields = {name: getattr(result, name) for name in ("lines", "torn", "cells", "damages")}
    document = {"folder": run, "ok": not result.damaged, **fields}
    return Output(lambda: document, show, DAMAGED if result.damaged else 0)


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

    def show() -> None:
        for difference in differences[:SHOWN]:
            say(
                f"{difference.item}: {difference.field} is {difference.recorded!r} in the file,"
                f" {difference.again!r} in the run"
            )
        if file:
            rows = len({difference.item for difference in differences})
            remedy = "; run the same map again to write the file again" if rows else ""
            say(f"'{file}' compared with '{run}': {rows} rows differ{remedy}.")
        say(result.text())

    return Output(lambda: document, show, 0 if is_ok else DAMAGED)


@runs.command(epilog=example("daskmetrics runs repair demo"))
@run_folder
def repair(run: Path) -> None:
    """Rebuild the damaged parts of RUN's store from its journal."""
    from daskmetrics.experiment import maintenance

    result = maintenance.repair(RunFolder(run))
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
def unlock(run: Path) -> None:
    """Remove the lock of a driver of RUN that has ended without removing it."""
    from daskmetrics.experiment import maintenance

    removed = maintenance.unlock_run(RunFolder(run))
    if removed is None:
        say(f"No driver holds the run in '{run}'.")
    else:
        say(
            f"Removed the lock of {removed}. If that process still runs, it stops before its next "
            "write."
        )


COMMANDS = (runs,)
