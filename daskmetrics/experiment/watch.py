"""A run whose grid grows: each checkpoint that appears is measured and searched as soon as it is
complete.

Every new checkpoint begins a round, which is the run of a configuration that names the checkpoints
there are. All rounds share one journal, so that a round computes only what no earlier one has
recorded, and one cluster.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from distributed import Client

from daskmetrics import metrics, tasks
from daskmetrics.bandit import Outcome
from daskmetrics.bandit.recommend import rise_forecast
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.arrivals import AT_REST, Arrivals, Follower, followed, followed_folder
from daskmetrics.config import Config
from daskmetrics.core.errors import DaskmetricsError, room_for
from daskmetrics.core.files import RunFolder, open_own, private
from daskmetrics.core.keys import content_key
from daskmetrics.core.machine import workers
from daskmetrics.core.text import duration, parse_duration, plural, score_text
from daskmetrics.domain.events import (
    ended_search,
    is_finished,
    latest,
    measured,
    scored,
)
from daskmetrics.domain.names import (
    Arm,
    Cell,
    Checkpoint,
    arm_name,
    layer_name,
    training_order,
)
from daskmetrics.domain.plan import Plan
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.display import Display
from daskmetrics.execution.stopping import stop_signals
from daskmetrics.experiment import train as training
from daskmetrics.experiment._run import continue_run, require_inputs, started
from daskmetrics.experiment._trackers import (
    Log,
    best_fields,
    log_search,
    require_trackers,
    trackers,
)
from daskmetrics.experiment.preparation import prepare
from daskmetrics.training.ddp.ranks import Program

# seconds for which a watch waits, after the end of the training, for files that are not complete
UNFINISHED = 30.0
POLL = 5.0  # seconds between two looks at the folders
SETTLE = 3.0  # seconds for which the files of a checkpoint must not have changed
RISE = 0.01  # the rise of the score that would matter, as a share of the best score
AHEAD = 3  # future checkpoints for which a rise is predicted
STOPPED = 0.1  # the score has stopped rising if the probability of such a rise is below this

Revisions: TypeAlias = Mapping[str, tuple[str, ...]]  # by model


def watch(
    config: Config,
    folder: RunFolder,
    display: Display,
    client: Client | None = None,
    on_round: Callable[[], object] = lambda: None,
    trains: bool = False,
) -> None:
    """Measure and search each checkpoint of growing suites.

    With ``trains``, the programs of the models write them meanwhile, on the same workers; the watch
    ends with them, and raises their `ProcessGroupError`.

    Recorded units are not computed again: after a kill the same call goes on. The sources of the
    models may not exist yet. Without a ``client`` the configured cluster is started for the first
    checkpoint, and stays. ``on_round`` is called after each round, for instance to write the
    report. After a `ClusterLostError` the same call goes on.
    """
    if trains:
        training.programs(config)  # one that cannot be started is an error now
    follower = Follower(config.models, SETTLE)
    if not trains:  # otherwise the folders are made when the training begins
        follower.look(time.monotonic())  # an id of the hub is an error now
    metrics.resolve(config.metrics)  # a wrong name is an error now
    tasks.resolve(config.tasks)
    require_trackers(config.log_to)
    folder.create()
    with (
        private(),
        Journal(folder.journal, folder.lock) as journal,
        ExitStack() as stack,
    ):
        log = WatchLog(folder.events)
        stopped = threading.Event()

        def stop(_: bool) -> None:
            # Python drops an exception that a handler raises within a callback of its garbage
            # collector, and Dask has one
            stopped.set()
            raise KeyboardInterrupt

        if threading.current_thread() is threading.main_thread():
            stack.enter_context(stop_signals(stop))
        for notice in journal.notices:
            display.say(notice)
        log.write("started", pid=os.getpid(), name=config.name)
        identity = content_key("tracked", log.begun)  # the same when the watch goes on
        track = stack.enter_context(
            trackers(config.log_to, config.name, identity, folder.path, display.say)
        )
        watcher = _Watcher(config, folder, display, journal, log, track, stack, client, follower)
        try:
            if trains:
                watcher.train()
            watcher.follow(on_round, stopped)
        except KeyboardInterrupt:
            log.write("stopped", pid=os.getpid())
            raise


def _ending(program: Program) -> dict[str, object]:
    return {"model": program.name, "command": list(program.words), "ranks": program.ranks}


@dataclass
class _Watcher:
    """The state of one watch between its rounds."""

    config: Config
    folder: RunFolder
    display: Display
    journal: Journal
    log: WatchLog
    track: Log
    stack: ExitStack
    client: Client | None
    follower: Follower
    # the revisions of the latest round, by model
    grid: Revisions = field(default_factory=dict)
    notices: set[str] = field(default_factory=set)  # lines that are shown once
    active: float = field(default_factory=time.monotonic)  # the end of the latest round
    programs: Mapping[str, Program] = field(default_factory=dict)
    trainings: training.Trainings | None = None

    def train(self) -> None:
        """Begin the training of models whose programs have not ended well."""
        for model in self.config.models:  # else it could be taken for an id of the hub
            followed_folder(model).mkdir(parents=True, exist_ok=True)
        programs = {
            program.name: program
            for program in training.programs(self.config, self.folder.path)
            if not self.log.has("trained", **_ending(program))
        }
        client = self._connected()
        side_by_side = training.at_once(tuple(programs.values()))
        ranks = side_by_side * max((program.ranks for program in programs.values()), default=0)
        if max(self.config.cluster.workers, len(workers(client))) <= ranks:
            self.display.say(
                "Every worker trains: checkpoints are measured once the training has ended. More "
                "workers measure them meanwhile."
            )
        self.programs = programs
        self.trainings = self.stack.enter_context(
            training.trainings(client, tuple(programs.values()), self.config, self.display)
        )

    def _connected(self) -> Client:
        """The client that was given, or of the cluster that is started once."""
        if self.client is None:
            self.client = self.stack.enter_context(started(self.config, self.display))
        return self.client

    def follow(self, on_round: Callable[[], object], stopped: threading.Event) -> None:
        """Look for checkpoints, and begin rounds, until there is a reason to end."""
        sources = ", ".join(f"'{m.checkpoints or m.source}'" for m in self.config.models)
        self.display.say(f"Watching {sources}. Ctrl-C ends it; the same command goes on.")
        while True:
            if stopped.is_set():
                raise KeyboardInterrupt
            looked = time.monotonic()
            arrivals = self.follower.look(looked)
            for model, waiting in arrivals.waiting.items():
                for name, reason in waiting.items():
                    if reason != AT_REST:
                        self._say_once(f"{model}@{name} cannot be read yet: {reason}")
            self._announce(arrivals.revisions)
            if any(arrivals.revisions.values()) and arrivals.revisions != self.grid:
                if self._round(arrivals.revisions):
                    on_round()
                    self.active = time.monotonic()
            elif reason := self._end(arrivals, looked):
                if self.trainings and self.trainings.ended:
                    self.trainings.wait()
                self.display.say(f"The watch ends: {reason}.")
                self.log.write("ended", pid=os.getpid(), reason=reason)
                return
            else:
                time.sleep(POLL)

    def _say_once(self, text: str) -> None:
        if text not in self.notices:
            self.notices.add(text)
            self.display.say(text)

    def _end(self, arrivals: Arrivals, looked: float) -> str:
        """Why the watch ends; empty if it goes on."""
        reasons = [reason for names in arrivals.waiting.values() for reason in names.values()]
        if AT_REST in reasons:
            return ""  # it is complete in a moment
        idle = looked - max(self.active, arrivals.changed)
        finished = arrivals.finished  # no checkpoint follows
        if self.trainings:
            finished = self.trainings.ended
            for name in self.trainings.succeeded:
                self.log.write("trained", **_ending(self.programs[name]))
        if finished and not reasons:
            return "the training has finished"
        if finished and idle > UNFINISHED:
            incomplete = plural(len(reasons), "checkpoint")
            return f"the training has finished, and {incomplete} never became complete"
        longest = parse_duration(self.config.until_idle)
        if longest is not None and idle > longest:
            return f"no new checkpoint for {duration(longest)}"
        return ""

    def _round(self, grid: Revisions) -> bool:
        """Run the grid; False if a checkpoint was deleted before it began."""
        models = [
            model.model_copy(update={"revisions": grid[model.name]})
            for model in self.config.models
            if grid[model.name]
        ]
        try:
            experiment = prepare(self.config.model_copy(update={"models": tuple(models)}))
        except DaskmetricsError:
            if self.follower.look(time.monotonic()).revisions == grid:
                raise
            return False
        for warning in experiment.plan.warnings:
            self._say_once(warning)
        # an interrupted watch may have finished this very round
        if not is_finished(self.journal.entries, experiment.plan.key):
            require_inputs(experiment)
            missing = (location.rolling for location in experiment.missing.values())
            with rolling.offline_workers(missing):  # also while they start
                continue_run(
                    experiment,
                    self.folder,
                    self.journal,
                    self.display,
                    self._connected(),
                    self.stack,
                    grows=True,
                )
        self.grid = grid
        self._conclude()
        return True

    def _announce(self, revisions: Revisions) -> None:
        for model in self.config.models:
            present = revisions.get(model.name, ())
            for name in present:
                checkpoint = Checkpoint(model.name, name)
                if self.log.write("checkpoint", checkpoint=str(checkpoint), step=checkpoint.step):
                    self.display.say(f"{checkpoint} is complete")
            try:
                checkpoints = followed(model)
            except OSError:  # nothing is known of them at the moment
                continue
            for checkpoint in self.log.complete():
                name = checkpoint.revision
                if checkpoint.model != model.name or name in present:
                    continue
                if name not in checkpoints:
                    self.log.write("gone", checkpoint=str(checkpoint))
                    self.display.say(
                        f"{checkpoint} was deleted: its scores stay, but it cannot be the best"
                    )
                elif name in self.grid.get(model.name, ()):
                    self._say_once(
                        f"{checkpoint} is written again: it counts when it is complete, with new"
                        " scores"
                    )

    def _conclude(self) -> None:
        plan = latest(self.journal.entries, Plan)  # which knows the deleted checkpoints
        assert plan is not None
        ended = ended_search(self.journal.entries, plan.key)
        checkpoints = len(plan.checkpoints)
        write = partial(self.log.write, "updated", key=plan.key, checkpoints=checkpoints)
        if ended is None:  # there are no tasks
            write(best=None, rise=None)
            return
        best = best_fields(plan, ended)
        leader = ended.recommendation.arm
        rise = rise_fields(plan, list(self.journal.records()), leader)
        believed = "is" if ended.recommendation.confirmed else "is expected to be"
        name, layer = arm_name(leader, plan.layer_names), layer_name(leader, plan.layer_names)
        text = f"{name} {believed} the best of {plural(checkpoints, 'checkpoint')}"
        if best["score"] is not None:
            text += f", {score_text(best['score'], best['stderr'])}"
        text += "."
        if rise:
            state = "has stopped rising" if rise["stopped"] else "may still rise"
            text += (
                f" Layer {layer} {state}: by step {rise['steps'][-1]:,} it rises by more than"
                f" {100 * RISE:g} % with probability {rise['probability']:.2f}."
            )
        if write(cells=ended.recommendation.cells, best=best, rise=rise, text=text):
            probability = rise["probability"] if rise else None
            log_search(self.track, plan, ended, rise_probability=probability)
            self.display.say(text)


def rise_fields(plan: Plan, records: Sequence[Record], best: Arm) -> dict[str, Any] | None:
    """Whether the best layer's score still rises, as an event's field."""
    # also with the checkpoints that were measured and deleted since
    wanted = plan.records(records)
    revisions = {suite.model: set(suite.revisions) for suite in plan.suites}
    for record, _ in measured(wanted):
        checkpoint = Checkpoint.parse(record.name)
        revisions.get(checkpoint.model, set()).add(checkpoint.revision)
    suites = [
        replace(suite, revisions=training_order(revisions[suite.model])) for suite in plan.suites
    ]
    outcomes = {
        Cell.parse(record.name): Outcome(result.score, result.stderr)
        for record, result in scored(wanted)
    }
    forecast = rise_forecast(
        suites,
        outcomes,
        best,
        tasks={task.name: task.weight for task in plan.tasks},
        kinds=plan.kinds,
        share=RISE,
        ahead=AHEAD,
        seed=plan.seed,
    )
    if not forecast:
        return None
    return {
        "layer": best.layer,
        "probability": round(forecast.probability, 4),
        "more_than": RISE,
        "steps": list(forecast.steps),
        "stopped": forecast.probability < STOPPED,
    }


class WatchLog:
    """A file of events that only grows; docs/watch.md lists them.

    An event is one write of one line, so that a reader never sees half of one that was committed.
    An event that the file has already, but for its time, is not written again: a watch that was
    killed writes what is missing when it goes on. Of a checkpoint, which may appear again, only its
    latest event counts.

    >>> import tempfile
    >>> log = WatchLog(Path(tempfile.mkdtemp()) / "events.jsonl")
    >>> log.write("gone", checkpoint="out@step8"), log.write("gone", checkpoint="out@step8")
    (True, False)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_own(path, "ab") as file:
            complete, _, torn = path.read_bytes().rpartition(b"\n")
            if torn:  # a killed writer leaves half a line
                file.truncate(len(complete) + bool(complete))
        events = [json.loads(line) for line in complete.splitlines()]
        self._written = set(map(_content, events))
        self._of_checkpoints = {
            event["checkpoint"]: event["event"] for event in events if "checkpoint" in event
        }
        # when the first event was written, in seconds since 1970
        self.begun: float = next((event["at"] for event in events), 0.0)

    def write(self, event: str, **fields: object) -> bool:
        """Append an event with the time; False if the file has it."""
        if self.has(event, **fields):
            return False
        at = round(time.time(), 3)
        self.begun = self.begun or at
        line = json.dumps({"event": event, "at": at, **fields}, separators=(",", ":"))
        with room_for(f"the events '{self.path}'"), open_own(self.path, "ab") as file:
            file.write(f"{line}\n".encode())
        self._written.add(_content({"event": event, **fields}))
        if "checkpoint" in fields:
            self._of_checkpoints[fields["checkpoint"]] = event
        return True

    def has(self, event: str, **fields: object) -> bool:
        """Whether the file has this event, at any time.

        Of a checkpoint, it must be the latest.
        """
        if "checkpoint" in fields:
            return self._of_checkpoints.get(fields["checkpoint"]) == event
        return _content({"event": event, **fields}) in self._written

    def complete(self) -> list[Checkpoint]:
        """The checkpoints that were complete and not gone since."""
        events = self._of_checkpoints.items()
        return [Checkpoint.parse(name) for name, event in events if event == "checkpoint"]


def _content(event: Mapping[str, object]) -> str:
    return json.dumps(
        {name: value for name, value in event.items() if name != "at"}, sort_keys=True
    )
