"""A run whose grid grows: each checkpoint that appears is measured and searched as soon as it is
complete.

Every new checkpoint begins a round, which is the run of a configuration that names the checkpoints
there are. All rounds share one journal, so that a round computes only what no earlier one has
recorded, and one cluster.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from types import FrameType

from distributed import Client
from rich.markup import escape

from daskmetrics import metrics, tasks
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.arrivals import AT_REST, Arrivals, Follower
from daskmetrics.cluster.connection import connect
from daskmetrics.config import Config
from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.core.events import RunStarted, SearchEnded, is_finished, latest, measures_nothing
from daskmetrics.core.files import RunFolder, private
from daskmetrics.core.names import Cell, Checkpoint
from daskmetrics.core.results import Scored
from daskmetrics.core.text import duration, parse_duration, plural
from daskmetrics.dashboard import RUN_PAGE
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.display import Display
from daskmetrics.experiment._run import continue_run, require_inputs
from daskmetrics.experiment._watch_rounds import (
    Numbers,
    WatchLog,
    answer_of,
    numbers_of,
    require_trackers,
    trackers,
)
from daskmetrics.experiment.preparation import Experiment, prepare

# seconds for which a watch waits, after the end of the training, for files that are not complete
UNFINISHED = 30.0
POLL = 5.0  # seconds between two looks at the folders
SETTLE = 3.0  # seconds for which the files of a checkpoint must not have changed


def watch(
    config: Config,
    folder: RunFolder,
    display: Display,
    client: Client | None = None,
    on_round: Callable[[], object] = lambda: None,
) -> str:
    """Measure and search each checkpoint of growing suites; returns why it ended.

    Recorded units are not computed again: after a kill the same call goes on. The sources of the
    models may not exist yet. Without a ``client`` the configured cluster is started for the first
    checkpoint, and stays. ``on_round`` is called after each round, for instance to write the
    report. After a `ClusterLostError` the same call goes on.
    """
    follower = Follower(config.models, SETTLE)
    metrics.resolve(config.metrics)  # a wrong name is an error now
    tasks.resolve(config.tasks)
    require_trackers(config.watch.log)
    folder.create()
    with (
        private(),
        Journal(folder.journal, folder.lock) as journal,
        WatchLog(folder.events) as log,
        _noted_signals() as signals,
        ExitStack() as stack,
    ):
        for notice in journal.notices:
            display.message(escape(notice))
        track = stack.enter_context(_tracking(config, folder, display, log))
        watcher = _Watcher(config, folder, display, journal, log, track, stack, client)
        try:
            reason = watcher.follow(follower, on_round, signals)
        except KeyboardInterrupt:
            log.write("stopped", pid=os.getpid())
            raise
        log.write("ended", pid=os.getpid(), reason=reason)
    return reason


def _tracking(
    config: Config, folder: RunFolder, display: Display, log: WatchLog
) -> AbstractContextManager[Callable[[int, Numbers], None]]:
    """Logs rounds to the libraries of `watch.log`, always to the same run of each; its name is an
    event.
    """
    if config.watch.log and "tracked" not in log.latest:
        log.write("tracked", run=secrets.token_hex(8))
    identity = log.latest.get("tracked", {}).get("run", "")
    return trackers(
        config.watch.log,
        config.name,
        identity,
        folder.path,
        lambda text: display.message(escape(text)),
    )


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The signals that arrived within the block; their handlers, which raise `KeyboardInterrupt`,
    are called as before.

    Python drops an exception that a handler raises within a callback of its garbage collector, and
    Dask has one.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    ours = {number: handler for number, handler in before.items() if callable(handler)}

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        ours[signal.Signals(number)](number, frame)

    for number in ours:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


@dataclass
class _Watcher:
    """The state of one watch between its rounds."""

    config: Config
    folder: RunFolder
    display: Display
    journal: Journal
    log: WatchLog
    track: Callable[[int, Numbers], None]
    stack: ExitStack
    client: Client | None
    # the revisions of the latest round, by model
    grid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notices: set[str] = field(default_factory=set)  # lines that are shown once
    active: float = field(default_factory=time.monotonic)  # the end of the latest round

    def follow(
        self, follower: Follower, on_round: Callable[[], object], signals: Sequence[int]
    ) -> str:
        """Look, and begin a round where something is new, until there is a reason to end; returns
        the reason.
        """
        self.log.write("started", pid=os.getpid(), name=self.config.name)
        for record in self.journal.records():
            self._record(record)  # what a killed watch did not write any more
        sources = ", ".join(f"'{model.source}'" for model in self.config.models)
        self.display.message(
            escape(f"Watching {sources}. Ctrl-C ends it; the same command goes on.")
        )
        while True:
            if signals:
                raise KeyboardInterrupt
            looked = time.monotonic()
            arrivals = follower.look(looked)
            for model, waiting in arrivals.waiting.items():
                for name, reason in waiting.items():
                    if reason != AT_REST:
                        self._say(f"{model}@{name} cannot be read yet: {reason}")
            if any(arrivals.revisions.values()) and arrivals.revisions != self.grid:
                if self._round(arrivals.revisions, follower):
                    on_round()
                    self.active = time.monotonic()
            elif reason := self._end(arrivals, looked):
                self.display.message(escape(f"The watch ends: {reason}."))
                return reason
            else:
                time.sleep(POLL)

    def _say(self, text: str) -> None:
        if text not in self.notices:
            self.notices.add(text)
            self.display.message(escape(text))

    def _end(self, arrivals: Arrivals, looked: float) -> str:
        """Why the watch ends, by what a look at this time has found; empty if it goes on."""
        waiting = (names.values() for names in arrivals.waiting.values())
        reasons = list(chain.from_iterable(waiting))
        if AT_REST in reasons:
            return ""  # it is complete in a moment
        idle = looked - max(self.active, arrivals.changed)
        if arrivals.finished and not reasons:
            return "the training has finished"
        if arrivals.finished and idle > UNFINISHED:
            incomplete = plural(len(reasons), "checkpoint")
            return f"the training has finished, and {incomplete} never became complete"
        longest = parse_duration(self.config.watch.until_idle)
        if longest is not None and idle > longest:
            return f"no new checkpoint for {duration(longest)}"
        return ""

    def _round(self, grid: Mapping[str, tuple[str, ...]], follower: Follower) -> bool:
        """Run the grid as it is; returns False if a checkpoint was deleted before it began."""
        models = [
            model.model_copy(update={"revisions": grid[model.name]})
            for model in self.config.models
            if grid[model.name]
        ]
        try:
            experiment = prepare(self.config.model_copy(update={"models": tuple(models)}))
        except DaskmetricsError:
            if follower.look(time.monotonic()).revisions == grid:
                raise
            return False
        for warning in experiment.warnings:
            self._say(warning)
        self._announce(grid)
        if not self._is_done(experiment):
            require_inputs(experiment)
            with rolling.offline_workers(experiment.missing_locations):  # also while they start
                self._compute(experiment)
        self.grid = grid
        self._conclude(experiment)
        return True

    def _announce(self, grid: Mapping[str, tuple[str, ...]]) -> None:
        """Say which checkpoints are new, and which were deleted."""
        for model, names in grid.items():
            for name in names:
                checkpoint = Checkpoint(model, name)
                if self.log.write("checkpoint", checkpoint=str(checkpoint), step=checkpoint.step):
                    self.display.message(escape(f"{checkpoint} is complete"))
            for name in set(self.grid.get(model, ())) - set(names):
                self.log.write("gone", checkpoint=f"{model}@{name}")
                self.display.message(
                    escape(
                        f"{model}@{name} was deleted: its scores stay, but it cannot be the best"
                    )
                )

    def _is_done(self, experiment: Experiment) -> bool:
        """Whether an interrupted watch has finished this very round."""
        start = latest(self.journal.entries, RunStarted)
        return (
            start is not None
            and start.key == experiment.key
            and is_finished(self.journal.entries, experiment.key)
        )

    def _compute(self, experiment: Experiment) -> None:
        if self.client is None:
            config, message = self.config, self.display.message
            cluster = connect(
                config.cluster,
                config.name,
                lambda text: message(escape(text)),
                on_start=message,
                page=RUN_PAGE,
            )
            self.client = self.stack.enter_context(cluster)
        continue_run(
            experiment,
            self.folder,
            self.journal,
            self.display,
            self.client,
            self._record,
            grows=True,
        )

    def _record(self, record: Record) -> None:
        """Write the event of a record; one that failed has a reason and no number."""
        failure = {} if record.ok else {"reason": record.reason}
        if record.kind == "measure" and not measures_nothing(record):
            self.log.write(
                "measured",
                checkpoint=record.name,
                step=Checkpoint.parse(record.name).step,
                seconds=round(record.seconds, 3),
                status=record.status,
                **failure,
            )
        elif record.kind == "score":
            cell = Cell.parse(record.name)
            value = {}
            if isinstance(record.value, Scored):
                value = {"score": record.value.score, "stderr": record.value.stderr}
            self.log.write(
                "scored",
                arm=str(cell.arm),
                task=cell.task,
                **value,
                status=record.status,
                **failure,
            )

    def _conclude(self, experiment: Experiment) -> None:
        """Write what the round says, and what changed since the round before."""
        ended = latest(self.journal.entries, SearchEnded)
        if ended is None or ended.key != experiment.key:  # there are no tasks
            self.log.write(
                "updated",
                key=experiment.key,
                checkpoints=len(experiment.checkpoints),
                best=None,
                rise=None,
            )
            return
        answer = answer_of(experiment, self.journal, ended)
        before = self.log.latest.get("updated") or {}
        plain = answer.as_dict()
        if not self.log.write("updated", key=experiment.key, **plain):
            return
        self.track(
            max(checkpoint.step or 0 for checkpoint in experiment.checkpoints), numbers_of(plain)
        )
        if (before.get("best") or {}).get("arm") != plain["best"]["arm"]:
            self.log.write(
                "best",
                checkpoints=plain["checkpoints"],
                **plain["best"],
                location=dict(ended.location),
            )
        if answer.has_stopped and not (before.get("rise") or {}).get("stopped"):
            self.log.write(
                "plateau",
                checkpoints=plain["checkpoints"],
                arm=plain["best"]["arm"],
                **plain["rise"],
            )
        for line in answer.lines:
            self.display.message(escape(line))
