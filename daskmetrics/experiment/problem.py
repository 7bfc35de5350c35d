"""The problem of a search: its candidates and tasks, what scores cost, and what it may spend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from daskmetrics import config
from daskmetrics.bandit import Budget, Learner, Problem, least_budget, problem_of
from daskmetrics.bandit.problem import with_checkpoints
from daskmetrics.config import Protocol
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.text import duration, plural
from daskmetrics.domain.costs import CHARACTERS_PER_TOKEN, UNKNOWN_TASK, CostModel, TextSize
from daskmetrics.domain.names import Suite, grid
from daskmetrics.domain.readouts import Readout
from daskmetrics.execution import Record
from daskmetrics.experiment.prefetch import rate
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task

FEW_CHECKPOINTS = 3  # of which every score is computed with `budget: auto`
SMALL_COST = 300.0  # assumed seconds of all scores, below which the same holds
USUAL_SHARE = 0.3  # of the cost of every score that `budget: auto` allows elsewhere


def measured_problem(experiment: Experiment, records: Iterable[Record]) -> Problem:
    """The search problem of the arms that were measured.

    Raises
    ------
    DaskmetricsError
        If there is none.
    """
    records = tuple(records)
    measured = experiment.plan.measured(records)
    if not measured:
        reasons = [f"{record.name}: {record.reason}" for record in records if not record.ok]
        raise DaskmetricsError(
            "No checkpoint could be measured, so there is nothing to search. Remove the cause, then"
            " try again with 'daskmetrics runs retry RUN' and the same command. The latest"
            f" failure: {''.join(reasons[-1:])}"
        )
    costs = CostModel(experiment.config.search.device, rate(records))
    return build_problem(
        experiment, with_checkpoints(experiment.plan.suites, measured), costs, True
    )


def build_problem(
    experiment: Experiment,
    suites: Sequence[Suite] = (),
    costs: CostModel | None = None,
    read: bool = False,
    fresh: bool = False,
) -> Problem:
    """The search problem of these suites, by default of all.

    It is a preview unless it may ``read`` the tasks' data, which is then fetched. By default costs
    are those of the configured device. With ``fresh`` the tasks are those of the items kept back.

    An encoding gives all readouts of a checkpoint; what scoring takes follows the dimensions.
    """
    plan = experiment.plan
    tasks, about = experiment.tasks, plan.tasks
    if fresh:
        tasks, about = experiment.fresh, plan.fresh
    suites = suites or plan.suites
    arms = grid(suites)
    baseline = experiment.baseline
    if baseline not in {arm.checkpoint for arm in arms}:
        baseline = None  # it could not be measured
    sizes = [task_size(task, experiment.config.protocol, read) for task in tasks]
    assumed = costs or CostModel(experiment.config.search.device)

    @cache
    def seconds(model: str, readout: str) -> tuple[list[float], list[float]]:
        hidden = plan.widths[model]
        width = Readout.parse(readout).width(hidden)
        return (
            [assumed.encode_seconds(hidden, plan.by_model[model].depth, size) for size in sizes],
            [assumed.score_seconds(width, size) for size in sizes],
        )

    encode, score = np.empty((2, len(arms), len(sizes)))  # seconds (arms, tasks)
    for i, arm in enumerate(arms):
        encode[i], score[i] = seconds(arm.model, arm.readout)
        rolling = experiment.locations[arm.checkpoint].rolling
        if rolling:  # it may be gone when it is needed again
            encode[i] += assumed.download_seconds(rolling.bytes)
    return problem_of(suites, about, encode, score, baseline)


def task_size(task: Task, protocol: Protocol, read: bool) -> TextSize:
    """The amount of text of a task.

    It is assumed if its data is not on this machine and ``read`` is false.
    """
    listed = task.statistics
    if listed:  # by a benchmark, whether its data is local or not
        tokens = listed.characters / CHARACTERS_PER_TOKEN
        longest = min(protocol.max_length, tokens / max(1, listed.texts))
        return TextSize(listed.texts, tokens, longest)
    if not (read or task.is_local):
        return UNKNOWN_TASK
    return TextSize.of(map(len, task.texts()), protocol.max_length)


def automatic_budget(problem: Problem) -> tuple[float, str]:
    """The share that `search.budget: auto` allows, and the reason.

    It is a share of the cost of every score. Where the grid is small, scoring everything is the
    best search.
    """
    checkpoints = len(np.unique(problem.checkpoint_index))
    exhaustive = problem.exhaustive_cost
    first_look = least_budget(problem) / exhaustive
    share = 1.0
    allowed = "every score"
    reason = f"all scores take about {duration(exhaustive)} (estimated)"
    if checkpoints <= FEW_CHECKPOINTS:
        reason = f"the grid is small: {plural(checkpoints, 'checkpoint')}"
    elif exhaustive > SMALL_COST and 2 * first_look >= 1:
        reason = f"a first look at every model takes {first_look:.0%} of that"
    elif exhaustive > SMALL_COST:
        share = max(USUAL_SHARE, 2 * first_look)
        allowed = f"{share:.0%} of the cost of every score"
    return share, f"auto: {allowed}, since {reason}"


def budget(search: config.Search, problem: Problem, grows: bool = False) -> Budget:
    """The budget of a search: its smallest configured limit.

    That of a problem that grows pays at least for one arm on all tasks, and for a first look at
    every model: a share of a single checkpoint may pay for no cell.
    """
    share = automatic_budget(problem)[0] if search.budget == "auto" else search.budget
    if grows:
        first_cells = max(float(problem.arm_cost.min()), least_budget(problem))
        share = max(share, first_cells / problem.exhaustive_cost * (1 + 1e-6))
    return Budget(min(1.0, share), None, search.cells)


def check(experiment: Experiment) -> None:
    """Check that the budget pays for a score of every model.

    It is checked as far as the sizes of the tasks are known. With many readouts or layers and one
    checkpoint, most of the cost is one encoding. A user's policy is asked once, since it may be any
    function.
    """
    if not experiment.tasks or not all(task.is_local for task in experiment.tasks):
        return
    preview = build_problem(experiment)
    if ":" in experiment.config.search.policy:
        # after a first look at every model, which the policy does not choose
        decisions = 1 + len(preview.models)
        Learner(
            preview, experiment.policy, budget=1.0, window=decisions, seed=experiment.config.seed
        ).ask(decisions)
    budget(experiment.config.search, preview).require_cover(preview)
