"""The search on published scores: how often the best arm is found by which cost, how soon on many workers, how sure.

Needs a table of scores (``--scores``, or the folder in DASKMETRICS_PUBLISHED_DATA). Each section goes through the code
of a live search; costs and clock are the table's seconds. ``--small`` takes a made-up table and a few seeds.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from daskmetrics.arms import Arm, Checkpoint, Suite, every
from daskmetrics.replays import Plan, Row, Setting, Step, Table, Terms, Trial, conduct, read, table, truth
from daskmetrics.replays.summary import SHARES, arrivals, by_setting, quantile, success
from daskmetrics.replays.text import CONFIDENT, Sheet, about, calibration_sheet, success_sheet

MODEL = "Pythia-410m"
BY_CELL = ("race", "lucb", "halving", "random")
WHOLE = ("gp-ei", "linucb", "rivals:tpe")
PROBLEMS = {
    "all 32 tasks, published costs": Terms("published"),
    "R16 (16 random tasks per seed), published costs + 30 s per pull": Terms("published", overhead=30, subset=16),
    "all 32 tasks, unit costs": Terms("unit"),
    "R16, unit costs": Terms("unit", subset=16),
    "R16, nine tenths of a cost a shared encoding": Terms("shared", subset=16),
    "R16, nine tenths a shared encoding, 30 s per load": Terms("shared", load=30, subset=16),
}
GOALS: tuple[dict[float, int], ...] = (
    {0.003: 99},
    {0.01: 92, 0.02: 98},
    {0.01: 83, 0.02: 98},
    {0.01: 0, 0.02: 0},
    {0.01: 0, 0.02: 0},
    {0.01: 0, 0.02: 0},
)  # of 100, after shares of the cost


@dataclass(frozen=True)
class Chosen:
    """What to run."""

    known: Table
    seeds: int
    rival_seeds: int
    jobs: int
    policy: str
    small: bool

    def terms(self) -> dict[str, Terms]:
        if not self.small:
            return PROBLEMS
        return {name: replace(terms, subset=terms.subset and 3) for name, terms in PROBLEMS.items()}

    def run(self, terms: Terms, settings: Sequence[Setting], budget: float, every: int = 1) -> list[Trial]:
        plan = Plan(self.known, terms, 0.3 if self.small else budget, every)
        seeds = self.seeds if any(setting.policy == self.policy for setting in settings) else self.rival_seeds
        return list(conduct(plan, settings, range(seeds), self.jobs))


def made_up() -> Table:
    """A small table with one best region, for ``--small``."""
    rng = np.random.default_rng(0)
    rows = []
    for t in range(6):
        for layer in range(5):
            quality = 0.5 + 0.05 * t - 0.03 * (layer - 3) ** 2
            for i, seconds in enumerate((1.0, 5.0, 60.0, 300.0)):
                score = quality + rng.normal(0, 0.003)
                rows.append(Row(Arm(MODEL, f"step{4**t}", layer), f"task{i}", score, seconds=seconds))
    return table(rows)


def show(sheet: Sheet) -> None:
    widths = [max(map(len, column)) for column in zip(sheet.header, *sheet.rows, strict=True)]
    print(sheet.title)
    for row in (sheet.header, *sheet.rows):
        print("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    if sheet.note:
        print("  " + sheet.note)
    print(flush=True)


def found_by_budget(chosen: Chosen) -> None:
    """Claims 1 and 3 in short: campaigns that were given the budget in question and no more."""
    own: list[Trial] = []
    for (name, terms), goals in zip(chosen.terms().items(), GOALS, strict=True):
        for share, goal in goals.items():
            trials = chosen.run(terms, [Setting(chosen.policy)], share, every=8)
            own += trials
            rate, sure = success(trials, 1.0), [trial for trial in trials if trial.path[-1].said >= CONFIDENT]
            wanted = f" (goal: {goal} of 100)" if goal else ""
            true = success(sure, 1.0)
            print(f"{name}, {share:.1%}: found by {rate.hits} of {rate.of}{wanted}", end="; ")
            print(f"of those said to be with {CONFIDENT:.0%} or more {true.hits} of {true.of}", flush=True)
    show(calibration_sheet(own))


def found_by_cost(chosen: Chosen) -> None:
    """Claims 1 and 3: every policy under three costs; then how true the default policy's confidence was."""
    own: list[Trial] = []
    for (name, terms), goals in zip(chosen.terms().items(), GOALS, strict=True):
        print(f"{name}\n{about(Plan(chosen.known, terms, 1.0))}")
        trials = chosen.run(terms, [Setting(chosen.policy)], 0.2)
        own += trials
        others = [Setting(policy) for policy in BY_CELL if policy != chosen.policy]
        trials += chosen.run(terms, others, 0.2, every=4)
        trials += chosen.run(terms, [Setting(policy) for policy in WHOLE], 0.2, every=len(chosen.known.tasks) // 2)
        trials += [replaced_trial(chosen.known, terms, seed) for seed in range(chosen.rival_seeds)]
        show(success_sheet(trials, SHARES))
        for share, goal in {share: goal for share, goal in goals.items() if goal}.items():
            rate = success([trial for trial in trials if trial.setting.policy == chosen.policy], share)
            print(f"  {chosen.policy} after {share:.1%}: {rate.hits} of {rate.of} (goal: {goal} of 100)\n")
    show(calibration_sheet(own))


def replaced_trial(known: Table, terms: Terms, seed: int) -> Trial:
    from rivals import replaced

    return replaced(Plan(known, terms, 0.2), seed)


def on_workers(chosen: Chosen) -> None:
    """Claim 2: 32 workers on R16 with 30 s per pull; beside it one arm at a time with its tasks in parallel."""
    terms = list(chosen.terms().values())[1]
    loaded = replace(terms, overhead=0.0, load=30.0)
    rows = []
    for what, own, numbers in (("30 s per pull", terms, (1, 8, 32)), ("30 s per load", loaded, (32,))):
        trials = chosen.run(own, [Setting(chosen.policy, workers) for workers in numbers], 0.02)
        rows += [_speed(f"{setting}, {what}", each) for setting, each in by_setting(trials).items()]
    plan = Plan(chosen.known, terms, 0.2)
    for workers in (8, 32):
        trials = [one_arm_at_a_time(plan, "gp-ei", seed, workers) for seed in range(chosen.rival_seeds)]
        rows.append(_speed(f"one arm at a time (gp-ei), {workers} workers, 30 s per pull", trials))
    header = ("R16", "median h", "p90 h", "lasting h", "p90 h", "busy", "while deciding")
    note = "goal at 32 workers, 30 s per load: 0.03 h in the median, 0.12 h at the 90th percentile"
    show(Sheet("Hours until within 1 % of the best: first, and for good", header, tuple(rows), note))


def _speed(name: str, trials: Sequence[Trial]) -> tuple[str, ...]:
    first, lasting = (arrivals(trials, lambda step: step.seconds / 3600, each) for each in (False, True))
    hours = [quantile(values, q) for values in (first, lasting) for q in (0.5, 0.9)]
    busy = [statistics.mean(values) for values in zip(*((t.busy, t.deciding) for t in trials), strict=True)]
    return name, *(f"{value:.3f}" for value in hours), *(f"{value:.2f}" for value in busy)


def one_arm_at_a_time(plan: Plan, policy: str, seed: int, workers: int) -> Trial:
    """The replaced design's way of being parallel: all tasks of one arm at once, and a barrier before the next arm."""
    from daskmetrics.bandit import policy_named
    from daskmetrics.bandit.replay import replay

    known = plan.terms.of_seed(plan.table, seed)
    problem = plan.terms.pose(known)
    loss = truth(known, problem).loss
    ran = replay(problem, known.cells(), policy_named(policy), budget=plan.budget, seed=seed, every=1)
    path, clock, worked = [], 0.0, 0.0
    for last, costs in _arms(ran.picks):
        clock += _makespan(costs, workers)
        worked += sum(costs)
        point = ran.trace[last]
        path.append(
            Step(point.cost / problem.exhaustive_cost, clock, float(loss[problem.arm_index[point.arm]]), np.nan)
        )
    return Trial(Setting(policy, workers), seed, tuple(path), len(ran.picks), busy := worked / (workers * clock), busy)


def _arms(picks: Sequence[Any]) -> Iterator[tuple[int, list[float]]]:
    """Costs of the cells of one arm after the other, with the number of the last of them."""
    costs: list[float] = []
    for pick, following in zip(picks, [*picks[1:], None], strict=True):
        costs.append(pick.cost)
        if following is None or following.cell.arm != pick.cell.arm:
            yield pick.index, costs
            costs = []


def _makespan(costs: Sequence[float], workers: int) -> float:
    free = [0.0] * workers
    for cost in sorted(costs, reverse=True):  # longest first, the kindest order to this design
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


@dataclass(frozen=True)
class Load:
    """What is asked of a search at scale: arms, tasks, decisions in all, and how many of them at once."""

    arms: int
    tasks: int
    decisions: int
    at_once: int = 1


@dataclass(frozen=True)
class Costs:
    """Processor ms of every ask, per decision, with the number of its first, and of every tell; memory in MB."""

    arms: int
    asks: Sequence[tuple[float, int]]
    tells: Sequence[float]
    before: float
    after: float


def _search_in_process(load: Load, policy: str, pipe: Any) -> None:
    from daskmetrics.bandit import Campaign, Outcome, policy_named

    problem, scores = _large(load)
    before = resident()
    search = Campaign(problem, policy_named(policy), budget=0.5, window=load.at_once, seed=0)
    asks: list[tuple[float, int]] = []
    tells: list[float] = []
    while len(search.picks) < load.decisions:
        picks, ms = _timed(lambda: search.ask(load.at_once))
        if not picks:
            break
        asks.append((ms / len(picks), picks[0].index))
        for pick in picks:
            outcome = Outcome(float(scores[problem.locate(pick.cell)]), 0.01)
            tells.append(_timed(partial(search.tell, pick.index, outcome))[1])
    pipe.send(Costs(len(problem.arms), asks, tells, before, resident()))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = call()
    return result, 1000 * (time.process_time() - started)


def _large(load: Load) -> tuple[Any, Any]:
    """Three models with metrics, and scores (A, T) of which one region is best."""
    from daskmetrics.bandit import Problem, arm_features

    layers = {"14m": 6, "70m": 6, "410m": 24}
    revisions = max(2, load.arms // sum(layers.values()))
    suites = [
        Suite(name, tuple(f"step{s}" for s in every(1000, 1000 * (revisions - 1))), tuple(range(1, depth + 1)), depth)
        for name, depth in layers.items()
    ]
    features = arm_features(suites, np.random.default_rng(0).normal(size=(revisions * sum(layers.values()), 8)))
    rng = np.random.default_rng(1)
    price = rng.lognormal(sigma=1.5, size=load.tasks) * np.ones((len(features), 1))
    quality = -((features[:, 0] - 0.8) ** 2) - (features[:, 1] - 0.7) ** 2
    scores = 0.6 + 0.2 * quality[:, None] + rng.normal(scale=0.01, size=price.shape)
    names = tuple(f"task{i}" for i in range(load.tasks))
    grid = tuple(arm for suite in suites for arm in suite.arms())
    baseline = Checkpoint("410m", suites[-1].revisions[-1])
    return Problem(grid, names, features, price, 0.1 * price, baseline, "mean"), scores


def resident() -> float:
    """Peak resident memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def at_scale(chosen: Chosen) -> None:
    """Claim 4: an ask at 5,184 arms x 32 tasks, and the memory of the process."""
    size, decisions = ((72, 4), 20) if chosen.small else ((5184, 32), 2000)
    for load in (Load(*size, decisions), Load(*size, decisions, 32), Load(*size, decisions, 64)):
        costs = _measured(load, chosen.policy)
        print(f"{chosen.policy}, {costs.arms:,} arms x {load.tasks} tasks, {load.at_once} decisions at once")
        _print_asks(f"{len(costs.asks):,} asks", costs.asks)
        if load.at_once == 1:
            _print_asks("the last tenth", costs.asks[-len(costs.asks) // 10 :])
        print(f"  a tell: median {quantile(costs.tells, 0.5):.2f} ms, slowest {max(costs.tells):.1f} ms")
        print(f"  memory: {costs.after:.0f} MB at most, {costs.before:.0f} MB before the search (goal: 500 MB)\n")


def _measured(load: Load, policy: str) -> Costs:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_search_in_process, args=(load, policy, theirs))
    process.start()
    costs: Costs = ours.recv()
    process.join()
    return costs


def _print_asks(what: str, asks: Sequence[tuple[float, int]]) -> None:
    ms, (most, which) = [each for each, _ in asks], max(asks)
    spread = f"median {quantile(ms, 0.5):.1f} ms, p99 {quantile(ms, 0.99):.1f} ms, slowest {most:.1f} ms"
    print(f"  {what}, processor time per decision: {spread} (at decision {which:,}; goal: 50 ms)")


SECTIONS = {"budgets": found_by_budget, "cost": found_by_cost, "workers": on_workers, "scale": at_scale}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scores", type=Path, help="table of known scores; read as `daskmetrics replay` does")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--rival-seeds", type=int, help="of the policies beside it  [default: as many]")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--policy", default="race", help="the policy whose claims are checked")
    parser.add_argument("--only", choices=SECTIONS, action="append", help="one section; may be repeated")
    parser.add_argument("--small", action="store_true", help="a made-up table and two seeds")
    chosen = parser.parse_args(arguments)
    if chosen.small:
        known, seeds, jobs = made_up(), 2, 1
    else:
        known, seeds, jobs = _published(chosen.scores), chosen.seeds, chosen.jobs
    what = Chosen(known, seeds, chosen.rival_seeds or seeds, jobs, chosen.policy, chosen.small)
    for name in chosen.only or SECTIONS:
        SECTIONS[name](what)


def _published(scores: Path | None) -> Table:
    folder = os.environ.get("DASKMETRICS_PUBLISHED_DATA")
    if scores is None and folder is None:
        sys.exit("Name a table by --scores, or its folder by DASKMETRICS_PUBLISHED_DATA; or try --small.")
    path = scores or Path(str(folder)) / "published_scores.csv.gz"
    return read(path, [MODEL] if scores is None else [])


if __name__ == "__main__":
    main()
