"""The second source of work: the search's picks as score units, each fed by an encoding that neighbours share."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path

import numpy as np
from dask.utils import parse_bytes

from daskmetrics import config
from daskmetrics.bandit import Budget, Learner, Outcome, Pick, Problem, arm_features
from daskmetrics.config import Protocol
from daskmetrics.core._costs import CHARACTERS_PER_TOKEN, UNKNOWN_TASK, CostModel, TextSize
from daskmetrics.core._events import Event, PosteriorUpdated, RunStarted, UnitAsked
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.names import Arm, Checkpoint, Key, Suite, content_key, grid
from daskmetrics.execution import Record, Settings, WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment._embeddings import remove
from daskmetrics.experiment._prepare import Experiment
from daskmetrics.tasks import Task

LEAST_OPEN = 8  #: decisions, so that a few workers more or less decide the same
NORMAL_95 = 1.645  # a one-sided bound that holds with a probability of 95 %


class Search:
    """Turns the picks of a campaign into work units and their records into outcomes.

    Its state is a replay: decisions of an interrupted search are asked for again, in order, before new ones are made.
    """

    def __init__(self, experiment: Experiment, campaign: Learner, key: Key, scratch: Path) -> None:
        self.experiment, self.campaign, self.key, self.scratch = experiment, campaign, key, scratch
        self._tasks = {task.name: task for task in experiment.tasks}
        self._layers = {suite.model: suite.layers for suite in experiment.suites}
        self._decided = list(campaign.open)  # before an interruption
        self._running: dict[Key, Pick] = {}
        self._used: list[Key] = []  # of encodings, the latest last
        self._until = time.monotonic() + 3600 * (experiment.config.search.wall_hours or math.inf)

    def ask(self, n: int) -> Sequence[WorkUnit]:
        again, self._decided = self._decided[:n], self._decided[n:]
        new = self.campaign.ask(n - len(again)) if time.monotonic() < self._until else []
        picks = [*again, *new]
        units = [self._unit(pick) for pick in picks]
        self._running |= {unit.key: pick for unit, pick in zip(units, picks, strict=True)}
        return units

    def tell(self, record: Record) -> None:
        seconds = record.seconds if self.experiment.config.search.learn_costs else None
        pick = self._running.pop(record.key)
        self.campaign.tell(pick.index, _outcome(record, seconds))
        self._tidy(self._encoded(pick))

    def _tidy(self, used: Key) -> None:
        """Remove files of embeddings that have certainly been released: more than enough others were used since."""
        self._used = [*(key for key in self._used if key != used), used]
        needed = {self._encoded(pick) for pick in self._running.values()}
        idle = [key for key in self._used if key not in needed]
        for key in idle[: -(Settings.spare_inputs + 1)]:
            remove(self.scratch, key)
            self._used.remove(key)

    def _encoded(self, pick: Pick) -> Key:
        return self.experiment.encode_key(pick.cell.arm.checkpoint, self._tasks[pick.cell.task])

    def _unit(self, pick: Pick) -> WorkUnit:
        experiment, arm = self.experiment, pick.cell.arm
        task = self._tasks[pick.cell.task]
        encode = WorkUnit(
            key=experiment.encode_key(arm.checkpoint, task),
            name=f"{arm.checkpoint}:{task.name}",
            kind="encode",
            function=worker.encode,
            args=(self._encode_spec(arm.checkpoint, task),),
            resources={"GPU": 1},
            timeout=experiment.config.cluster.timeout,
            keeps=str(arm.checkpoint),
        )
        key = experiment.score_key(arm, task)
        return WorkUnit(
            key=key,
            name=str(pick.cell),
            kind="score",
            function=worker.score,
            args=(task, arm.layer, int(key[:8], 16), experiment.protocol_key),
            resources={"CPU": 1},
            timeout=experiment.config.cluster.timeout,
            input=encode,
            note={"search": self.key, "seed": self.campaign.seed, "pick": pick.as_dict()},
        )

    def _encode_spec(self, checkpoint: Checkpoint, task: Task) -> worker.EncodeSpec:
        experiment = self.experiment
        return worker.EncodeSpec(
            key=experiment.encode_key(checkpoint, task),
            location=experiment.locations[checkpoint],
            protocol=experiment.config.protocol,
            task=task,
            layers=self._layers[checkpoint.model],
            scratch=str(self.scratch),
            budget=parse_bytes(experiment.config.cluster.embeddings),
        )


def _outcome(record: Record, seconds: float | None) -> Outcome:
    if not record.ok:
        return Outcome(None, seconds=seconds)
    return Outcome(record.value["score"], record.value["stderr"], seconds)


def budget(search: config.Search) -> Budget:
    """What a search may spend; the narrowest of what the configuration gives."""
    return Budget(search.budget, 3600 * search.gpu_hours if search.gpu_hours else None, search.cells)


def window(experiment: Experiment, entries: Iterable[Event]) -> int:
    """How many decisions may be open at once: as configured, else as this run began, else enough for its workers.

    The number decides what is picked. So a run that goes on with more or fewer workers keeps the one it began with.
    """
    return settled_window(experiment, entries) or max(LEAST_OPEN, experiment.config.cluster.workers)


def settled_window(experiment: Experiment, entries: Iterable[Event]) -> int | None:
    """The `window`, unless the number of workers is still to decide it."""
    begun = (entry.window for entry in entries if isinstance(entry, RunStarted) and entry.key == experiment.key)
    return experiment.config.search.window or next(begun, None)


def decided(entries: Iterable[Event], key: Key) -> list[Pick]:
    """The decisions of an interrupted search, as the journal has them, as far as none is lacking."""
    notes = (entry.note for entry in entries if isinstance(entry, UnitAsked))
    picks = {note["pick"]["index"]: note["pick"] for note in notes if note.get("search") == key}
    return [Pick.from_dict(picks[index]) for index in takewhile(picks.__contains__, count())]


def belief(experiment: Experiment, campaign: Learner) -> PosteriorUpdated:
    """The posterior of every arm at this moment, for the dashboard."""
    state = campaign.state
    known = state.posterior.without_pending()
    places = {arm: i for i, arm in enumerate(experiment.arms)}
    values = np.full((2, len(places)), np.nan, np.float32)
    values[:, [places[arm] for arm in campaign.problem.arms]] = known.mean, known.sd
    bound = np.where(state.usable, known.mean + NORMAL_95 * known.sd, -np.inf)
    return PosteriorUpdated(
        values=values.tobytes(),
        leader=str(campaign.problem.arms[state.leader]),
        shortfall=float(max(0.0, np.delete(bound, state.leader).max(initial=-np.inf) - known.mean[state.leader])),
    )


def problem(experiment: Experiment, records: Iterable[Record]) -> Problem:
    """The search's problem: arms that could be measured, their features, and what each cell is assumed to cost."""
    measured = {record.key: record for record in records if record.kind == "measure" and record.ok}
    keys = {c: experiment.measure_key(suite, c) for suite in experiment.suites for c in suite.checkpoints()}
    kept = [replace(s, revisions=there) for s in experiment.suites if (there := _revisions(s, keys, measured))]
    if not kept:
        raise DaskmetricsError("Not one checkpoint could be measured, so there is nothing to search among.")
    blocks = [measured[keys[checkpoint]].value["values"] for suite in kept for checkpoint in suite.checkpoints()]
    return pose(experiment, kept, np.concatenate([np.array(block, dtype=float) for block in blocks]))


