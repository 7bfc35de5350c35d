"""Benchmark of the search on published scores: success rate by cost, time on many workers, and
confidence.

It needs a table of scores (``--scores``, or the folder in DASKMETRICS_PUBLISHED_DATA). Each section
runs the code of a live search; costs and clock are the table's seconds. ``--small`` uses a made-up
table and two seeds.
"""

from __future__ import annotations

import argparse
import heapq
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from replay import (
    COST_SHARES,
    ReplayPlan,
    ReplayStep,
    ReplayTrial,
    Scenario,
    ScoreRow,
    ScoreTable,
    Setting,
    read,
    run_trials,
    score_table,
    simulate,
    true_losses,
)
from replay_statistics import (
    CONFIDENCE_AT,
    Rate,
    by_setting,
    confidence_table,
    quantile,
    success,
    success_table,
    until_found,
)
from rivals import replaced

from daskmetrics.bandit import Learner, Outcome, Problem, arm_features, policy_named
from daskmetrics.core.table import Table
from daskmetrics.domain.names import Arm, Suite

MODEL = "Pythia-410m"
BY_CELL = ("race", "policies:lucb", "policies:halving", "random")
BY_ARM = ("policies:gp_ei", "policies:linucb", "rivals:tpe")
OWN_BUDGET, RIVAL_BUDGET = 0.02, 0.1  # of the policy under test, and of the others, which need more
CONFIDENT = 0.9  # the stated confidence that is compared with the truth


@dataclass(frozen=True)
class Question:
    """A problem, and how many of 100 searches should find the best arm after which shares of the
    cost.
    """

    name: str
    about: str
    scenario: Scenario
    goals: dict[float, int]


RIVALLED = (
    Question("all 32", "all 32 tasks, published costs", Scenario("published"), {0.003: 99}),
    Question(
        "R16 + 30 s",
        "16 random tasks per seed, published costs + 30 s per pull",
        Scenario("published", overhead=30, subset=16),
        {0.01: 92, 0.02: 98},
    ),
    Question("all 32, unit", "all 32 tasks, unit costs", Scenario("unit"), {0.01: 83, 0.02: 98}),
    Question(
        "R16, unit",
        "16 random tasks per seed, unit costs",
        Scenario("unit", subset=16),
        {0.01: 83, 0.02: 98},
    ),
)
OTHERS = (
    Question(
        "R16, shared",
        "R16, nine tenths of a cost a shared encoding",
        Scenario("shared", subset=16),
        {0.01: 0},
    ),
    Question(
        "R16, shared + load",
        "the same, 30 s per load",
        Scenario("shared", load=30, subset=16),
        {0.01: 0},
    ),
)


