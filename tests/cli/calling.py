"""The command line in this process, in a folder of the test's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from daskmetrics.cli import main

MODEL = {"name": "tiny", "train": {"width": 8, "depth": 1, "heads": 2, "steps": 2}}


def call(folder: Path, *words: str, config: dict | None = None, **variables: str | None) -> Result:
    """The result of a command; ``config`` is written as config.yaml."""
    if config is not None:
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        done = CliRunner().invoke(main, words, env=variables)
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(f"{folder}/"):
            del sys.modules[name]
    return done


def fails(done: Result, message: str) -> bool:
    """Whether a command ended with one message that contains this text, before it started anything."""
    shown = " ".join(done.stderr.split())
    return done.exit_code == 2 and message in shown and shown.count("Error:") == 1
