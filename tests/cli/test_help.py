from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from daskmetrics.cli import SECTIONS, main
from daskmetrics.cli._common import Sections


def commands(group: click.Group, path: str = "daskmetrics") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL = dict(commands(main))


def shown(path: str, width: int = 80) -> str:
    done = CliRunner().invoke(main, [*path.split()[1:], "--help"], terminal_width=width)
    assert done.exit_code == 0, done.output
    return done.output


def examples(command: click.Command) -> list[str]:
    lines = [line.partition("#")[0].strip() for line in (command.epilog or "").splitlines()]
    return [line for line in lines if line.startswith("daskmetrics")]


def parse(command: click.Command, name: str, words: list[str], parent: click.Context | None = None) -> str:
    """Parse words as the shell's; returns the path of the command that they name, and runs nothing."""
    context = command.make_context(name, list(words), parent)
    if not isinstance(command, click.Group):
        return context.command_path
    inner, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    assert inner and found
    return parse(found, inner, rest, context)


def test_every_command_is_in_one_section():
    placed = [name for names in SECTIONS.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(placed) == set(main.commands)


@pytest.mark.parametrize("path", ["daskmetrics", "daskmetrics cluster"])
@pytest.mark.parametrize("width", [60, 80, 110])
def test_the_list_of_commands_shows_whole_sentences(path, width):
    group = ALL.get(path, main)
    assert isinstance(group, Sections)
    text = " ".join(shown(path, width).partition("[ARGS]...")[2].split())
    assert "..." not in text
    for name, command in group.commands.items():
        first = " ".join((command.help or "").split("\n\n")[0].split())
        assert first[0].isupper() and first.endswith(".") and ". " not in first, f"{name}: not one sentence"
        assert f"{name} {first}" in text


@pytest.mark.parametrize("path", ALL)
def test_help_has_an_example_that_parses(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()  # the one argument that must exist
    lines = examples(ALL[path])
    assert lines
    for line in lines:
        assert line in shown(path, 110)
        assert parse(main, "daskmetrics", shlex.split(line)[1:]).startswith(path)


def test_an_example_with_an_unknown_option_does_not_parse():
    with pytest.raises(click.NoSuchOption):
        parse(main, "daskmetrics", ["status", "demo", "--nothing"])
