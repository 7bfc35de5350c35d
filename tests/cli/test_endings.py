"""A command that runs work ends with code 0 only when everything is recorded, however it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext

import click
import pytest
from click.testing import CliRunner

from daskmetrics.cli._common import Sections, exit_when_recorded
from daskmetrics.core.errors import ClusterLostError, ConfigError, LockedError, StorageError

ENDS = [
    (None, 1),
    (SystemExit(0), 1),
    (SystemExit(None), 1),
    (SystemExit(7), 7),
    (BrokenPipeError(32, "Broken pipe"), 1),
    (ConnectionResetError(104, "reset"), 1),
    (TimeoutError("join timed out"), 1),
    (KeyboardInterrupt(), 130),
    (ConfigError("wrong"), 2),
    (LockedError("locked"), 2),
    (ClusterLostError("lost"), 1),
    (StorageError("full"), 1),
    (click.Abort(), 1),
    (RuntimeError("ours"), 1),
    (MemoryError(), 1),
]


def ended(error: BaseException | None, *codes: int) -> int:
    """The exit code of a command that gives codes and then raises an error."""

    @click.command("work")
    def work() -> None:
        with exit_when_recorded() as ends:
            for code in codes:
                ends(code)
            if error is not None:
                raise error

    group = Sections("tool", sections={"All": [work]})
    return CliRunner().invoke(group, ["work"]).exit_code


@pytest.mark.parametrize(("error", "code"), ENDS, ids=repr)
def test_no_end_before_everything_is_recorded_has_code_0(error, code):
    assert ended(error) == code


@pytest.mark.parametrize("code", [0, 3])
def test_after_it_the_code_is_that_of_what_is_recorded(code):
    assert ended(None, code) == ended(SystemExit(0), code) == code
    assert ended(KeyboardInterrupt(), code) == 130
    assert ended(BrokenPipeError(), code) == 1, "standard output has a reader"


@pytest.mark.parametrize("records", [True, False])
def test_only_what_is_recorded_is_said_to_be_resumed(records):
    @click.command("work")
    def work() -> None:
        with exit_when_recorded() if records else nullcontext():
            raise KeyboardInterrupt

    output = CliRunner().invoke(Sections("tool", sections={"All": [work]}), ["work"]).output
    assert output.startswith("Stopped.") and ("to resume" in output) == records


PRINTS = """
import sys
from daskmetrics.cli._common import exit_when_recorded, friendly, say
@friendly
def work():
    with exit_when_recorded() as ends:
        {before}
        say("x" * 10_000_000)
        {after}
        raise BrokenPipeError
work()
"""


@pytest.mark.parametrize(
    ("before", "code"), [("ends(0)", 0), ("ends(3)", 3), ("pass", 1)], ids=lambda part: str(part)
)
def test_an_ended_reader_changes_no_code(before, code):
    words = [sys.executable, "-c", PRINTS.format(before=before, after="ends(0)")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.wait(60) == code, process.stderr.read()


def test_an_answer_whose_reader_ends_keeps_the_code_of_its_error():
    text = "from daskmetrics.cli._common import friendly, say\nimport sys\n"
    text += "@friendly\ndef work():\n    print('x')\n    sys.exit({code})\nwork()"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for code in (0, 1):
        words = [sys.executable, "-c", text.format(code=code)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=buffered) as process:
            assert process.stdout
            process.stdout.close()
            assert process.wait(60) == code
