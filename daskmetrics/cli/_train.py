"""The verb that trains suites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import end_as_by_ctrl_c, friendly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from daskmetrics.config import Config
    from daskmetrics.experiment._train import Training


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change the configuration, e.g. models.0.train.ranks=4.",
)
@click.option("--workers", type=int, help="Number of workers; short for --set cluster.workers=N.")
@click.option("--folder", help="Where suites are kept, by name; short for --set ddp.folder=DIR.  [default: the cache]")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and start nothing.")
@friendly
def train(config: Path, settings: tuple[str, ...], workers: int | None, folder: str | None, dry_run: bool) -> None:
    """Train the suites of CONFIG, the models with a `train` section, over its cluster's workers.

    Running the same again resumes. `run` with the same CONFIG measures and searches what was trained.
    """
    from daskmetrics import config as configuration
    from daskmetrics.core.errors import ConfigError
    from daskmetrics.experiment import _train as training

    short = {"cluster.workers": workers, "ddp.folder": folder}
    given = [f"{key}={value}" for key, value in short.items() if value is not None]
    wanted = configuration.load(config, (*settings, *given))
    found = training.find(wanted)
    if not found:
        raise ConfigError(
            f"'{config}' trains nothing: no model has a 'train' section, for instance train: {{size: 14m}}."
        )
    if dry_run:
        _preview(wanted, found)
        return
    from daskmetrics import experiment
    from daskmetrics.cluster import connect

    end_as_by_ctrl_c()
    if not all(job.is_done for job in training.jobs(wanted, found)):
        with (
            experiment.Display() as display,
            connect(wanted.cluster, wanted.name, display.say, on_start=display.say) as client,
        ):
            training.train(client, wanted, display, found)
    _last_screen(found)


def _preview(config: Config, found: Mapping[str, Training]) -> None:
    from daskmetrics.training import _estimate as estimate

    for name, own in found.items():
        for what, text in estimate.rows(name, own.recipe, own.folder, config.cluster.workers):
            click.echo(f"{what:<16} {text}")
        click.echo()
    click.echo("Nothing was started.")


def _last_screen(found: Mapping[str, Training]) -> None:
    from daskmetrics import training as room

    for name, own in found.items():
        saved = room.revisions(own.recipe)
        first, last = (room.summary(own.folder, revision)["loss"] for revision in (saved[0], saved[-1]))
        click.echo(f"{name}: {len(saved)} checkpoints, loss {first:.3f} -> {last:.3f}: {own.folder}")
    _draw(found)


def _draw(found: Mapping[str, Training]) -> None:
    try:
        from daskmetrics.report.plots import _losses as losses
    except ImportError:
        click.echo("No figure of the losses: it needs matplotlib, pip install 'daskmetrics[plot]'.")
        return
    for own in found.values():
        if (path := losses.write(own.folder)) is not None:
            click.echo(f"Losses: {path}")


VERBS = (train,)
