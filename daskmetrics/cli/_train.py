"""The command `train`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from daskmetrics.cli._common import (
    PATH,
    configuration,
    end_as_by_ctrl_c,
    example,
    flag_option,
    say,
    settings_option,
    text_option,
    workers_option,
)
from daskmetrics.core.errors import ConfigError

if TYPE_CHECKING:
    from daskmetrics.config import Config
    from daskmetrics.experiment.train import TrainedSuite


@click.command(epilog=example("daskmetrics train configs/train-and-search.yaml --workers 2"))
@click.argument("config", type=PATH)
@settings_option
@workers_option
@text_option(
    "--folder",
    "DIR",
    "Where suites are kept, by name; short for --set ddp.folder=DIR.  [default: the cache]",
)
@flag_option("--dry-run", "Show what would be done, and start nothing.")
def train(
    config: Path, settings: tuple[str, ...], workers: int | None, folder: str | None, dry_run: bool
) -> None:
    """Train the suites of CONFIG on the workers of its cluster.

    They are its models with a `train` section. Run the same command again to resume. `run` with the
    same CONFIG measures and searches the trained suites.
    """
    from daskmetrics.experiment import train as training

    options = {"cluster.workers": workers, "ddp.folder": folder}
    short_forms = [f"{key}={value}" for key, value in options.items() if value is not None]
    loaded = configuration(config, (*settings, *short_forms))
    suites = training.suites_to_train(loaded)
    if not suites:
        raise ConfigError(
            f"'{config}' trains nothing: no model has a 'train' section, such as train: "
            f"{{size: 14m}}."
        )
    if dry_run:
        _preview(loaded, suites)
        return
    from daskmetrics import experiment
    from daskmetrics.cluster import connect
    from daskmetrics.dashboard import TRAINING_PAGE as page

    end_as_by_ctrl_c()
    if not all(suite.is_done for suite in training.ddp_trainings(loaded, suites)):
        with (
            experiment.Display() as display,
            connect(
                loaded.cluster, loaded.name, display.message, on_start=display.message, page=page
            ) as client,
        ):
            training.train(client, loaded, display, suites)
    _summary(suites)


def _preview(config: Config, suites: Mapping[str, TrainedSuite]) -> None:
    from daskmetrics.training import estimate

    for name, suite in suites.items():
        for quantity, text in estimate.rows(
            name, suite.recipe, suite.folder, config.cluster.workers
        ):
            say(f"{quantity:<16} {text}")
        say()
    say("Nothing was started.")


def _summary(suites: Mapping[str, TrainedSuite]) -> None:
    from daskmetrics import training

    for name, suite in suites.items():
        saved = training.revisions(suite.recipe)
        losses = [
            training.summary(suite.folder, revision)["loss"] for revision in (saved[0], saved[-1])
        ]
        say(
            f"{name}: {len(saved)} checkpoints, loss {losses[0]:.3f} -> {losses[1]:.3f}: {suite.folder}"
        )
    try:
        from daskmetrics.report.plots.figures import write_losses, write_telemetry
    except ImportError:
        say("No figure of the losses: it needs matplotlib, pip install 'daskmetrics[plot]'.")
        return
    for suite in suites.values():
        if (path := write_losses(suite.folder)) is not None:
            say(f"Losses: {path}")
        if (path := write_telemetry(suite.folder)) is not None:
            say(f"Use of the workers: {path}")


COMMANDS = (train,)
