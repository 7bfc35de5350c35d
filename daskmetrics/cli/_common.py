"""What verbs share: errors as messages, the argument RUN, tables."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from daskmetrics.core.errors import ConfigError, DaskmetricsError, LockedError

INTERRUPTED = 130  # what a shell reports of a command that was ended by Ctrl-C

UNBOUND = 1000  #: columns of what is not a terminal

#: The argument RUN: the folder of a run.
run_folder = click.argument("run", type=click.Path(path_type=Path), default=Path("runs/demo"))


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


def end_as_by_ctrl_c() -> None:
    """Let Slurm and a closed terminal end this process as Ctrl-C does, unless ``nohup`` had the signal ignored."""
    for ended_by in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ended_by) is not signal.SIG_IGN:
            signal.signal(ended_by, signal.default_int_handler)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print rows of text below their header; nothing is cut off, and in a file or a pipe each row is one line."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for place, name in enumerate(header):
        drawn.add_column(name, no_wrap=place == 0, overflow="fold")  # what one asks for by name stays in one piece
    for row in rows:
        drawn.add_row(*row)
    Console(width=None if sys.stdout.isatty() else UNBOUND).print(drawn)
