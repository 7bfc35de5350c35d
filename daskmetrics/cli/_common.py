"""What commands share: errors as messages and the argument RUN."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from daskmetrics.core.errors import ConfigError, DaskmetricsError, LockedError

INTERRUPTED = 130  # exit code of a command that was ended by Ctrl-C

PATH = click.Path(path_type=Path)

#: The argument RUN: the folder of a run.
run_folder = click.argument("run", type=PATH, default=Path("runs/demo"))

#: The argument CONFIG, which a command can do without.
config_file = click.argument("config", type=PATH, required=False)


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """Print errors of this package as one message, without a traceback; exit code 2 if nothing was started."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except DaskmetricsError as error:
            click.echo(f"Error: {error}", err=True)
            sys.exit(2 if isinstance(error, (ConfigError, LockedError)) else 1)
        except KeyboardInterrupt:
            click.echo("Stopped. Recorded results are safe: run the same command again to resume.", err=True)
            sys.exit(INTERRUPTED)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, such as head, has ended

    return run


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, unless ``nohup`` ignores the signal."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