@dataclass(frozen=True)
class Chosen:
    """What to run."""

    known: ScoreTable
    seeds: int
    rival_seeds: int
    jobs: int
    policy: str
    small: bool

    def scenario(self, question: Question) -> Scenario:
        scenario = question.scenario
        return replace(scenario, subset=scenario.subset and 3) if self.small else scenario

    def tested(
        self, question: Question, budget: float, workers: Sequence[int] = (1,)
    ) -> list[ReplayTrial]:
        """Searches by the policy under test."""
        plan = ReplayPlan(
            self.known,
            self.scenario(question),
            0.3 if self.small else budget,
            every=2,
            confidence_at=CONFIDENCE_AT[::2],
        )
        return list(
            run_trials(
                plan, [Setting(self.policy, n) for n in workers], range(self.seeds), self.jobs
            )
        )

    def rivals(self, question: Question) -> Iterator[ReplayTrial]:
        """Searches by all other policies, without their confidence."""
        plan = ReplayPlan(
            self.known,
            self.scenario(question),
            0.3 if self.small else RIVAL_BUDGET,
            within=0.0,
        )
        seeds = range(self.rival_seeds)
        by_cell = [Setting(policy) for policy in BY_CELL if policy != self.policy]
        yield from run_trials(replace(plan, every=8), by_cell, seeds, self.jobs)
        by_arm = replace(plan, every=len(self.known.tasks) // 2)
        yield from run_trials(by_arm, [Setting(policy) for policy in BY_ARM], seeds, self.jobs)
        yield from (replaced(plan, seed) for seed in seeds)


def made_up() -> ScoreTable:
    """A small table with one best region, for ``--small``."""
    rng = np.random.default_rng(0)
    rows = []
    for t in range(6):
        for layer in range(5):
            quality = 0.5 + 0.05 * t - 0.03 * (layer - 3) ** 2
            for i, seconds in enumerate((1.0, 5.0, 60.0, 300.0)):
                score = quality + rng.normal(0, 0.003)
                rows.append(
                    ScoreRow(Arm(MODEL, f"step{4**t}", layer), f"task{i}", score, seconds=seconds)
                )
    return score_table(rows)


def show(table: Table) -> None:
    print(table.as_text(), "\n", flush=True)


def found_by_budget(chosen: Chosen) -> None:
    """Claims 1 and 3 in short: each search is given exactly the budget in question."""
    tested: list[ReplayTrial] = []
    rows = []
    for question in (*RIVALLED, *OTHERS):
        for share, goal in question.goals.items():
            trials = chosen.tested(question, share)
            tested += trials
            confident = [trial for trial in trials if trial.path[-1].confidence >= CONFIDENT]
            rates = success(trials, 1.0), success(confident, 1.0)
            found, true = (f"{rate.hits} of {rate.of}" for rate in rates)
            rows.append((question.about, f"{share:.1%}", str(goal or ""), found, true))
            print(*rows[-1], sep="; ", flush=True)
    header = (
        "problem",
        "budget",
        "goal of 100",
        "found",
        f"found, of those with a confidence of {CONFIDENT:.0%} or more",
    )
    show(Table(header, tuple(rows), f"{chosen.policy}: found within a budget"))
    show(confidence_table(tested))


def found_by_cost(chosen: Chosen) -> None:
    """Claims 1 and 3: every policy under four costs; then the calibration of its confidence."""
    tested: list[ReplayTrial] = []
    every: dict[tuple[str, float], dict[str, Rate]] = {}
    for question in RIVALLED:
        print(question.about)
        trials = chosen.tested(question, OWN_BUDGET)
        show(confidence_table(trials))
        tested += trials
        trials += chosen.rivals(question)
        show(success_table(trials, [share for share in COST_SHARES if share <= RIVAL_BUDGET]))
        groups = by_setting(trials).items()
        for share in question.goals:
            every[question.name, share] = {
                setting: success(each, share) for setting, each in groups
            }
    show(_side_by_side(every))
    show(confidence_table(tested))


def _side_by_side(every: Mapping[tuple[str, float], Mapping[str, Rate]]) -> Table:
    """A row per policy, a column per question and share of the cost with a goal."""
    goals = {question.name: question.goals for question in RIVALLED}
    settings = list(next(iter(every.values())))
    rows = [
        (setting, *(f"{rates[setting].hits}/{rates[setting].of}" for rates in every.values()))
        for setting in settings
    ]
    rows.append(("goal", *(f"{goals[name][share]}/100" for name, share in every)))
    header = ("policy", *(f"{name}: {share:.1%}" for name, share in every))
    return Table(header, tuple(rows), "Within 1 % of the best after a share of the exhaustive cost")


def on_workers(chosen: Chosen) -> None:
    """Claim 2: 32 workers on R16 with 30 s per pull, compared with one arm at a time with its tasks
    in parallel.
    """
    pulled = RIVALLED[1]
    loaded = replace(pulled, scenario=replace(pulled.scenario, overhead=0.0, load=30.0))
    rows = []
    for label, question, numbers in (
        ("30 s per pull", pulled, (1, 8, 32)),
        ("30 s per load", loaded, (32,)),
    ):
        trials = chosen.tested(question, 0.02, numbers)
        rows += [
            _speed(f"{setting}, {label}", each) for setting, each in by_setting(trials).items()
        ]
    plan = ReplayPlan(chosen.known, chosen.scenario(pulled), RIVAL_BUDGET)
    every = [
        trial
        for seed in range(chosen.rival_seeds)
        for trial in one_arm_at_a_time(plan, "policies:gp_ei", seed, (8, 32))
    ]
    rows += [
        _speed(f"one arm at a time, {setting}, 30 s per pull", group)
        for setting, group in by_setting(every).items()
    ]
    header = (
        "R16",
        "median h",
        "p90 h",
        "lasting h",
        "p90 h",
        "busy",
        "end h",
        "seeds",
    )
    note = "goal at 32 workers, 30 s per load: 0.03 h in the median, 0.12 h at the 90th percentile"
    show(
        Table(
            header, tuple(rows), "Hours until within 1 % of the best: first, and for good", (note,)
        )
    )


def _speed(name: str, trials: Sequence[ReplayTrial]) -> tuple[str, ...]:
    first, lasting = (
        until_found(trials, lambda step: step.seconds / 3600, each) for each in (False, True)
    )
    hours = [quantile(values, q) for values in (first, lasting) for q in (0.5, 0.9)]
    busy = statistics.mean(trial.utilisation for trial in trials)
    end = quantile([trial.path[-1].seconds / 3600 for trial in trials], 0.5)
    return (
        name,
        *(f"{h:.3f}" for h in hours),
        f"{busy:.2f}",
        f"{end:.3f}",
        str(len(trials)),
    )


def one_arm_at_a_time(
    plan: ReplayPlan, policy: str, seed: int, numbers: Sequence[int]
) -> list[ReplayTrial]:
    """The parallelism of the replaced design: all tasks of one arm at once, and a barrier before
    the next arm.

    The order of the arms does not depend on the number of workers. Each cell pays for its load, as
    each worker does.
    """
    known = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(known)
    loss = true_losses(known, problem)
    ran = simulate(
        problem,
        known.cells(),
        policy_named(policy),
        budget=plan.budget,
        seed=seed,
        loss=loss,
        every=1,
    )
    arms = list(_arms(ran.picks))
    steps = [ran.path[last] for last, _ in arms]
    trials = []
    for workers in numbers:
        clock = np.cumsum([_makespan(costs, workers) for _, costs in arms])
        busy = sum(pick.cost for pick in ran.picks) / (workers * float(clock[-1]))
        path = (
            ReplayStep(step.share, float(now), step.loss)
            for step, now in zip(steps, clock, strict=True)
        )
        trials.append(ReplayTrial(Setting(policy, workers), seed, tuple(path), busy))
    return trials


def _arms(picks: Sequence[Any]) -> Iterator[tuple[int, list[float]]]:
    """For one arm after the other: the number of its last cell, and the costs of its cells."""
    costs: list[float] = []
    for pick, following in zip(picks, [*picks[1:], None], strict=True):
        costs.append(pick.cost)
        if following is None or following.cell.arm != pick.cell.arm:
            yield pick.index, costs
            costs = []


def _makespan(costs: Sequence[float], workers: int) -> float:
    free = [0.0] * workers
    for cost in sorted(costs, reverse=True):  # longest first, the best order for this design
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


@dataclass(frozen=True)
class Load:
    """A search at scale: arms, tasks, decisions in total and at once, and what it may leave to
    gain.
    """

    arms: int
    tasks: int
    decisions: int
    at_once: int = 1
    within: float = 0.0


@dataclass(frozen=True)
class Timings:
    """Processor ms of every ask (per decision, with the number of its first one) and of every tell;
    memory in MB.
    """

    arms: int
    asks: Sequence[tuple[float, int]]
    tells: Sequence[float]
    before: float
    after: float


def _search_in_process(load: Load, policy: str, pipe: Any) -> None:
    problem, scores = _large(load)
    before = resident()
    search = Learner(
        problem,
        policy_named(policy),
        budget=0.5,
        window=load.at_once,
        seed=0,
        within=load.within,
    )
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
    pipe.send(Timings(len(problem.arms), asks, tells, before, resident()))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    result = call()
    return result, 1000 * (time.process_time() - started)


def _large(load: Load) -> tuple[Any, Any]:
    """Three models, and scores (A, T) with one best region."""
    layers = {"14m": 6, "70m": 6, "410m": 24}
    revisions = max(2, load.arms // sum(layers.values()))
    suites = [
        Suite(
            name,
            tuple(f"step{s}" for s in range(0, 1000 * revisions, 1000)),
            tuple(range(1, depth + 1)),
            depth,
        )
        for name, depth in layers.items()
    ]
    features = arm_features(suites)
    rng = np.random.default_rng(1)
    price = rng.lognormal(sigma=1.5, size=load.tasks) * np.ones((len(features), 1))
    quality = -((features[:, 0] - 0.8) ** 2) - (features[:, 1] - 0.7) ** 2
    scores = 0.6 + 0.2 * quality[:, None] + rng.normal(scale=0.01, size=price.shape)
    names = tuple(f"task{i}" for i in range(load.tasks))
    grid = tuple(arm for suite in suites for arm in suite.arms())
    return Problem(grid, names, features, price, 0.1 * price), scores


def resident() -> float:
    """Peak resident memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return (
        int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
        / 1024
    )


def at_scale(chosen: Chosen) -> None:
    """Claim 4: an ask at 5,184 arms x 32 tasks and at 50,000 x 50, and the memory of the process."""
    size, decisions = ((72, 4), 20) if chosen.small else ((5184, 32), 2000)
    # never reached, computed at every decision
    all_but_certain = Load(*size, decisions, within=1e-9)
    loads = (
        Load(*size, decisions),
        Load(*size, decisions, 32),
        Load(*size, decisions, 64),
        all_but_certain,
    )
    for load in loads if chosen.small else (*loads, Load(50_000, 50, 300)):
        timings = _measured(load, chosen.policy)
        stop = ", with the stop" if load.within else ""
        print(
            f"{chosen.policy}, {timings.arms:,} arms x {load.tasks} tasks, {load.at_once} decisions at once{stop}"
        )
        _print_asks(f"{len(timings.asks):,} asks", timings.asks)
        if load.at_once == 1:
            _print_asks("the last tenth", timings.asks[-len(timings.asks) // 10 :])
        print(
            f"  a tell: median {quantile(timings.tells, 0.5):.2f} ms, slowest {max(timings.tells):.1f} ms"
        )
        print(
            f"  memory: {timings.after:.0f} MB at most, {timings.before:.0f} MB before the search\n"
        )


def _measured(load: Load, policy: str) -> Timings:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_search_in_process, args=(load, policy, theirs))
    process.start()
    timings: Timings = ours.recv()
    process.join()
    return timings


def _print_asks(label: str, asks: Sequence[tuple[float, int]]) -> None:
    ms, (most, which) = [each for each, _ in asks], max(asks)
    spread = (
        f"median {quantile(ms, 0.5):.1f} ms, p99 {quantile(ms, 0.99):.1f} ms, slowest {most:.1f} ms"
    )
    print(f"  {label}, processor time per decision: {spread} (at decision {which:,})")


SECTIONS = {
    "budgets": found_by_budget,
    "cost": found_by_cost,
    "workers": on_workers,
    "scale": at_scale,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scores", type=Path, help="table of known scores; read as replay.py does")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument(
        "--rival-seeds", type=int, help="seeds of the other policies  [default: as many]"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--policy", default="race", help="the policy under test")
    parser.add_argument(
        "--only", choices=SECTIONS, action="append", help="run only this section; may be repeated"
    )
    parser.add_argument("--small", action="store_true", help="use a made-up table and two seeds")
    chosen = parser.parse_args(arguments)
    if chosen.small:
        known, seeds, jobs = made_up(), 2, 1
    else:
        known, seeds, jobs = _published(chosen.scores), chosen.seeds, chosen.jobs
    beside = seeds if chosen.rival_seeds is None else chosen.rival_seeds
    options = Chosen(known, seeds, beside, jobs, chosen.policy, chosen.small)
    for name in chosen.only or SECTIONS:
        SECTIONS[name](options)


def _published(scores: Path | None) -> ScoreTable:
    folder = os.environ.get("DASKMETRICS_PUBLISHED_DATA")
    if scores is None and folder is None:
        sys.exit(
            "No table: name one with --scores, or set DASKMETRICS_PUBLISHED_DATA to its folder, or use --small."
        )
    path = scores or Path(str(folder)) / "published_scores.csv.gz"
    return read(path, [MODEL] if scores is None else [])


if __name__ == "__main__":
    main()
