"""The command line, in this process or in one of its own, in a folder of the test's."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from daskmetrics.cli import main
from daskmetrics.core.main_module import CODE

COMMAND = [sys.executable, "-m", "daskmetrics"]


def call(folder: Path, line: str, answers: str | None = None, **variables: str | None) -> Result:
    """The result of a command line outside a Slurm job, without modules of earlier folders."""
    of_slurm = (name for name in os.environ if name.startswith("SLURM_"))
    environment = {**dict.fromkeys((*of_slurm, CODE)), **variables}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        words = shlex.split(line)
        done = CliRunner().invoke(main, words, answers, env=environment)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]
    return done


def start(folder: Path, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The result of a command line in a process of its own."""
    return subprocess.run(
        [*COMMAND, *shlex.split(line)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
    )


def fails(done: Result, message: str) -> bool:
    """Whether a command ended with one message that contains this text, before it started anything."""
    shown = " ".join(done.stderr.split())
    one_message = shown.count("Error:") == 1 and done.stdout == ""
    return done.exit_code == 2 and message in shown and one_message
