"""Verbs that bring things in and carry results out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import friendly, run_folder, table

if TYPE_CHECKING:
    from daskmetrics.experiment._prefetch import Need
    from daskmetrics.experiment._prepare import Experiment

config_file = click.argument("config", type=click.Path(path_type=Path), required=False)
changes = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change the configuration.")


@click.command()
@config_file
@changes
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="The data of these tasks alone; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what is missing and how large it is, and fetch nothing.")
@friendly
def prefetch(config: Path | None, settings: tuple[str, ...], tasks: tuple[str, ...], dry_run: bool) -> None:
    """Fetch the models and data sets that CONFIG needs, where there is a network, so that workers need none.

    What is here is not fetched again, and a broken download goes on where it stopped.
    """
    from daskmetrics.core.errors import ConfigError
    from daskmetrics.experiment import _prefetch as fetching
    from daskmetrics.tasks import resolve

    wanted = fetching.data(resolve(tasks)) if tasks else fetching.needs(_prepared(config, settings))
    if not wanted:
        click.echo("Everything is here.")
        return
    sizes = [need.size() for need in wanted]
    table(
        ("what", "name", "size"),
        [(need.kind, need.name, _bytes(size)) for need, size in zip(wanted, sizes, strict=True)],
    )
    unknown = f", and {sizes.count(None)} of unknown size" if None in sizes else ""
    click.echo(f"{_bytes(sum(size or 0 for size in sizes))} to fetch into '{fetching.cache()}'{unknown}.")
    if dry_run:
        sys.exit(1)
    fetching.require_room(sizes, fetching.cache())
    failed = _fetch(wanted)
    if failed:
        reasons = "\n".join(f"  {name}: {reason}" for name, reason in failed.items())
        raise ConfigError(
            f"{len(failed)} of {len(wanted)} could not be fetched; the same command tries again.\n{reasons}"
        )


def _fetch(wanted: list[Need]) -> dict[str, str]:
    from rich.console import Console
    from rich.progress import Progress

    from daskmetrics.experiment import _prefetch as fetching

    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("fetching", total=len(wanted))

        def done(need: Need, reason: str | None) -> None:
            progress.advance(bar)
            progress.console.print(f"{'failed ' if reason else 'here   '} {need.kind} {need.name}", highlight=False)

        return dict(fetching.fetch(wanted, done))


@click.command()
@run_folder
@click.option("--format", "kind", type=click.Choice(["mteb", "csv"]), default="csv", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="[default: export-mteb or scores.csv in RUN]")
@friendly
def export(run: Path, kind: str, output: Path | None) -> None:
    """Write the scores of RUN: as CSV for `replay`, or in the layout of mteb's ResultCache, a layer an experiment."""
    from daskmetrics.core._files import RunFolder
    from daskmetrics.experiment import _transfer as transfer

    folder = RunFolder(run).must_exist()
    if kind == "csv":
        path = output or run / "scores.csv"
        click.echo(f"{transfer.to_csv(folder, path)} scores: {path}")
        return
    path = output or run / "export-mteb"
    written, others = transfer.to_mteb(folder, path)
    click.echo(f"{written} scores: {path}")
    if others:
        click.echo(f"{others} scores are of tasks that are not the benchmark's; --format csv has them.")


@click.command("import-results")
@click.argument("results", type=click.Path(path_type=Path, exists=True, file_okay=False))
@config_file
@changes
@click.option("--folder", type=click.Path(path_type=Path), help="Where the run lives.  [default: runs/NAME]")
@friendly
def import_results(results: Path, config: Path | None, settings: tuple[str, ...], folder: Path | None) -> None:
    """Take the scores in RESULTS, a folder of mteb results by layer, into the run of CONFIG, which pays for none."""
    from daskmetrics.core._files import RunFolder
    from daskmetrics.experiment import _transfer as transfer

    experiment = _prepared(config, settings)
    place = RunFolder(folder or Path("runs") / experiment.config.name)
    taken = transfer.take_in(experiment, place, results)
    click.echo(f"{taken.new} scores taken into '{place.path}'; {taken.known} were known.")
    if taken.unmarked:
        click.echo(f"{taken.unmarked} do not say by which protocol they were made; they are taken to be of this one.")
    if taken.other_protocol:
        click.echo(f"{taken.other_protocol} were made by another protocol and are left out.")
    if taken.elsewhere:
        click.echo(f"{taken.elsewhere} are of models, revisions, layers or tasks that the configuration does not name.")


def _prepared(config: Path | None, settings: tuple[str, ...]) -> Experiment:
    from daskmetrics import config as configuration
    from daskmetrics import experiment

    return experiment.prepare(configuration.load(config or configuration.folder() / "demo.yaml", settings))


def _bytes(size: int | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


VERBS = (prefetch, export, import_results)
