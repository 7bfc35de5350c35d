"""Searches of known scores by the code of a live search: what a policy finds, and at what cost.

    python benchmarks/replay.py runs/demo --policy race --seeds 20
    python benchmarks/replay.py scores.csv --subset 16 --overhead 30 --costs unit

A table (CSV, TSV, JSON Lines or Parquet) has the columns ``layer``, ``task`` and ``score``, and where
known ``model`` (or ``family`` and ``size``), ``revision``, ``readout``, ``kind``, ``seconds`` and
``encode_seconds``, the part of the seconds that all layers of a checkpoint share. The folder of a run
has them all. Higher scores are better. Needs no GPU and no network.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import median_low

import numpy as np
from joblib import Parallel, delayed

from daskmetrics.bandit import (
    Budget,
    Learner,
    Outcome,
    Pick,
    Policy,
    Problem,
    Recommendation,
    arm_features,
    policy_named,
    recommend,
    task_weights,
)
from daskmetrics.bandit.costs import AssumedWorkers, useful_workers
from daskmetrics.bandit.model import measured_objectives
from daskmetrics.bandit.problem import ALL, Floats, numbered
from daskmetrics.core.errors import ConfigError, DaskmetricsError, DataError, unknown
from daskmetrics.core.rows import check_names, read_rows
from daskmetrics.core.table import Table
from daskmetrics.domain.events import scored
from daskmetrics.domain.names import Arm, Cell, Suite, grid, training_order
from daskmetrics.domain.readouts import Readout
from daskmetrics.report import Run

COSTS = ("published", "shared", "unit")
WITHIN = 0.01  # share of the best score that an arm may lose and count as found
ENCODED = 0.9  # share of a cell's seconds that is encoding, where a table does not say
COST_SHARES = (0.001, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # points of a curve


# --- known scores


@dataclass(frozen=True)
class ScoreRow:
    """One known score."""

    arm: Arm
    task: str
    score: float
    seconds: float = math.nan
    encode: float = 0.0  # the part of the seconds that all layers of a checkpoint share
    kind: str = ""


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores of a grid of arms on tasks, (A, T), NaN where there is none."""

    suites: tuple[Suite, ...]
    kinds: Mapping[str, str]  # of each task, in the order of the columns
    scores: Floats
    seconds: Floats  # NaN if unknown
    encode: Floats
    weights: Mapping[str, float] = field(default_factory=dict)
    objective: str = ALL

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        return grid(self.suites)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    @property
    def known(self) -> int:
        return int(np.isfinite(self.scores).sum())

    def cells(self) -> dict[Cell, float]:
        return {
            Cell(self.arms[arm], self.tasks[task]): float(self.scores[arm, task])
            for arm, task in np.argwhere(np.isfinite(self.scores))
        }

    def of_tasks(self, chosen: Sequence[str]) -> ScoreTable:
        columns = [i for i, task in enumerate(self.tasks) if task in chosen]
        return replace(
            self,
            kinds={task: kind for task, kind in self.kinds.items() if task in chosen},
            weights={task: weight for task, weight in self.weights.items() if task in chosen},
            scores=self.scores[:, columns],
            seconds=self.seconds[:, columns],
            encode=self.encode[:, columns],
        )


def score_table(rows: Iterable[ScoreRow]) -> ScoreTable:
    """Rows as a table; the layers and readouts of a model are those of all its checkpoints."""
    rows = list(rows)
    if not rows:
        raise DataError("The table contains no scores.")
    by_model: dict[str, list[Arm]] = {}
    for row in rows:
        by_model.setdefault(row.arm.model, []).append(row.arm)
    suites = tuple(_suite(model, arms) for model, arms in by_model.items())
    row_of = {arm: i for i, arm in enumerate(grid(suites))}
    # one of several joined tables may not say of which kind a task is
    kinds = {row.task: row.kind for row in sorted(rows, key=lambda row: bool(row.kind))}
    tasks = sorted(kinds)
    scores, seconds, encode = np.full((3, len(row_of), len(tasks)), np.nan)
    for row in rows:
        cell = row_of[row.arm], tasks.index(row.task)
        scores[cell], seconds[cell], encode[cell] = row.score, row.seconds, row.encode
    return ScoreTable(suites, {task: kinds[task] for task in tasks}, scores, seconds, encode)


def _suite(model: str, arms: Sequence[Arm]) -> Suite:
    layers = sorted({arm.layer for arm in arms})
    revisions = training_order({arm.revision for arm in arms})
    readouts = sorted({arm.readout for arm in arms})
    return Suite(model, revisions, tuple(layers), max(1, layers[-1]), tuple(readouts))


