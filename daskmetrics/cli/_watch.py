"""The command `watch`: a run that follows checkpoints as they appear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from daskmetrics.cli._common import PATH, end_as_by_ctrl_c, friendly, say
from daskmetrics.cli._help import example
from daskmetrics.core._files import RunFolder


@click.command(
    epilog=example("daskmetrics watch mine.yaml", "daskmetrics watch mine.yaml --until-idle 10m --keep 'best(3)'")
)
@click.argument("config", type=PATH)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Such as search.budget=0.1.")
@click.option("--cluster", metavar="PROFILE", help="A profile's name, or its YAML file.  [default: CONFIG's, or local]")
@click.option("--workers", type=int, help="Number of workers; short for --set cluster.workers=N.")
@click.option("--budget", type=float, help="Share of the exhaustive cost; short for --set search.budget=SHARE.")
@click.option("--until-idle", metavar="TIME", help="End without a new checkpoint for this time, such as 10m.")
@click.option("--keep", metavar="best(N)", help="Name checkpoints that may be deleted. Nothing is deleted.")
@click.option("--poll", metavar="TIME", help="Time between two looks at the folders.  [default: 5s]")
@click.option("--folder", type=PATH, help="Folder of the run.  [default: runs/NAME]")
@friendly
def watch(config: Path, settings: tuple[str, ...], cluster: str | None, folder: Path | None, **options: Any) -> None:
    """Measure and score checkpoints as a training writes them, and say when the score has stopped rising.

    The models of CONFIG are folders or hub ids to which checkpoints are added (`step500`, `checkpoint-500`); a folder
    may not exist yet. Report, live page and `events.jsonl` in the folder of the run follow. The watch ends with the
    training: when `training.finished` is in the folder, or the last checkpoint is that of the last step of a trainer.
    Ctrl-C ends it, too; the same command goes on.
    """
    from daskmetrics import config as configuration
    from daskmetrics import report
    from daskmetrics.experiment import Display
    from daskmetrics.experiment._watch import watch as follow

    sections = {"workers": "cluster", "budget": "search"}
    given = [f"{sections.get(name, 'watch')}.{name}={value}" for name, value in options.items() if value is not None]
    loaded = configuration.load(config, [*([f"cluster={cluster}"] if cluster else []), *settings, *given])
    place = RunFolder(folder or Path("runs") / loaded.name)
    end_as_by_ctrl_c()
    with Display() as display:
        follow(loaded, place, display, on_round=lambda: report.write(report.Run(place.path)))
    finished = report.Run(place.path)
    say(report.summary_text(finished))
    say(report.whereabouts(finished.folder))


COMMANDS = (watch,)
