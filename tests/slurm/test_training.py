"""A process group whose ranks are Slurm jobs, and a node that is lost under it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, Recipe
from daskmetrics.domain.training import Progress
from daskmetrics.training import revisions, train
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program
from tests.slurm.site import needs_slurm, profile

pytestmark = needs_slurm


class LosingANode:
    """Sends the last job's node down once a rank is on its way."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.lost: str | None = None

    def message(self, text: str) -> None:
        self.lines.append(text)

    def progressed(self, program: Program, progress: Progress) -> None:
        if self.lost is None and progress.step >= 20:
            self.lost = subprocess.run(
                ["squeue", "-h", "-t", "R", "-o", "%N"], capture_output=True, text=True, check=True
            ).stdout.split()[-1]
            change = ["scontrol", "update", f"NodeName={self.lost}", "State=DOWN", "Reason=test"]
            subprocess.run(change, check=True)


def test_a_node_is_lost_and_the_weights_are_the_same(slurm: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(
        "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(400))
    )
    recipe = Recipe(
        width=32,
        depth=2,
        context=32,
        steps=150,
        ranks=2,
        checkpoints=(0, 20, 100),
        corpus=str(corpus),
        vocabulary=300,
        save_every=10,
    )
    folder = tmp_path / "suite"
    words = ("-m", "daskmetrics.training.recipe", str(folder), *recipe.words)
    observer = LosingANode()
    with connect(
        Cluster.model_validate(profile(slurm, directives=["--exclusive"])),
        "train",
        observer.message,
    ) as client:
        launch(client, Program("tiny", words, folder, 2, least=1, patience=180.0), observer)
    assert observer.lost
    # for other tests
    subprocess.run(["scontrol", "update", f"NodeName={observer.lost}", "State=RESUME"], check=False)
    tables = [line for line in observer.lines if line.startswith("rank")]
    assert len(tables) >= 2 and len(set(re.findall(r"gpu-\d+", "".join(tables)))) >= 3, (
        observer.lines
    )
    assert any("its worker was lost" in line for line in observer.lines), observer.lines
    assert any("with 2 of 2 ranks" in line for line in observer.lines)
    # one process: two halves of a step give the same sums
    train(recipe, tmp_path / "here")
    last = revisions(recipe)[-1]
    ours, theirs = (tmp_path / name / last / "model.safetensors" for name in ("suite", "here"))
    assert ours.read_bytes() == theirs.read_bytes()