COLUMNS = (
    *("model", "revision", "layer", "readout", "task", "score"),
    *("seconds", "encode_seconds", "kind", "family", "size"),
)
PUBLISHED = {"main_score": "score", "evaluation_time": "seconds", "task_type": "kind"}
GREATEST = 1e15  # no score and no time is greater


def read(path: Path, models: Sequence[str] = ()) -> ScoreTable:
    """The scores of these models (by default of all) in a table or in the folder of a run."""
    search: Mapping[str, object] = {}
    if path.is_dir():
        run = Run(path)
        rows = _of_run(run)
        search = {name: run.config["search"][name] for name in ("objective", "weights")}
    elif path.is_file():
        rows = _of_table(path)
    else:
        raise ConfigError(f"No scores at '{path}': it is neither a table nor the folder of a run.")
    known = dict.fromkeys(row.arm.model for row in rows)
    for model in models:
        if model not in known:
            raise unknown("model", model, known)
    table = score_table(row for row in rows if not models or row.arm.model in models)
    return replace(table, **search).of_tasks(table.tasks)  # some weights may be of other tasks


def _of_run(run: Run) -> list[ScoreRow]:
    rows = []
    for record, result in scored(run.records):
        cell = Cell.parse(record.name)
        encode, kind = result.encode_seconds, run.kinds[cell.task]
        rows.append(
            ScoreRow(cell.arm, cell.task, result.score, record.seconds + encode, encode, kind)
        )
    if not rows:
        raise ConfigError(
            f"The run in '{run.folder.path}' has no scores. To score everything, run it with --set"
            " search.policy=sweep --set search.budget=1."
        )
    return sorted(rows, key=lambda row: run.models.index(row.arm.model))


def _of_table(path: Path) -> list[ScoreRow]:
    lines = list(read_rows(path))
    columns = dict.fromkeys(PUBLISHED.get(name, name) for _, values in lines for name in values)
    check_names(path, columns, COLUMNS)
    for column in ("layer", "task", "score"):
        if lines and column not in columns:
            raise ConfigError(
                f"'{path}' has no column '{column}'. Its columns: {', '.join(columns)}."
            )
    rows: dict[Cell, ScoreRow] = {}
    for place, values in lines:
        # our name of a column goes before that of the published table
        values = {PUBLISHED.get(name, name): value for name, value in values.items()} | dict(values)
        texts = {name: "" if value is None else str(value) for name, value in values.items()}
        given = {name: text for name, text in texts.items() if text.lower() not in ("", "nan")}
        if "score" not in given:
            continue
        try:
            row = _row_of(given)
        except ValueError as error:
            raise DataError(f"'{path}', {place}: {error}.") from None
        cell = Cell(row.arm, row.task)
        if cell in rows and rows[cell].score != row.score:
            scores = f"{rows[cell].score:g} and {row.score:g}"
            raise DataError(f"'{path}', {place}: {cell} has the scores {scores}. Remove one.")
        rows[cell] = row
    return list(rows.values())


def _row_of(given: Mapping[str, str]) -> ScoreRow:
    if "task" not in given:
        raise ValueError("there is no task")
    layer = _number(given, "layer")
    if not layer.is_integer():
        raise ValueError(f"'layer' is {layer:g}, and not a whole number")
    words = filter(None, (given.get("family"), given.get("size")))
    model = given.get("model") or "-".join(words) or "model"
    readout = str(Readout.parse(given.get("readout", "")))
    seconds = math.nan
    if "seconds" in given:
        seconds = _number(given, "seconds")
    return ScoreRow(
        Arm(model, given.get("revision", "main"), int(layer), readout),
        given["task"],
        _number(given, "score", least=-GREATEST),
        seconds,
        _number({"encode_seconds": "0", **given}, "encode_seconds"),
        given.get("kind", ""),
    )


def _number(given: Mapping[str, str], column: str, least: float = 0.0) -> float:
    text = given.get(column, "")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= GREATEST:
        raise ValueError(f"'{column}' is '{text}', and not a number from {least:g} to {GREATEST:g}")
    return number


# --- a table as a search


