"""Training by Dask workers against torchrun on the same examples and seeds: seconds, ratio,
equality of weights.

Run ``python benchmarks/train.py [--ranks 2] [--pairs 4] [--steps 200]``. The two sides alternate.
Workers run before a process group starts, as in a run; both sides start new processes and read
tokens from disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distributed import Client

from daskmetrics.cluster import connect
from daskmetrics.config import Cluster, Recipe
from daskmetrics.domain.training import Progress
from daskmetrics.training import data as data
from daskmetrics.training.ddp.driver import launch
from daskmetrics.training.ddp.ranks import Program

ROOT = Path(__file__).parent.parent


class Quiet:
    """Prints failures only."""

    def message(self, text: str) -> None:
        if "failed" in text:
            print(text)

    def progressed(self, program: Program, progress: Progress) -> None: ...


def process_group(
    client: Client, recipe: Recipe, corpus: Path, folder: Path
) -> tuple[float, bytes]:
    """Seconds of a process group, and the weights of its last step."""
    shutil.copytree(corpus, folder / "corpus")
    started = time.perf_counter()
    words = ("-m", "daskmetrics.training.recipe", str(folder), *recipe.words)
    launch(client, Program("bench", words, folder, recipe.ranks, least=1), Quiet())
    seconds = time.perf_counter() - started
    return seconds, (folder / f"step{recipe.steps}" / "model.safetensors").read_bytes()


def torchrun(recipe: Recipe, corpus: Path, folder: Path) -> tuple[float, bytes]:
    """Seconds of the plain script under torchrun, and its weights."""
    folder.mkdir()
    (folder / "recipe.json").write_text(recipe.model_dump_json())
    files = [folder / "recipe.json", corpus, folder / "plain.safetensors"]
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={recipe.ranks}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    started = time.perf_counter()
    subprocess.run(
        [*launch, ROOT / "benchmarks" / "ddp.py", *files],
        env=environment,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - started, (folder / "plain.safetensors").read_bytes()


def compare(recipe: Recipe, pairs: int) -> list[tuple[float, float, bool]]:
    """Seconds of a process group and of torchrun, and whether their weights are equal bit for bit,
    pair by pair.
    """
    with tempfile.TemporaryDirectory() as place, connect(Cluster(workers=recipe.ranks)) as client:
        base = Path(place)
        data.write_corpus(recipe, base)
        results = []
        for pair in range(pairs):
            ours, weights = process_group(client, recipe, base / "corpus", base / f"ddp{pair}")
            theirs, plain = torchrun(recipe, base / "corpus", base / f"torchrun{pair}")
            results.append((ours, theirs, weights == plain))
        return results


def report(recipe: Recipe, results: list[tuple[float, float, bool]]) -> None:
    print(
        f"{recipe.ranks} ranks, {recipe.steps} steps, width {recipe.width}, depth {recipe.depth}, gloo"
    )
    for ours, theirs, equal in results:
        same = "equal bit for bit" if equal else "DIFFERENT"
        print(
            f"  daskmetrics {ours:6.1f} s   torchrun {theirs:6.1f} s   ratio {ours / theirs:.2f}   weights {same}"
        )
    print(f"  median ratio {statistics.median(ours / theirs for ours, theirs, _ in results):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args()
    for ranks in options.ranks:
        recipe = Recipe(
            width=options.width, steps=options.steps, ranks=ranks, checkpoints=(options.steps,)
        )
        report(recipe, compare(recipe, options.pairs))


if __name__ == "__main__":
    main()
