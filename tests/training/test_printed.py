"""What real bars of programs say, read piece by piece as a worker does."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from daskmetrics.training.printed import PrintedProgress

BEGIN = """
import time
from tqdm import tqdm, trange

def step():
    time.sleep(0.008)
"""
# three epochs of forty steps
EPOCHS = {
    "a bar for each epoch": """
for epoch in range(3):
    for batch in tqdm(range(40)):
        step()
""",
    "bars that name their epoch": """
for epoch in range(3):
    for batch in tqdm(range(40), desc=f"Epoch {epoch + 1}/3"):
        step()
""",
    "bars that count epochs from 0": """
for epoch in range(3):
    bar = tqdm(range(40))
    for batch in bar:
        step()
        bar.set_description(f"epoch {epoch}, loss {1 / (batch + 1):.3f}")
""",
    "bars that are not left": """
for epoch in range(3):
    for batch in tqdm(range(40), desc=f"Epoch {epoch + 1}", leave=False):
        step()
""",
    "bars within a bar": """
for epoch in trange(3, desc="Epochs"):
    for batch in tqdm(range(40)):
        step()
""",
    "bars within a bar that are not left": """
for epoch in trange(3):
    for batch in tqdm(range(40), leave=False):
        step()
""",
    "bars that are never closed": """
for epoch in range(3):
    bar = tqdm(total=40)
    for batch in range(40):
        step()
        bar.update()
""",
    "evaluations and lines in between": """
for epoch in range(3):
    for batch in tqdm(range(40), leave=False):
        step()
        if batch in (20, 39):
            tqdm.write(f"{{'loss': {batch + 1}}}")
    for batch in tqdm(range(10)):
        step()
    for batch in tqdm(range(40), desc="Validation"):
        step()
""",
    "data before": """
for text in tqdm(range(90)):
    step()
for epoch in range(3):
    for batch in tqdm(range(40), desc=f"Epoch {epoch + 1}"):
        step()
""",
}


def facts_of(program: str, folder: Path) -> list[dict[str, float]]:
    """What is read of a program while it runs."""
    log = folder / "log"
    words = [sys.executable, "-c", BEGIN + program]
    printed = PrintedProgress()
    facts: list[dict[str, float]] = []
    with log.open("wb") as output, log.open("rb") as lines:
        with subprocess.Popen(words, stdout=output, stderr=output) as process:
            while process.poll() is None:
                time.sleep(0.05)
                facts += list(printed.read(lines.read().decode()))[-1:]
        facts += list(printed.read(lines.read().decode()))[-1:]
    assert process.returncode == 0, log.read_text()
    return facts


@pytest.mark.parametrize("program", EPOCHS.values(), ids=EPOCHS)
def test_the_steps_and_epochs_of_bars_are_exact(program, tmp_path):
    facts = facts_of(program, tmp_path)
    assert facts[0]["step"] < 40
    assert {"step": 120, "total": 120, "epoch": 3.0}.items() <= facts[-1].items()
    steps = [each["step"] for each in facts if "epoch" in each]
    assert steps == sorted(steps)