@dataclass(frozen=True)
class Scenario:
    """How a table becomes a search.

    The seconds of a cell are those of the table (``published``), the same with encodings paid once
    per checkpoint and task (``shared``), or one (``unit``); by default the most precise that the
    table allows. ``overhead`` is added to every cell, ``load`` is that of a checkpoint which no
    worker holds.
    """

    costs: str | None = None
    overhead: float = 0.0
    load: float = 0.0
    subset: int | None = None  # tasks that each seed draws

    def draw_tasks(self, table: ScoreTable, seed: int) -> ScoreTable:
        if self.subset is None:
            return table
        if not 0 < self.subset <= len(table.tasks):
            raise ConfigError(
                f"Cannot draw {self.subset} tasks: the table has {len(table.tasks)}. Choose a "
                "smaller subset."
            )
        order = np.random.default_rng(seed).permutation(sorted(table.tasks))
        return table.of_tasks(order[: self.subset].tolist())

    def build_problem(self, table: ScoreTable) -> Problem:
        encode, score = self._seconds(table)
        return Problem(
            arms=table.arms,
            tasks=table.tasks,
            features=arm_features(table.suites),
            encode_cost=encode,
            score_cost=score + self.overhead,
            weights=tuple(task_weights(table.kinds, table.objective, table.weights)),
            load_cost=np.full(len(table.arms), self.load),
            kinds=tuple(table.kinds.values()),
        )

    def _seconds(self, table: ScoreTable) -> tuple[Floats, Floats]:
        """Seconds to encode and to score, each (A, T)."""
        has_seconds = (table.seconds > 0).any()
        has_encodings = np.nansum(table.encode) > 0
        costs = self.costs
        if costs is None:
            costs = "published" if has_seconds else "unit"
            if has_seconds and has_encodings:
                costs = "shared"
        if costs == "unit":
            return np.zeros_like(table.scores), np.ones_like(table.scores)
        if not has_seconds:
            raise ConfigError(
                f"Costs '{costs}' need seconds above 0, which the table does not have. Use costs"
                " 'unit'."
            )
        seconds = _filled(table.seconds)
        if costs == "published":
            return np.zeros_like(seconds), seconds
        encode = ENCODED * seconds
        if has_encodings:
            encode = _filled(np.where(table.encode > 0, table.encode, np.nan))
        # equal for all layers of a checkpoint
        checkpoint = numbered([arm.checkpoint for arm in table.arms])
        shortest = np.full_like(encode, np.inf)
        np.minimum.at(shortest, checkpoint, encode)
        encode = shortest[checkpoint]
        return encode, np.maximum(seconds - encode, 0.0)


def _filled(seconds: Floats) -> Floats:
    """The seconds, with missing ones replaced by the mean of their task, or else of all."""
    is_given = np.isfinite(seconds)
    count = is_given.sum(axis=0)
    mean = np.where(is_given, seconds, 0.0).sum(axis=0) / np.maximum(count, 1)
    of_task = np.where(count > 0, mean, seconds[is_given].mean())
    return np.where(is_given, seconds, of_task)


def true_objectives(problem: Problem, table: Mapping[Cell, float]) -> Floats:
    """Weighted mean of every arm over the tasks with a known score (A,)."""
    outcomes = ((cell, Outcome(score)) for cell, score in table.items())
    return measured_objectives(problem, problem.observe(outcomes).by_cell())


def true_losses(table: ScoreTable, problem: Problem) -> Floats:
    """By which share of its mean raw score every arm is worse than the best one (A,).

    The best has the greatest objective of the arms with all scores; the loss of others is infinite.
    It is a difference where the best score is 0.
    """
    needed = problem.in_objective
    complete = np.isfinite(table.scores[:, needed]).all(axis=1)
    if not complete.any():
        raise DataError(
            f"No arm has a score on each of the {needed.sum()} tasks ({table.known} of "
            f"{table.scores.size} cells are known), so the best arm is unknown. Choose tasks or "
            "models for which the table is complete."
        )
    scores = np.where(needed, table.scores, 0.0)
    raw = np.where(complete, scores @ problem.objective_weights, np.nan)
    objectives = true_objectives(problem, table.cells())
    best = int(np.argmax(np.where(complete, objectives, -np.inf)))
    gap = raw[best] - raw
    if raw[best]:
        gap = gap / abs(raw[best])
    return np.where(complete, gap, np.inf)


# --- one search


@dataclass(frozen=True)
class ReplayStep:
    """A moment of a search; the confidence is NaN where it was not computed."""

    share: float  # of the exhaustive cost
    seconds: float  # on the simulated clock
    loss: float  # of the recommended arm
    confidence: float = math.nan  # stated probability that no other arm is better
    expected_loss: float = math.nan  # as a share of the arm's mean score
    most_lost: float = math.inf  # the same with 95 %; infinite if nothing was stated


