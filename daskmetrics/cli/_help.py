"""Help of the command line: commands in sections with whole sentences, and an example for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click


def example(*lines: str) -> str:
    """The end of a command's help: command lines as one would type them.

    >>> example("daskmetrics status demo").splitlines()[1:]
    ['Example:', '  daskmetrics status demo']
    """
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", heading, *(f"  {line}" for line in lines)])  # \b: click keeps these lines as they are


def sentence(command: click.Command) -> str:
    """The first sentence of a command's help, whole."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.?]) (?=[A-Z])", text)[0]


class Sections(click.Group):
    """A group whose help lists its commands under headings, each with a whole sentence.

    ``sections`` has the names of the commands by heading; names without a command are skipped. Without it, all
    commands are under one heading.
    """

    def __init__(self, *given: Any, sections: Mapping[str, Sequence[str]] | None = None, **others: Any) -> None:
        super().__init__(*given, **others)
        self._sections = sections

    @property
    def sections(self) -> Mapping[str, Sequence[str]]:
        """Names of the commands by heading."""
        given = self._sections or {"Commands": list(self.commands)}
        present = {heading: [name for name in names if name in self.commands] for heading, names in given.items()}
        return {heading: names for heading, names in present.items() if names}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections, their columns aligned."""
        width = max(map(len, self.commands))
        for heading, names in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), sentence(self.commands[name])) for name in names])
