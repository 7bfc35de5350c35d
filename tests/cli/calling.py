"""The command line, in this process or in one of its own, in a folder of the test's."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
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


@contextmanager
def process(folder: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process in a group of its own, as a terminal starts it; killed at the end of the
    block.
    """
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], object], child: subprocess.Popen[str]) -> None:
    """Wait for what a process that runs brings about."""
    deadline = time.monotonic() + 120
    while not condition():
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def a_worker(driver: subprocess.Popen[Any]) -> psutil.Process:
    """A worker of a driver on this machine."""
    children = psutil.Process(driver.pid).children()
    return next(child for child in children if "spawn_main" in " ".join(child.cmdline()))


def fails(done: Result, message: str) -> bool:
    """Whether a command ended with one message that contains this text, before it started anything."""
    shown = " ".join(done.stderr.split())
    one_message = shown.count("Error:") == 1 and done.stdout == ""
    return done.exit_code == 2 and message in shown and one_message