@dataclass(frozen=True)
class SimulatedSearch:
    """Decisions, recommendation and moments of a search."""

    picks: tuple[Pick, ...]
    recommendation: Recommendation
    path: tuple[ReplayStep, ...]  # the last step is the recommendation


def simulate(
    problem: Problem,
    table: Mapping[Cell, float],
    policy: Policy,
    *,
    budget: float | Budget,
    seed: int,
    loss: Floats | None = None,
    every: int = 0,
    confidence_at: Sequence[float] = (),
    workers: int = 1,
    window: int | None = None,
    within: float = recommend.WITHIN,
) -> SimulatedSearch:
    """Run a search whose outcomes arrive when their cost, as a duration, has passed.

    A cell that is not in the table of raw scores fails. A step is recorded after ``every`` so many
    outcomes (0 records the end only), with its confidence at the first one at or after each share
    of the cost in ``confidence_at``. ``loss`` (A,) is by default in units of the score; the window
    is by default the number of workers; ``within`` is that of `Learner`.
    """
    if loss is None:
        truth = true_objectives(problem, table)
        loss = np.nanmax(truth) - truth
    learner = Learner(
        problem, policy, budget=budget, window=window or workers, seed=seed, within=within
    )
    pool = _SimulatedWorkers(problem, workers)
    path: list[ReplayStep] = []
    reported = 0
    passed = 0  # of the shares at which the confidence is computed
    while True:
        for pick in learner.ask(len(pool.schedule.held)):
            pool.start(*problem.locate(pick.cell))
        if reported == len(learner.picks):
            break
        if reported == len(pool.schedule.finished):
            pool.schedule.advance()
        pick = learner.picks[pool.schedule.finished[reported]]
        learner.tell(pick.index, Outcome(table.get(pick.cell)))
        reported += 1
        if not every or reported % every:
            continue
        stated = None
        passed_before = passed
        passed = sum(limit <= learner.spent / problem.exhaustive_cost for limit in confidence_at)
        if passed > passed_before and len(learner.state.observations):
            stated = learner.recommendation()
        path.append(_step(learner, pool.schedule.now, loss, stated))
    result = learner.recommendation()
    path.append(_step(learner, pool.schedule.now, loss, result))
    return SimulatedSearch(learner.picks, result, tuple(path))


def _step(
    learner: Learner, seconds: float, loss: Floats, stated: Recommendation | None
) -> ReplayStep:
    share = learner.spent / learner.problem.exhaustive_cost
    step = ReplayStep(share, seconds, float(loss[learner.state.recommended]))
    if stated is None:
        return step
    # no loss is a share of a mean score of 0
    score = abs(stated.best.value) or math.nan
    return replace(
        step,
        confidence=stated.probability_best,
        expected_loss=stated.expected_loss / score,
        most_lost=math.inf if stated.most_lost is None else stated.most_lost / score,
    )


class _SimulatedWorkers:
    """Workers on a clock, each with the checkpoint that it used last."""

    def __init__(self, problem: Problem, workers: int) -> None:
        self._problem = problem
        self._encoded: dict[tuple[int, int], float] = {}  # time at which the embeddings exist
        self.schedule = AssumedWorkers(workers)

    def start(self, arm: int, task: int) -> None:
        """Start a cell on an idle worker: load and encode if need be, wait, score."""
        problem, now = self._problem, self.schedule.now
        checkpoint = int(problem.checkpoint_index[arm])
        encoded = self._encoded.get((checkpoint, task))
        is_encoding = encoded is None
        if encoded is None:
            encoding = float(problem.encode_cost[arm, task])
            encoded = now + encoding
            if checkpoint not in self.schedule.held:
                encoded += float(problem.load_costs[arm])
            if encoding:
                self._encoded[checkpoint, task] = encoded
        waiting = max(0.0, encoded - now)
        scoring = float(problem.score_cost[arm, task])
        self.schedule.assign(checkpoint, waiting + scoring, is_encoding)


# --- many searches


@dataclass(frozen=True)
class Setting:
    """What differs between the trials that are compared."""

    policy: str
    workers: int = 1


@dataclass(frozen=True)
class ReplayTrial:
    """One search of a known table."""

    setting: Setting
    seed: int
    path: tuple[ReplayStep, ...]
    utilisation: float  # cost of the cells as a share of the workers' time

    def after(self, share: float) -> ReplayStep | None:
        """The last step that cost at most a share of the exhaustive cost."""
        steps = [step for step in self.path if step.share <= share * (1 + 1e-9)]
        return steps[-1] if steps else None