def _revisions(suite: Suite, keys: Mapping[Checkpoint, Key], measured: Container[Key]) -> tuple[str, ...]:
    return tuple(checkpoint.revision for checkpoint in suite.checkpoints() if keys[checkpoint] in measured)


def pose(
    experiment: Experiment,
    suites: Sequence[Suite],
    metrics: np.ndarray | None = None,
    costs: CostModel | None = None,
) -> Problem:
    """The problem over these suites, with metrics (arms, metrics) as features beside the arms' positions.

    Without metrics it is a preview, for which no task's data is fetched. Costs are those of the device that the
    configuration assumes, unless given.
    """
    arms = grid(suites)
    sizes = [task_size(task, experiment.config.protocol, here=metrics is not None) for task in experiment.tasks]
    encode, score = _costs(experiment, arms, sizes, costs or CostModel(experiment.config.search.device))
    return Problem(
        arms=arms,
        tasks=tuple(task.name for task in experiment.tasks),
        features=arm_features(suites, metrics),
        encode_cost=encode,
        score_cost=score,
        baseline=_baseline(experiment, arms),
        reward=experiment.config.search.reward,
        weights=experiment.weights,
    )


def search_key(experiment: Experiment, posed: Problem) -> Key:
    """Names a search: decisions of one may be taken over only by the same."""
    return content_key("search", experiment.key, [str(arm) for arm in posed.arms])


def _baseline(experiment: Experiment, arms: Sequence[Arm]) -> Checkpoint:
    """The configured baseline, or the last checkpoint there is, should it have failed."""
    there = {arm.checkpoint for arm in arms}
    return experiment.baseline if experiment.baseline in there else arms[-1].checkpoint


def _costs(
    experiment: Experiment, arms: Sequence[Arm], sizes: Sequence[TextSize], costs: CostModel
) -> tuple[np.ndarray, np.ndarray]:
    """Assumed seconds to encode and to score, each an array (arms, tasks)."""
    depths = {suite.model: suite.depth for suite in experiment.suites}
    encode, score = np.empty((2, len(arms), len(sizes)))
    for model, width in experiment.widths.items():
        own = [i for i, arm in enumerate(arms) if arm.model == model]
        encode[own] = [costs.encode_seconds(width, depths[model], size) for size in sizes]
        score[own] = [costs.score_seconds(width, size) for size in sizes]
    return encode, score


def task_size(task: Task, protocol: Protocol, here: bool) -> TextSize:
    """How much text a task is; assumed unless its data is known to be here."""
    if listed := getattr(task, "statistics", None):  # a benchmark lists it, whether its data is local or not
        tokens = listed.characters / CHARACTERS_PER_TOKEN
        return TextSize(listed.texts, tokens, min(protocol.max_length, tokens / max(1, listed.texts)))
    if not (here or task.is_local):
        return UNKNOWN_TASK
    return TextSize.of(map(len, task.texts()), protocol.max_length)
