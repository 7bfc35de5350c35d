"""The second source of work: the search's picks as score units; picks of one checkpoint and task
share an encoding.

With `search.confirm: fresh` the finalists are scored on items that were kept back. The search has
chosen its arm by its scores, so the score of that arm is too high on average, the more so the more
arms there are. The items kept back have not influenced the choice, so scores on them are unbiased
by it.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count, product, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from daskmetrics import config
from daskmetrics.bandit import (
    Budget,
    Learner,
    Outcome,
    Pick,
    Problem,
    Recommendation,
    arm_features,
    least_budget,
)
from daskmetrics.bandit.costs import PaidCosts, useful_workers
from daskmetrics.bandit.problem import with_checkpoints
from daskmetrics.checkpoints.rolling import Downloads
from daskmetrics.config import Protocol
from daskmetrics.core import events
from daskmetrics.core.costs import CHARACTERS_PER_TOKEN, UNKNOWN_TASK, CostModel, TextSize
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.events import (
    Event,
    PosteriorUpdated,
    RunStarted,
    SearchEnded,
    UnitAsked,
    is_finished,
    standing,
)
from daskmetrics.core.names import Arm, Cell, Key, Suite, grid, seed_of
from daskmetrics.core.outcomes import difference, mean_difference
from daskmetrics.core.readouts import Readout
from daskmetrics.core.results import Scored
from daskmetrics.core.serialization import build
from daskmetrics.core.text import duration, plural
from daskmetrics.execution import Record, WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.prefetch import rate
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task
from daskmetrics.tasks.mteb import MtebTask

MIN_OPEN = 8  # decisions; a few workers more or less do not change the search
#: bytes of encodings that are kept for further layers of their checkpoints: those in the memory of
#: workers, and those in files, which also leave three quarters of the disk free
KEPT_IN_MEMORY = 2**30
KEPT_IN_FILES = 2**34
ALWAYS_KEPT = 4  # encodings, however large
FEW_CHECKPOINTS = 3  # of which every score is computed with `budget: auto`
SMALL_COST = 300.0  # assumed seconds of all scores, below which the same holds
USUAL_SHARE = 0.3  # of the cost of every score that `budget: auto` allows elsewhere
NORMAL_95 = 1.645  # one-sided 95 % quantile of the normal distribution

#: arms that are scored at most on fresh items: the leader, arms that are within its error, and the
#: default arm
FINALISTS = 5
#: standard errors of a paired difference, within which an arm counts as good as the leader
TIED = 2.0


class SearchSource:
    """Converts the picks of a learner into work units, and their records into outcomes.

    A resumed search returns the decisions of the interrupted search again, in order, before it
    makes new ones. ``downloads`` fetch the checkpoints of its units; those that are ``recorded`` need
    none, and no encoding.
    """

    def __init__(
        self,
        experiment: Experiment,
        learner: Learner,
        key: Key,
        scratch: Path,
        downloads: Downloads,
        recorded: Collection[Key],
    ) -> None:
        self.experiment = experiment
        self.learner = learner
        self.key = key
        self.scratch = scratch
        self._downloads = downloads
        self._recorded = recorded
        self._decided = list(learner.open)  # before an interruption
        self._running: dict[Key, tuple[Pick, Key]] = {}  # with the key of the encoding
        self._kept: dict[Key, int] = {}  # bytes of each encoding that is kept, the latest last
        free = shutil.disk_usage(scratch.parent).free
        self._room_in_files = min(KEPT_IN_FILES, free // 4)

    def ask(self, n: int) -> Sequence[WorkUnit]:
        picks = self._decided[:n]
        self._decided = self._decided[n:]
        picks += self.learner.ask(n - len(picks))
        units = []
        needed = []
        for pick in picks:
            arm = pick.cell.arm
            task = self.experiment.by_task[pick.cell.task]
            note = {"search": self.key, "seed": self.learner.seed, "pick": pick.as_dict()}
            kind = "look" if task in self.experiment.looks else "score"
            unit = score_unit(self.experiment, arm, task, self.scratch, kind, note)
            self._running[unit.key] = pick, self.experiment.encode_key(arm.checkpoint, task)
            units.append(unit)
            if unit.key not in self._recorded:
                needed.append(self.experiment.locations[arm.checkpoint].rolling)
        self._downloads.expect(needed)
        return units

    def tell(self, record: Record) -> Sequence[Key]:
        pick, used = self._running.pop(record.key)
        outcome = Outcome(None, 0.0)
        size = self._kept.get(used, 0)
        if isinstance(record.value, Scored):
            outcome = Outcome(record.value.score, record.value.stderr)
            size = record.value.bytes
        self.learner.tell(pick.index, outcome)
        if record.key in self._recorded:
            return []
        self._kept.pop(used, None)  # the latest comes last
        self._kept[used] = size
        return self._release()

    def _release(self) -> list[Key]:
        """Remove the encodings that no running unit needs, except the latest of which the memory
        and the disk hold enough; returns the removed ones.
        """
        needed = {encoding for _, encoding in self._running.values()}
        room = {"memory": KEPT_IN_MEMORY, "files": self._room_in_files}
        released = []
        for number, (key, size) in enumerate(reversed(self._kept.items())):
            place = "files" if size > worker.MEMORY else "memory"
            room[place] -= size
            if room[place] < 0 and number >= ALWAYS_KEPT and key not in needed:
                released.append(key)
        for key in released:
            worker.remove(self.scratch, key)
            del self._kept[key]
        return released


def score_unit(
    experiment: Experiment, arm: Arm, task: Task, scratch: Path, kind: str, note: Mapping[str, Any]
) -> WorkUnit:
    """The unit that scores an arm on a task; its input, the encoding, is shared by all arms of the
    checkpoint.
    """
    checkpoint = arm.checkpoint
    timeout = experiment.config.cluster.timeout
    suite = experiment.by_model[arm.model]
    spec = worker.EncodeSpec(
        key=experiment.encode_key(checkpoint, task),
        location=experiment.locations[checkpoint],
        protocol=experiment.protocols[checkpoint],
        task=task,
        layers=suite.layers_read,
        scratch=str(scratch),
        poolings=suite.poolings,
        corpus=experiment.prompts if suite.is_fitted else (),
        sized=not experiment.metrics,
    )
    encode = WorkUnit(
        key=spec.key,
        name=f"{checkpoint}:{task.name}",
        kind="encode",
        function=worker.encode,
        args=(spec,),
        resources={"GPU": 1},
        timeout=timeout,
        keeps=str(checkpoint),
    )
    key = experiment.score_key(arm, task)
    # of the task and the run, so that equal vectors score equally
    seed = seed_of("score", task.key, experiment.config.seed)
    protocol = experiment.protocols[checkpoint]
    if isinstance(task, MtebTask) and protocol.shipped:
        task = task.compared_by(protocol.shipped.similarity)
    return WorkUnit(
        key=key,
        name=str(Cell(arm, task.name)),
        kind=kind,
        function=worker.score,
        args=(task, arm.layer, seed, protocol.key, arm.readout),
        resources={experiment.scored_on: 1},
        timeout=timeout,
        input=encode,
        note=note,
    )


def check(experiment: Experiment) -> None:
    """Check that the budget pays for a first look at every model, as far as the sizes of the tasks
    are known.

    With many readouts or layers and one checkpoint, most of the cost is one encoding. A user's
    policy is asked once, since it may be any function.
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