@dataclass(frozen=True, eq=False)
class ReplayPlan:
    """What all trials share; the last three are those of `simulate`."""

    table: ScoreTable
    scenario: Scenario
    budget: float  # share of the exhaustive cost
    every: int = 1
    confidence_at: tuple[float, ...] = ()
    within: float = recommend.WITHIN


def run_trials(
    plan: ReplayPlan, settings: Sequence[Setting], seeds: Sequence[int], jobs: int = 1
) -> Iterator[ReplayTrial]:
    """Every setting with every seed, in this order, whatever the number of processes."""
    # an unknown name fails here, and not in another process
    policies = {setting.policy: policy_named(setting.policy) for setting in settings}
    trials = (
        delayed(_run_trial)(plan, setting, seed, policies[setting.policy])
        for setting, seed in product(settings, seeds)
    )
    yield from Parallel(jobs, return_as="generator")(trials)


def _run_trial(plan: ReplayPlan, setting: Setting, seed: int, policy: Policy) -> ReplayTrial:
    table = plan.scenario.draw_tasks(plan.table, seed)
    problem = plan.scenario.build_problem(table)
    result = simulate(
        problem,
        table.cells(),
        policy,
        budget=plan.budget,
        seed=seed,
        loss=true_losses(table, problem),
        workers=setting.workers,
        window=int(min(setting.workers, useful_workers(setting.policy))),  # as a live search
        every=plan.every,
        confidence_at=plan.confidence_at,
        within=plan.within,
    )
    time = setting.workers * result.path[-1].seconds
    return ReplayTrial(setting, seed, result.path, result.recommendation.spent / time)


def curve(trials: Sequence[ReplayTrial], shares: Sequence[float]) -> list[tuple[float, int, float]]:
    """Each share of the cost, how many had found the best by then, and their median loss."""
    points = []
    for share in shares:
        steps = [trial.after(share) for trial in trials]
        losses = [step.loss if step else math.inf for step in steps]
        points.append((share, sum(loss <= WITHIN for loss in losses), median_low(losses)))
    return points


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scores", type=Path, help="a table, or the folder of a run")
    parser.add_argument("--policy", default="race", help="its name, or package.module:function")
    parser.add_argument("--seeds", type=int, default=20, help="number of searches")
    parser.add_argument("--budget", type=float, default=0.2, help="share of the cost of all scores")
    parser.add_argument("--models", default="", help="only these, separated by commas")
    parser.add_argument("--objective", help="all, a kind of task, or a task  [default: of the run]")
    parser.add_argument("--subset", type=int, help="number of tasks that each seed draws")
    parser.add_argument("--costs", choices=COSTS, help="[default: the most precise]")
    parser.add_argument("--overhead", type=float, default=0.0, help="seconds of every score")
    parser.add_argument("--workers", type=int, default=1, help="number of simulated workers")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    chosen = parser.parse_args(arguments)
    try:
        show(chosen)
    except DaskmetricsError as error:
        sys.exit(f"Error: {error}")


def show(chosen: argparse.Namespace) -> None:
    for name in ("seeds", "workers", "jobs"):
        if (number := getattr(chosen, name)) < 1:
            raise ConfigError(f"--{name} {number}: give 1 or more.")
    table = read(chosen.scores, [name.strip() for name in chosen.models.split(",") if name])
    if chosen.objective:
        table = replace(table, objective=chosen.objective)
    scenario = Scenario(chosen.costs, chosen.overhead, subset=chosen.subset)
    plan = ReplayPlan(table, scenario, chosen.budget)
    setting = Setting(chosen.policy, chosen.workers)
    trials = list(run_trials(plan, [setting], range(chosen.seeds), chosen.jobs))
    rows = []
    for share, found, loss in curve(
        trials, [*(s for s in COST_SHARES if s < plan.budget), plan.budget]
    ):
        lost = f"{loss:.2%}" if math.isfinite(loss) else "not known"
        rows.append((f"{share:.3g}", f"{found} of {len(trials)}", lost))
    best = table.arms[true_losses(table, scenario.build_problem(table)).argmin()]
    judged_on = "all tasks" if table.objective == ALL else table.objective
    title = (
        f"{len(table.arms):,} candidates x {len(table.tasks)} tasks, {table.known:,} of "
        f"{table.scores.size:,} scores known; the best on {judged_on} is {best}"
    )
    header = ("share of the cost", f"within {WITHIN:.0%} of the best", "median loss")
    print(Table(header, rows, title).as_text())


if __name__ == "__main__":
    main()
