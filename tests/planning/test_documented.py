"""The examples of docs/plan.md give the output that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.slurm.site import ROOT

PAGE = ROOT / "docs" / "plan.md"
BLOCK = re.compile(r"```console\n\$ daskmetrics (?P<words>[^\n]+)\n(?P<shown>.*?)```", re.S)
EXAMPLES = [match["words"] for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


def printed(words, cache):
    """The output of a command, without ages."""
    done = subprocess.run(
        [sys.executable, "-m", "daskmetrics", *words.split()],
        cwd=ROOT / "docs" / "plan",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DASKMETRICS_CACHE": str(cache), "HF_HOME": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    return re.sub(r", [\d.,]+ (s|min|h|days) ago", ", AGE ago", done.stdout).lstrip("\n")


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_prints_what_the_page_shows(words, tmp_path):
    if "pythia" in words and find_spec("mteb") is None:
        pytest.skip("needs mteb, whose tasks the configuration names")
    output = printed(words, tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    shown = next(match for match in BLOCK.finditer(text) if match["words"] == words)
    if os.environ.get("DASKMETRICS_RECORD"):
        PAGE.write_text(text.replace(shown[0], f"```console\n$ daskmetrics {words}\n{output}```"), encoding="utf-8")
    else:
        assert shown["shown"] == output


def test_the_training_that_took_14_1_hours_is_predicted_within_a_tenth(tmp_path):
    row = next(line for line in printed(EXAMPLES[0], tmp_path).splitlines() if line.startswith("1 "))
    predicted = float(re.search(r"([\d.]+) \(", row)[1])
    assert abs(predicted / 14.1 - 1) < 0.1
