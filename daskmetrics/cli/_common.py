"""What commands share: errors as messages, answers as text or JSON, arguments and options, help in
sections.
"""

from __future__ import annotations

import atexit
import gc
import io
import math
import os
import select
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click.shell_completion import CompletionItem

from daskmetrics.core.errors import (
    ConfigError,
    DaskmetricsError,
    DataError,
    LockedError,
    describe,
    did_you_mean,
    system_error,
)
from daskmetrics.core.files import RUNS, RunFolder, run_names
from daskmetrics.core.machine import close_input
from daskmetrics.core.serialization import MALFORMED
from daskmetrics.core.table import Table, printable, text_width

if TYPE_CHECKING:
    from daskmetrics.config import Cluster, Config

T = TypeVar("T")

LONGEST = 1000  # characters of a sentence
WIDTH = 100  # columns of tables
OUTPUT = "standard output"
INTERRUPTED = 130  # exit code of a command that was ended by Ctrl-C
RECORDED = "Recorded results are safe: run the same command again to resume."
UNRECORDED = "It has ended before everything was recorded. Run the same command again to resume."


class NamedPath(click.Path):
    """A path that is not empty: as of an unset variable, it would be the current folder."""

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path; an empty one is refused."""
        if not os.fspath(value):
            self.fail("the path is empty. Name one; '.' is the current folder.", param, ctx)
        return super().convert(value, param, ctx)


PATH = NamedPath(path_type=Path)


class RunPath(click.Path):
    """The folder of a run, or its name below ``runs/``.

    The name goes before a folder without a run.
    """

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """The path, or that of the run with this name."""
        path = Path(value)
        is_name = len(path.parts) == 1 and value == path.name  # "./ft" is the folder
        if is_name and not RunFolder(path).journal.exists() and (RUNS / path).exists():
            return RUNS / path
        return path

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so; files and folders if there is none."""
        names = [CompletionItem(name) for name in run_names(RUNS) if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


RUN = RunPath()


def run_argument(name: str, **settings: Any) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The folder or the name of a run.

    What its files make Python raise is one message that names it.
    """

    def of(command: Callable[..., T]) -> Callable[..., T]:
        @click.argument(name, type=RUN, **settings)
        @wraps(command)
        def read(**options: Any) -> T:
            try:
                return command(**options)
            except MALFORMED as error:
                *_, (frame, line) = traceback.walk_tb(error.__traceback__)
                place = f"{Path(frame.f_code.co_filename).name}, line {line}"
                raise DataError(
                    f"The run in '{options[name]}' cannot be read: {describe(error)} ({place}). One"
                    " of its files is not as daskmetrics writes it. If daskmetrics wrote all of"
                    " them, please report this line."
                ) from error

        return read

    return of


#: The argument RUN of most commands.
run_folder = run_argument("run", default=RUNS / "demo")

#: The argument CONFIG, which a command can do without.
config_file = click.argument("config", type=PATH, required=False)
config_or_program = click.argument("config", type=PATH, required=False, metavar="[CONFIG|PROGRAM]")
program_args = click.argument("args", nargs=-1, type=click.UNPROCESSED)

Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]


def text_option(name: str, metavar: str | None, help: str, **settings: Any) -> Decorator:
    """An option with a text, shown as ``metavar``."""
    return click.option(name, metavar=metavar, help=help, **settings)


def number_option(
    name: str,
    help: str,
    least: int = 1,
    most: int | None = None,
    **settings: Any,
) -> Decorator:
    """An option with an integer in a range."""
    return click.option(name, type=click.IntRange(least, most), metavar="N", help=help, **settings)


def parsed_by(parse: Callable[[str], object], wanted: str) -> Callable[[str], object]:
    """The type of an option whose text is parsed.

    A ValueError becomes an error that names what is wanted.
    """

    def value(text: str) -> object:
        try:
            return parse(text)
        except ValueError:
            raise click.BadParameter(f"'{text}' is not {wanted}.") from None

    return value


def amount(text: str) -> float:
    """A finite number of at least 0."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise ValueError
    return number


AMOUNT = parsed_by(amount, "a number from 0")


def path_option(name: str, help: str, **settings: Any) -> Decorator:
    """An option with a file or a folder."""
    return click.option(name, type=PATH, help=help, **settings)


def flag_option(name: str, help: str) -> Decorator:
    """An option without a value."""
    return click.option(name, is_flag=True, help=help)


def _share(text: str) -> float:
    share = float(text.removesuffix("%"))
    if text.endswith("%"):
        share /= 100
    if not 0 < share < 1:
        raise ValueError
    return share


#: The option --within.
within_option = click.option(
    "--within",
    type=parsed_by(_share, "a share between 0 and 1: write 1% or 0.01"),
    metavar="SHARE",
    help=(
        "Show the cheapest candidate that loses at most this share of the score in the worst case, "
        "such as 1%."
    ),
)

#: The option --set, which changes CONFIG.
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Such as search.budget=0.1; may be repeated.",
)

