"""The command line: verbs, each importing what it needs when it is called, so that ``--help`` answers at once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from daskmetrics.errors import ConfigError, DaskmetricsError, LockedError

INTERRUPTED = 130  # what a shell reports of a command that was ended by Ctrl-C


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """Errors that were foreseen as one message instead of a traceback; exit code 2 if nothing was started."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ConfigError, LockedError) as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(2)
        except DaskmetricsError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("Stopped. Nothing recorded is lost: run the same command again to resume.", err=True)
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, such as head, went away

    return run


@click.group("metrics", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="daskmetrics")
def main() -> None:
    """Which layer of which checkpoint of which model gives the best embeddings?

    Begin with `run` and no file: a demo on this machine that needs neither network nor GPU.
    """


run_folder = click.argument("run", type=click.Path(path_type=Path), default=Path("runs/demo"))


@main.command("run")
@click.argument("config", type=click.Path(path_type=Path), required=False)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change the configuration, e.g. search.budget=0.1."
)
@click.option("--workers", type=int, help="Number of workers; short for --set cluster.workers=N.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where the run lives.  [default: runs/NAME]")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and submit nothing.")
@friendly
def run_command(
    config: Path | None, settings: tuple[str, ...], workers: int | None, folder: Path | None, dry_run: bool
) -> None:
    """Measure, search and report what CONFIG asks for; without a file, the embedded demo.

    Running the same again resumes; a finished run is left as it is.
    """
    from rich.console import Console

    from daskmetrics import config as configuration
    from daskmetrics.layout import RunFolder

    if workers is not None:
        settings = (*settings, f"cluster.workers={workers}")
    wanted = configuration.load(config or configuration.folder() / "demo.yaml", settings)
    place = RunFolder(folder or Path("runs") / wanted.name)
    from daskmetrics import experiment  # after the configuration was found good: Dask takes half a second

    console = Console(stderr=True)
    with console.status("Checking models, tasks and texts ...") if console.is_terminal else _nothing():
        prepared = experiment.prepare(wanted)
    if dry_run:
        from daskmetrics.experiment.preview import preview

        Console().print(preview(prepared, place))
        return
    for ended_by in (signal.SIGTERM, signal.SIGHUP):  # as Slurm and a closed terminal do
        signal.signal(ended_by, signal.default_int_handler)
    with experiment.Display(console) as display:
        outcome = experiment.run(prepared, place, display)
    _last_screen(place, outcome.nothing_to_do)


def _last_screen(place: Any, nothing_to_do: bool) -> None:
    from daskmetrics import report

    if nothing_to_do:
        click.echo(f"Nothing to do: the run in '{place.path}' is finished.")
    report.write(place)
    click.echo(report.summary_text(report.Run(place.path)))
    click.echo(report.whereabouts(place))


@main.command()
@run_folder
@friendly
def status(run: Path) -> None:
    """How far RUN is, what failed and why; read from its files."""
    from daskmetrics import report

    click.echo(report.status_text(report.Run(run)))


@main.command("report")
@run_folder
@friendly
def report_command(run: Path) -> None:
    """Write the HTML report and figures of RUN from its files."""
    from daskmetrics import report

    loaded = report.Run(run)
    report.write(loaded.folder)
    click.echo(report.summary_text(loaded))
    click.echo(report.whereabouts(loaded.folder))


@main.command()
@run_folder
@friendly
def best(run: Path) -> None:
    """Print the best arm of RUN and the lines of Python that load it."""
    from daskmetrics import report

    click.echo(report.best_text(report.Run(run)))


@main.command()
@friendly
def metrics() -> None:
    """List the metrics: definition, unit, input, source, cost and parameters, by family."""
    from daskmetrics.metrics import catalogue, families

    for family, members in families(catalogue().values()).items():
        if family == "all":
            continue
        click.echo(f"{family}\n")
        for each in members:
            click.echo(f"  {each.name}  ({each.units}, of {each.takes})  {each.description}")
            parameters = ", ".join(map(str, each.parameters))
            about = {"source: ": each.source, "cost: ": each.cost, "parameters: ": parameters}
            lines = [each.formula, *(word + what for word, what in about.items() if what)]
            for line in filter(None, lines):
                click.echo(f"      {line}")
        click.echo()
    click.echo("Ask for 'all', a family, a name, or a call such as 'curvature(k=2)', as a list under 'metrics:'.")


@main.command()
@friendly
def tasks() -> None:
    """List the tasks that need nothing but this package: name, kind, score and question."""
    from daskmetrics.tasks import catalogue

    _table(
        ("task", "kind", "score", "question"),
        [
            (task.name, task.kind, task.main_score, task.description)
            for task in (make() for make in catalogue().values())
        ],
    )


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=SIMPLE)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
