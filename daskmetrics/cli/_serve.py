"""The command that serves the pages of all runs in a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from daskmetrics.cli._common import PATH, example, friendly, say


@click.command(epilog=example("daskmetrics serve runs/"))
@click.argument("folder", type=PATH, default=Path("runs"))
@click.option("--port", type=int, default=0, help="On the loopback interface.  [default: any that is free]")
@friendly
def serve(folder: Path, port: int) -> None:
    """Show all runs in FOLDER in a browser: their progress and answers, side by side, as they change.

    The pages are read from the files of the runs, so a run needs nothing else to be shown, and no page changes one.
    Only those who have the printed link can open them. Ctrl-C ends it.
    """
    import asyncio

    from daskmetrics.cluster._links import here, link_lines
    from daskmetrics.report._overview import RunCollection
    from daskmetrics.report._serve import serve as run_server

    def show(link: str) -> None:
        for line in link_lines(link, "local", here(), label="Runs"):
            say(line)

    with suppress(KeyboardInterrupt):
        asyncio.run(run_server(RunCollection(folder), port, show))


COMMANDS = (serve,)