#: The option --folder.
folder_option = click.option(
    "--folder",
    type=NamedPath(path_type=Path, file_okay=False),
    help="Folder of the run.  [default: runs/NAME]",
)

#: The option --cluster, which changes CONFIG.
cluster_option = text_option(
    "--cluster", "PROFILE", "A profile's name, or its YAML file.  [default: CONFIG's, or local]"
)

#: The option --workers, which changes CONFIG.
workers_option = number_option("--workers", "Number of workers; short for --set cluster.workers=N.")


#: The option --submit.
submit_option = flag_option(
    "--submit", "Submit a Slurm job that drives it, and return. See `status --follow`."
)


def require_jobs(profile: Cluster) -> None:
    """Check that workers are not those of the job of the driver."""
    if profile.kind in ("local", "allocation"):
        raise ConfigError(
            "--submit runs the driver in a small job, and a local cluster would share that job: "
            "name a Slurm profile with --cluster. 'daskmetrics list profiles' shows them."
        )


def submit_config(
    config: Config, folder: Path, words: Sequence[str], looks: Sequence[Path]
) -> None:
    """Submit a job that runs a command with this configuration, as `submit_driver`."""
    import yaml

    text = yaml.safe_dump(config.as_dict(), sort_keys=False)
    submit_driver(config.cluster, config.name, folder, words, looks, text)


def submit_driver(
    profile: Cluster,
    name: str,
    folder: Path,
    words: Sequence[str],
    looks: Sequence[Path],
    config: str = "",
) -> None:
    """Submit a job that runs a command, and say how to follow it.

    The files of the job are in ``folder``; ``looks`` are the folders of which `status` shows more.
    """
    from daskmetrics.cluster.slurm import driver_job

    driver = RunFolder(folder).driver.resolve()
    job = driver_job.submit(profile, name, driver, words, note, config)
    look = "".join(f"  look    daskmetrics status {each}\n" for each in looks)
    say(
        f"Job {job.job} will drive the work in '{folder}'.\n"
        f"  follow  daskmetrics status --follow {folder}\n"
        f"{look}"
        f"  stop    scancel --batch --signal=TERM {job.job}    (submit again to resume)\n"
        f"  log     {job.log}"
    )


def say(text: object = "", err: bool = False) -> None:
    """Print a text or a table, without what controls a terminal.

    Parts of it may come from foreign files and code.
    """
    with _named_output():
        if isinstance(text, Table):
            text.show()
        else:
            click.echo(printable(str(text), "\n"), err=err)


def fitted(tables: Iterable[Table]) -> str:
    """Tables as a text that is no wider than `WIDTH` or the terminal."""
    return "\n\n".join(table.as_text(text_width(WIDTH)) for table in tables)


@contextmanager
def _named_output() -> Iterator[None]:
    """What standard output does not take is an error that names it."""
    try:
        yield
    except OSError as error:
        error.filename = OUTPUT
        raise


def note(text: object) -> None:
    """Print a text to standard error, as what is not the answer."""
    say(text, err=True)


@contextmanager
def noted_warnings() -> Iterator[None]:
    """Shows the warnings of the block as notes at its end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # also where warnings are errors
        yield
    for warning in caught:
        note(f"Warning: {warning.message}")


#: Keys of CONFIG, by the options that are short for --set.
SHORT_FORMS = {
    "workers": "cluster.workers",
    "policy": "search.policy",
    "budget": "search.budget",
    "until_idle": "until_idle",
    "suites": "ddp.folder",
}


def all_settings(options: Mapping[str, Any]) -> list[str]:
    """The profile, then the settings of --set, then those of other options."""
    settings = list(options["settings"])
    if options["cluster"]:
        settings.insert(0, f"cluster={options['cluster']}")
    for name, key in SHORT_FORMS.items():
        if options.get(name) is not None:
            settings.append(f"{key}={options[name]}")
    return settings


def is_program(config: Path | None) -> bool:
    """Whether a training program was named, and not a configuration."""
    return config is not None and config.suffix not in (".yaml", ".yml")


def path_of(config: Path | None) -> Path:
    """CONFIG, or the demo's without it."""
    from daskmetrics.config import folder

    return config or folder() / "demo.yaml"


def configuration(config: Path | None, settings: Sequence[str]) -> Config:
    """What CONFIG asks for, or the demo without it, with the settings."""
    from daskmetrics.config import load

    return load(path_of(config), settings)


def friendly(command: Callable[..., T]) -> Callable[..., T]:
    """Print errors as one message, without a traceback.

    They are those of this package and of the operating system; the exit code is 2 if nothing was
    started.
    """

    @wraps(command)
    def run(*args: object, **kwargs: object) -> T:
        try:
            with ExitStack() as stack:
                stack.push(lambda kind, error, trace: _flush(error))
                return command(*args, **kwargs)
        except DaskmetricsError as error:
            note(f"Error: {error}")
            sys.exit(2 if isinstance(error, (ConfigError, LockedError)) else 1)
        except KeyboardInterrupt as stop:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a further one ends what still closes
            note(f"Stopped. {stop}".rstrip())
            sys.exit(INTERRUPTED)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and _reader_has_ended():
                _discard_output()
                sys.exit(0)
            if error.filename == OUTPUT:
                _discard_output()
            note(f"Error: {system_error(error)}")
            sys.exit(1)

    return run


