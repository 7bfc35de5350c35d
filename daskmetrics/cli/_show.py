"""Commands that read a run from its files, without torch and without a scheduler."""

from __future__ import annotations

from pathlib import Path

import click

from daskmetrics.cli._common import (
    RUN,
    Output,
    answering,
    example,
    fitted,
    flag_option,
    note,
    path_option,
    run_argument,
    run_folder,
    say,
    within_option,
)
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.core.table import text_width

TABLE_WIDTH = 132  # columns; a row of trade-offs has nine cells
FORMATS = ("html", "csv", "parquet")


@click.command(epilog=example("daskmetrics status demo", "daskmetrics status --follow demo"))
@run_folder
@click.option(
    "--follow", "follows", is_flag=True, help="Show the progress until no process drives RUN."
)
@answering
def status(run: Path, follows: bool) -> Output:
    """Show the progress, the failures, the workers and the Slurm jobs of RUN.

    They are read from its files and from Slurm's queue. With --follow, Ctrl-C does not stop the
    run; the exit code is 0 if the run is finished, and 1 if its driver ended before that. In that
    case the end of the driver's log is shown.
    """
    from daskmetrics.cli import _status

    if follows:
        return Output(None, _status.follow(run))
    return _status.status(run)


@click.command(epilog=example("daskmetrics report demo", "daskmetrics report demo --format csv"))
@run_folder
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="html",
    show_default=True,
    help="A page, or numbers in one file.",
)
@path_option("--output", "File for the numbers.  [default: in RUN/report]")
@flag_option("--svg", "Write each figure as SVG, too.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
def report(
    run: Path,
    kind: str,
    output: Path | None,
    svg: bool,
    open_page: bool,
) -> None:
    """Write the HTML report and the figures of RUN, or all its numbers for other programs.

    Of a folder that holds runs, write one page that lists them, with links to their reports.
    """
    from daskmetrics import report as reports
    from daskmetrics.execution.map.folder import is_map
    from daskmetrics.report import terminal
    from daskmetrics.report.index import runs_in, write_index

    if is_map(run):
        if kind != "html" or svg or open_page:
            raise ConfigError(
                "Of a map, report writes one figure as PNG. Its results are written by map "
                "--output."
            )
        reports.need_matplotlib()
        from daskmetrics.report.figures import write_telemetry

        folder = RunFolder(run)
        drawn = write_telemetry(folder.telemetry, folder.report)
        if drawn is None:
            raise ConfigError(
                f"'{run}' has no telemetry: the map was too short, or ran in one process."
            )
        say(drawn)
        return
    if not RunFolder(run).journal.exists() and runs_in(run):
        if kind != "html" or svg or output:
            raise ConfigError(
                f"'{run}' holds runs, and is none: name one of them for --format, --output or --svg."
            )
        index = write_index(run)
        say(index.resolve().as_uri())
        if open_page:
            _open(index)
        return
    loaded = reports.Run(run)
    if kind != "html":
        if open_page or svg:
            raise ConfigError(
                f"--open and --svg are of the page, but --format {kind} writes numbers: omit one of"
                " them."
            )
        say(reports.export(loaded, kind, output))  # type: ignore[arg-type]  # click has checked it
        return
    if output:
        raise ConfigError("--output is a file of numbers: add --format csv or parquet.")
    page = reports.write(loaded, svg)
    say(terminal.best_text(loaded, in_short=True))
    if open_page:
        _open(page)


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        note("No browser could be started here: open the link above yourself.")


@click.command(
    epilog=example(
        "daskmetrics best demo",
        "daskmetrics best demo --within 1%",
        "daskmetrics best demo --arm tiny-64@step512/3",
    )
)
@run_folder
@within_option
@flag_option("--pareto", "Show the candidates that no other beats in both score and cost.")
@click.option(
    "--arm",
    metavar="MODEL@REVISION/LAYER",
    help="Explain why the search chose this one or not: posterior, decisions, scores, metrics.",
)
@path_option(
    "--save",
    "Save the best candidate as a sentence-transformers model that ends at its layer.",
    metavar="FOLDER",
)
@answering
def best(
    run: Path,
    within: float | None,
    pareto: bool,
    arm: str | None,
    save: Path | None,
) -> Output:
    """Print the best candidate of RUN: what it gains, how sure that is, what it cost."""
    from daskmetrics import report
    from daskmetrics.report import explanation, tables, terminal

    if sum(map(bool, (within, pareto, arm, save))) > 1:
        raise ConfigError("--within, --pareto, --arm and --save exclude each other: choose one.")
    loaded = report.Run(run)
    if save:
        saved = loaded.best().save(save)
        return Output(lambda: {"saved": saved}, [f"Saved in '{saved}'."])
    if arm:
        return Output(None, [fitted(explanation.explain_tables(loaded, arm))])
    if pareto:
        compared = loaded.trade_offs()
        front = tables.trade_offs_table(compared, loaded.plan.layer_names)
        return Output(lambda: compared, [front.as_text(text_width(TABLE_WIDTH))])
    if within:
        document = {"within": within, "cheaper": loaded.verdict.cheaper(within)}
        return Output(lambda: document, [fitted([terminal.within_table(loaded.answer, within)])])
    return Output(lambda: loaded.answer, [terminal.best_text(loaded)])


@click.command(
    epilog=example(
        "daskmetrics compare demo minilm",
        "daskmetrics compare demo --arms tiny-64@step512/3 tiny-64@step512/0",
    )
)
@run_argument("run")
@click.argument("other", type=RUN, required=False)
@click.option(
    "--arms",
    nargs=2,
    metavar="NAME NAME",
    help="Compare two candidates; the second is of OTHER, if there is one.",
)
@answering
def compare(run: Path, other: Path | None, arms: tuple[str, str] | None) -> Output:
    """Compare two runs, or two candidates.

    Differences of candidates are paired: their error comes from the outcomes of the same items.
    """
    from daskmetrics import report
    from daskmetrics.answer.comparison import (
        ArmComparison,
        RunComparison,
        compare_named,
        compare_runs,
    )
    from daskmetrics.report.comparison import compare_tables

    loaded = report.Run(run)
    beside = None if other is None else report.Run(other)
    compared: ArmComparison | RunComparison
    if arms:
        compared = compare_named(loaded, *arms, beside)
    elif beside:
        compared = compare_runs(loaded, beside)
    else:
        raise ConfigError("Give a second RUN, or two candidates of this one by --arms NAME NAME.")
    tables = compare_tables(loaded, beside or loaded, compared)
    return Output(lambda: vars(compared), [fitted(tables)])
