from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.cli._common import Sections


def commands(group: click.Group, path: str = "daskmetrics") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL = dict(commands(main))
ROOT = Path(__file__).parents[2]


def shown(path: str, width: int = 80) -> str:
    done = CliRunner().invoke(main, [*path.split()[1:], "--help"], terminal_width=width)
    assert done.exit_code == 0, done.output
    return done.output


def parse(command: click.Command, name: str, words: list[str], parent=None) -> str:
    """Parse words as the shell's; returns the path of the command that they name, and runs nothing."""
    context = command.make_context(name, list(words), parent)
    if not isinstance(command, click.Group):
        return context.command_path
    inner, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    assert inner and found
    return parse(found, inner, rest, context)


@pytest.mark.parametrize("path", ["daskmetrics", "daskmetrics cluster"])
@pytest.mark.parametrize("width", [60, 110])
def test_the_list_of_commands_shows_whole_sentences(path, width):
    group = ALL.get(path, main)
    assert isinstance(group, Sections)
    text = " ".join(shown(path, width).partition("[ARGS]...")[2].split())
    assert "..." not in text
    for name, command in group.commands.items():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert first[0].isupper() and first.endswith(".") and ". " not in first, (
            f"{name}: not one sentence"
        )
        assert f"{name} {first}" in text


@pytest.mark.parametrize("path", ALL)
def test_help_has_an_example_that_parses(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()  # the one argument that must exist
    typed = [line.partition("#")[0].strip() for line in str(ALL[path].epilog).splitlines()]
    lines = [line for line in typed if line.startswith("daskmetrics")]
    assert lines
    for line in lines:
        assert line in shown(path, 110)
        assert parse(main, "daskmetrics", shlex.split(line)[1:]).startswith(path)


def test_at_most_16_commands_are_at_the_top():
    assert len(main.commands) <= 16


WRITTEN = re.compile(r"(?:`|'|: |^ *|\$ )daskmetrics ([a-z][a-z-]*)(?: ([a-z-]+))?", re.MULTILINE)
SOURCES = [
    path
    for pattern in ("README.md", "docs/**/*.md", "daskmetrics/**/*.py", "notebooks/*.ipynb")
    for path in ROOT.glob(pattern)
]


def test_every_command_that_is_written_somewhere_exists():
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES}
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path, text in texts.items()
        for found in WRITTEN.finditer(text)
        if found[1] not in main.commands
        or (found[1] in ("list", "runs") and f"daskmetrics {found[1]} {found[2]}" not in ALL)
    ]
    assert not wrong


TYPED = re.compile(r"^(?:\$ )?(daskmetrics (?:\\\n|.)+)|`(daskmetrics [^`]+)`", re.MULTILINE)


@pytest.mark.parametrize("path", ["README.md", *(page.name for page in ROOT.glob("docs/*.md"))])
def test_every_option_that_a_page_shows_exists(path):
    folder = ROOT / "docs" if path != "README.md" else ROOT
    for line, inline in TYPED.findall((folder / path).read_text(encoding="utf-8")):
        typed = (line.replace("\\\n", " ") or inline).partition(" | ")[0]
        _, *words = shlex.split(typed, comments=True)
        command: click.Command = main
        while isinstance(command, click.Group) and words[0] in command.commands:
            command = command.commands[words.pop(0)]
        command.make_parser(click.Context(command)).parse_args(words)