@contextmanager
def exit_when_recorded() -> Iterator[Callable[[int], None]]:
    """End a command that runs work with the code that follows from what is recorded.

    The block calls what it is given with this code; it is never 0 without this call, however the
    block ends.
    """
    codes: list[int] = []
    try:
        yield codes.append
    except BrokenPipeError as error:
        if not codes:
            raise DaskmetricsError(f"{UNRECORDED} ({describe(error)})") from error
        if not _reader_has_ended():
            raise
        _discard_output()
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(RECORDED) from stop
    except SystemExit as end:
        if end.code:
            raise
    if not codes:
        raise DaskmetricsError(UNRECORDED)
    sys.exit(codes[-1])


def _flush(error: BaseException | None) -> None:
    """Write out what was printed, whose errors have no message at the end of Python.

    They do not replace an earlier error or its code.
    """
    try:
        with _named_output():
            sys.stdout.flush()
    except OSError:
        if error is None or (isinstance(error, SystemExit) and not error.code):
            raise
        if isinstance(error, OSError) and error.filename is None:
            error.filename = OUTPUT  # that of click, which prints the help
        _discard_output()


def _reader_has_ended() -> bool:
    poll = select.poll()
    with suppress(ValueError):  # a notebook's or a test's is no file
        poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _prepare_streams() -> None:
    """Open the standard streams that the caller has closed.

    The journal would take the number of one, and get what libraries print. No text is an error of
    their encoding.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook's or a test's may be none
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Lose what standard output does not take; Python would try to write it again."""
    with suppress(ValueError):  # a notebook's or a test's is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


Shown: TypeAlias = Iterable[str | Table]


@dataclass(frozen=True)
class Output:
    """What a command answers: a document for programs, and texts for a reader.

    What has no document is None, and refuses --json. The exit code belongs to both.
    """

    document: Callable[[], object] | None
    shown: Shown
    code: int = 0


as_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document; see docs/json.md."
)


def answering(command: Callable[..., Output]) -> Callable[..., None]:
    """Print what a command returns, for a reader or as one JSON document."""

    @as_json_option
    @wraps(command)
    def run(*args: object, as_json: bool, **kwargs: object) -> None:
        output = command(*args, **kwargs)
        if not as_json:
            for part in output.shown:
                say(part)
        elif output.document is None:
            raise ConfigError("This is text for readers, without a JSON document: omit --json.")
        else:
            from daskmetrics.core.serialization import as_json as as_document

            click.echo(as_document(output.document()))
        sys.exit(output.code)

    return run


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, but not below ``nohup``."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def ignore_input() -> None:
    """Leave standard input to others, such as a shell's loop.

    A terminal stays: a debugger reads it.
    """
    if not os.isatty(0):
        close_input()


def example(*lines: str) -> str:
    """The end of a command's help: command lines as one would type them.

    >>> example("daskmetrics status demo").splitlines()[1:]
    ['Example:', '  daskmetrics status demo']
    """
    heading = "Example:" if len(lines) == 1 else "Examples:"
    # \b: click keeps these lines as they are
    return "\n".join(["\b", heading, *(f"  {line}" for line in lines)])


class Sections(click.Group):
    """A group whose help lists its commands under headings.

    ``sections`` has the commands by heading; without it, all are under one heading.
    """

    def __init__(
        self,
        *arguments: Any,
        sections: Mapping[str, Sequence[click.Command]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._sections = sections or {}
        for command in chain(*self._sections.values()):
            self.add_command(command)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the command; errors of its words, too, are printed as messages."""
        _prepare_streams()
        # the entries of a long journal stay: to look for garbage among them takes as long as to
        # read
        gc.set_threshold(50_000, 20, 100)
        # nor is there any among the modules of a process that ends; the look takes a second
        atexit.register(gc.freeze)
        return friendly(super().main)(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its errors are printed as messages."""
        return friendly(super().invoke)(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The named command, or an error with the one that was meant."""
        if ctx.resilient_parsing:  # a shell that completes words ignores what is no command
            return super().resolve_command(ctx, args)
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            hint = did_you_mean(name, self.commands)
            ctx.fail(f"No command '{name}'.{hint} See: {ctx.command_path} --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, their columns aligned."""
        width = max(map(len, self.commands))
        sections = self._sections or {"Commands": list(self.commands.values())}
        for heading, commands in sections.items():
            with formatter.section(heading):
                rows = [
                    (str(command.name).ljust(width), command.get_short_help_str(LONGEST))
                    for command in commands
                ]
                formatter.write_dl(rows)