def automatic_budget(problem: Problem) -> tuple[float, str]:
    """What `search.budget: auto` allows: a share of the cost of every score, and the same in words,
    with the reason. Where the grid is small, scoring everything is the best search.
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
    """The budget of a search; the smallest of the configured limits applies.

    That of a problem that grows pays at least for one arm on all tasks, and for a first look at
    every model: a share of a single checkpoint may pay for no cell.
    """
    share = automatic_budget(problem)[0] if search.budget == "auto" else search.budget
    if grows:
        first_cells = max(float(problem.arm_cost.min()), least_budget(problem))
        share = max(share, first_cells / problem.exhaustive_cost * (1 + 1e-6))
    return Budget(min(1.0, share), None, search.cells)


def window(experiment: Experiment, entries: Iterable[Event]) -> int:
    """The number of decisions that may be open: as configured, else as this run began, else enough
    for its workers.

    Of many workers only as many count as its policy can use. The window changes the decisions. A
    run that resumes with more or fewer workers therefore keeps its window.
    """
    config = experiment.config
    used = min(config.cluster.workers, useful_workers(config.search.policy))
    return fixed_window(experiment, entries) or max(MIN_OPEN, int(used))


def fixed_window(experiment: Experiment, entries: Iterable[Event]) -> int | None:
    """The `window` if it is configured or the run has begun; None if the number of workers
    determines it.
    """
    starts = (entry for entry in entries if isinstance(entry, RunStarted))
    begun = (start.window for start in starts if start.key == experiment.key)
    return experiment.config.search.window or next(begun, None)


def decided(entries: Iterable[Event], key: Key) -> list[Pick]:
    """The decisions of an interrupted search in the journal, up to the first that is missing."""
    notes = (entry.note for entry in entries if isinstance(entry, UnitAsked))
    picks = {note["pick"]["index"]: note["pick"] for note in notes if note.get("search") == key}
    without_gap = takewhile(picks.__contains__, count())
    return [build(Pick, picks[index]) for index in without_gap]


def carried_on(
    experiment: Experiment, problem: Problem, decided: Sequence[Pick], records: Iterable[Record]
) -> list[Pick]:
    """The decisions of a search, then the cells that earlier searches of a growing run have paid
    for, in their order.

    The search counts them as decisions of its own whose outcomes are known: it pays for none again,
    and what they cost is part of its budget.
    """
    cells = {
        experiment.score_key(arm, task): Cell(arm, task.name)
        for arm, task in product(problem.arms, map(experiment.by_task.__getitem__, problem.tasks))
    }
    decided_cells = {pick.cell for pick in decided}
    recorded = (cells[record.key] for record in records if record.key in cells)
    earlier = [cell for cell in recorded if cell not in decided_cells]
    why = {"search": "of a smaller grid"}
    picks = list(decided)
    for i, cell in enumerate(earlier, len(decided)):
        picks.append(Pick(i, cell, "search", 0.0, why, known=i))
    return picks


def posterior(experiment: Experiment, learner: Learner) -> PosteriorUpdated:
    """The posterior of every arm at this moment, for the dashboard."""
    state = learner.state
    scored = state.posterior.without_pending()
    best = state.recommended
    index = {arm: i for i, arm in enumerate(experiment.arms)}
    columns = [index[arm] for arm in learner.problem.arms]
    values = np.full((2, len(index)), np.nan, np.float32)
    values[:, columns] = scored.mean, scored.sd
    bound = scored.mean + NORMAL_95 * scored.sd
    bound = np.where(state.usable, bound, -np.inf)
    others = np.delete(bound, best)
    shortfall = others.max(initial=-np.inf) - scored.mean[best]
    return PosteriorUpdated(
        values=values.tobytes(),
        leader=str(learner.problem.arms[best]),
        shortfall=float(max(0.0, shortfall)),
    )


def problem(experiment: Experiment, records: Iterable[Record]) -> Problem:
    """The problem of the search: the arms that were measured, their features, and the assumed cost
    of each cell.
    """
    records = tuple(records)
    keys = {record.key for record, _ in events.measured(records)}
    measured = {c for c, key in experiment.measure_keys.items() if key in keys}
    if not measured:
        reasons = [f"{record.name}: {record.reason}" for record in records if not record.ok]
        raise DaskmetricsError(
            "No checkpoint could be measured, so there is nothing to search. Remove the cause, then"
            " try again with 'daskmetrics runs retry RUN' and the same command. The latest"
            f" failure: {''.join(reasons[-1:])}"
        )
    costs = CostModel(experiment.config.search.device, rate(records))
    return build_problem(experiment, with_checkpoints(experiment.suites, measured), costs, True)


def build_problem(
    experiment: Experiment,
    suites: Sequence[Suite] = (),
    costs: CostModel | None = None,
    read: bool = False,
) -> Problem:
    """The problem of these suites, by default of all; a preview unless it may ``read`` the tasks'
    data, which is then fetched. By default costs are those of the configured device.

    Looks are among the tasks where they pay (`looks_of`).
    """
    suites = suites or experiment.suites
    costs = costs or CostModel(experiment.config.search.device)
    problem = _problem_of(experiment, experiment.tasks, suites, costs, read)
    if looks := looks_of(experiment, problem):
        problem = _problem_of(experiment, (*experiment.tasks, *looks), suites, costs, read)
    return problem


def looks_of(experiment: Experiment, problem: Problem) -> list[Task]:
    """The looks that pay in a search of whole tasks: those at tasks whose encoding costs nearly all.

    They do not pay where every score can be had, where scores are counted and not their cost, or
    for a policy that asks no posterior.
    """
    section = experiment.config.search
    if not experiment.looks or section.policy != "race" or section.cells:
        return []
    if budget(section, problem).share == 1:
        return []
    nearly_all = {
        task: bool(problem.shares_encoding[:, i].all()) for i, task in enumerate(problem.tasks)
    }
    return [look for look in experiment.looks if nearly_all[look.look_of]]


def _problem_of(
    experiment: Experiment,
    tasks: Sequence[Task],
    suites: Sequence[Suite],
    costs: CostModel,
    read: bool,
) -> Problem:
    arms = grid(suites)
    checkpoints = {arm.checkpoint for arm in arms}
    baseline = experiment.baseline
    if baseline and baseline not in checkpoints:  # it could not be measured
        baseline = arms[-1].checkpoint
    sizes = [task_size(task, experiment.config.protocol, read) for task in tasks]
    encode, score = _costs(experiment, arms, sizes, costs)
    weights = experiment.task_weights
    return Problem(
        arms=arms,
        tasks=tuple(task.name for task in tasks),
        features=arm_features(suites),
        encode_cost=encode,
        score_cost=score,
        default=baseline,
        weights=tuple(weights.get(task.name, 0.0) for task in tasks),
        kinds=tuple(task.kind for task in tasks),
        looks=tuple(task in experiment.looks for task in tasks),
    )


def _costs(
    experiment: Experiment, arms: Sequence[Arm], sizes: Sequence[TextSize], costs: CostModel
) -> tuple[np.ndarray, np.ndarray]:
    """Assumed seconds to encode and to score, each an array (arms, tasks).

    An encoding gives all readouts of a checkpoint; what scoring takes follows the dimensions.
    """

    @cache
    def seconds(model: str, readout: str) -> tuple[list[float], list[float]]:
        hidden = experiment.widths[model]
        depth = experiment.by_model[model].depth
        width = Readout.parse(readout).width(hidden)
        return (
            [costs.encode_seconds(hidden, depth, size) for size in sizes],
            [costs.score_seconds(width, size) for size in sizes],
        )

    encode, score = np.empty((2, len(arms), len(sizes)))
    for i, arm in enumerate(arms):
        encode[i], score[i] = seconds(arm.model, arm.readout)
        rolling = experiment.locations[arm.checkpoint].rolling
        if rolling:  # it may be gone when it is needed again
            encode[i] += costs.download_seconds(rolling.bytes)
    return encode, score


def task_size(task: Task, protocol: Protocol, read: bool) -> TextSize:
    """The amount of text of a task; assumed if its data is not on this machine and ``read`` is
    false.
    """
    listed = getattr(task, "statistics", None)
    if listed:  # by a benchmark, whether its data is local or not
        tokens = listed.characters / CHARACTERS_PER_TOKEN
        longest = min(protocol.max_length, tokens / max(1, listed.texts))
        return TextSize(listed.texts, tokens, longest)
    if not (read or task.is_local):
        return UNKNOWN_TASK
    return TextSize.of(map(len, task.texts()), protocol.max_length)


def cells_left(experiment: Experiment, entries: Sequence[Event]) -> int:
    """The scores that the run will still pay for, at the mean cost of a score: what the budget of its
    search allows, and those of the finalists on fresh items, less what was paid for those that it
    has.
    """
    if not experiment.tasks or is_finished(entries, experiment.key):
        return 0
    arms = set(experiment.arms)
    by_name = defaultdict[str, list[Task]](list)
    for task in (*experiment.tasks, *experiment.fresh, *experiment.looks):
        by_name[task.name].append(task)

    def is_of_grid(entry: Record | UnitAsked) -> bool:
        cell = Cell.parse(entry.name)
        return cell.arm in arms and any(
            experiment.score_key(cell.arm, task) == entry.key for task in by_name[cell.task]
        )

    kinds = ("score", "fresh", "look")
    recorded = [entry for entry in events.records(entries) if entry.kind in kinds]
    picked = {
        entry.key: entry
        for entry in standing(entries)
        if isinstance(entry, UnitAsked) and entry.pick
    }
    if any(isinstance(entry, SearchEnded) and entry.key == experiment.key for entry in entries):
        # `retry` took results back: the search makes its decisions again
        done = {record.key for record in recorded}
        return sum(is_of_grid(entry) for key, entry in picked.items() if key not in done)
    problem = build_problem(experiment)
    exhaustive = problem.exhaustive_cost
    cells = len(arms) * len(experiment.tasks)
    mean_cost = exhaustive / cells
    limits = budget(experiment.config.search, problem)
    costs = {key: entry.note["pick"]["cost"] for key, entry in picked.items()}
    counts = Counter[str]()
    paid = 0.0
    for record in filter(is_of_grid, recorded):
        counts[record.kind] += 1
        if record.kind != "fresh":
            paid += costs.get(record.key, mean_cost)
    left = (limits.within(exhaustive) - paid) / mean_cost
    left = min(left, (limits.cells or math.inf) - counts["score"] - counts["look"])
    fresh = min(FINALISTS, len(arms)) * len(fresh_tasks(experiment)) - counts["fresh"]
    return round(max(0.0, left) + max(0, fresh))


# the finalists on fresh items


def finalists(
    experiment: Experiment, best: Recommendation, scores: Mapping[Arm, Mapping[str, Scored]]
) -> tuple[Arm, ...]:
    """The arms to score on fresh items, the recommended one first, at most `FINALISTS`.

    ``scores`` are the recorded ones by arm and task. The others are the arms that the posterior
    cannot tell from it, most likely first; those that paired differences of the scores cannot tell
    from it; the runner-up if there are none; and the default arm.
    """
    weights = {task: weight for task, weight in experiment.task_weights.items() if weight}
    leader = scores.get(best.arm, {})
    behind: dict[Arm, float] = {}  # arms within `TIED` standard errors of the leader
    for arm, by_task in scores.items():
        if leader.keys() & by_task.keys() >= weights.keys():
            gaps = [difference(leader[task], by_task[task]) for task in weights]
            mean = mean_difference(gaps, list(weights.values()))
            if mean and mean.value <= TIED * mean.stderr:
                behind[arm] = mean.value
    ranked_arms = [*best.credible, *sorted(behind, key=behind.__getitem__)]
    tied = [arm for arm in ranked_arms if arm != best.arm]
    tied = tied or [arm for arm in best.top if arm != best.arm][:1]
    ranked = dict.fromkeys([best.arm, *tied[:1], best.default.arm, *tied])
    return tuple(ranked)[:FINALISTS]


def fresh_tasks(experiment: Experiment) -> list[Task]:
    """The tasks of the objective, with the items that are kept back."""
    return [task for task in experiment.fresh if experiment.task_weights[task.name]]


def fresh_units(experiment: Experiment, arms: Sequence[Arm], scratch: Path) -> Iterator[WorkUnit]:
    """The units that score the finalists; arms of one checkpoint follow each other, since they
    share encodings.
    """
    for task, arm in product(fresh_tasks(experiment), sorted(arms)):
        yield score_unit(experiment, arm, task, scratch, "fresh", {"fresh": str(arm)})


def fresh_cost(experiment: Experiment, arms: Sequence[Arm]) -> float:
    """The assumed cost of scoring the finalists."""
    problem = build_problem(replace(experiment, tasks=experiment.fresh, fresh=(), looks=()))
    costs = PaidCosts(problem)
    for arm, task in product(arms, np.flatnonzero(problem.in_objective)):
        costs.charge(problem.arm_index[arm], int(task))
    return costs.spent
