"""Live searches of the embedded demo on real workers, compared with its exhaustive sweep.

Each search is a run with a seed of its own: new prompts and probes are drawn, everything is
measured again, and the scores have other noise than those of the sweep, whose seed is 0.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from replays import Rate

import daskmetrics
from daskmetrics.bandit.replay import WITHIN, GroundTruth, Scenario, ground_truth
from daskmetrics.core.names import Arm
from daskmetrics.experiment.score_tables import read
from daskmetrics.report import Run

GOAL = "goal: within 1 % in 10 of 10 at 15 % of the cost"
SMALL = (
    "models=[{name: tiny, train: {width: 16, depth: 3, steps: 8}}]",
    "corpus.prompts=16",
    "tasks=['stdlib:order']",
    "cluster.workers=1",
)


def loss_of(known_truth: GroundTruth, arms: Sequence[Arm], run: Run) -> float:
    """By which share the recommended arm's true mean score is below that of the best arm."""
    return float(known_truth.loss[list(arms).index(run.best().arm)])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--budget", type=float, default=0.15, help="share of the cost of every cell"
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="as `daskmetrics run` takes it"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the runs here; existing runs are not repeated"
    )
    parser.add_argument(
        "--small", action="store_true", help="one tiny model, one task, one seed, the whole budget"
    )
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        compare(chosen, chosen.folder or Path(temporary))


def compare(chosen: argparse.Namespace, folder: Path) -> None:
    settings = [*(SMALL if chosen.small else ()), *chosen.settings]
    seeds, budget = (1, 1.0) if chosen.small else (chosen.seeds, chosen.budget)
    sweep = [*settings, "search.policy=sweep", "search.budget=1"]
    whole = daskmetrics.run(settings=sweep, folder=folder / "truth")
    known = read(whole.folder.path)
    truth = ground_truth(known, Scenario().build_problem(known))
    good = int((truth.loss <= WITHIN).sum())
    print(
        f"\nexhaustive: best {known.arms[truth.best]}, {len(known.arms)} arms x {len(known.tasks)} tasks; "
        f"{good} arms are within {WITHIN:.0%} of it"
    )
    print(
        f"{'seed':>4}  {'recommended':<24} {'loss':>7}  {'share of cost':>13}  {'cells':>6}  confidence"
    )
    hits = 0
    for seed in range(seeds):
        search = [*settings, f"seed={seed}", f"search.budget={budget}"]
        run = daskmetrics.run(settings=search, folder=folder / f"seed-{seed}")
        best, loss = run.best(), loss_of(truth, known.arms, run)
        hits += loss <= WITHIN
        confidence = run.result.probability_within  # type: ignore[union-attr]
        share, cells = f"{best.share:>13.1%}", f"{run.counts['score', 'ok']:>6}"
        print(f"{seed:>4}  {best.arm!s:<24} {loss:>7.2%}  {share}  {cells}  {confidence:.2f}")
    low, high = Rate(hits, seeds).interval
    print(f"within {WITHIN:.0%}: {hits} of {seeds} (95 % interval {low:.2f}-{high:.2f}; {GOAL})")
    if chosen.small and hits < seeds:
        sys.exit("A search with the whole budget did not find the best arm.")


if __name__ == "__main__":  # workers import this file
    main()
