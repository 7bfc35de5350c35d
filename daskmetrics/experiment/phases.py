"""The phases of a run on its workers: train, measure, search, score fresh items."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from distributed import Client
from rich.markup import escape

from daskmetrics import store
from daskmetrics.bandit import Learner, Recommendation, champions
from daskmetrics.checkpoints.locations import Location
from daskmetrics.checkpoints.locations import recorded as location_fields
from daskmetrics.checkpoints.rolling import Downloads
from daskmetrics.core.files import RunFolder
from daskmetrics.core.keys import Key, content_key
from daskmetrics.core.machine import thread_of, workers
from daskmetrics.core.telemetry import TelemetryFile
from daskmetrics.dashboard import Publisher
from daskmetrics.domain.events import (
    RunStarted,
    SearchEnded,
    SearchStarted,
    UnitsPlanned,
    earliest,
)
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.scores import Scores
from daskmetrics.execution import Journal, Record, Settings, Source, Sweep, WorkUnit
from daskmetrics.execution import run as run_source
from daskmetrics.execution.display import Display
from daskmetrics.execution.stopping import stop_signals
from daskmetrics.experiment import fresh, measure, problem, search, train
from daskmetrics.experiment._worker import record_text
from daskmetrics.experiment.given_workers import require_workers
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task
from daskmetrics.training.suite import steps_to

# one running and one waiting, so that no worker is idle while the driver decides
UNITS_PER_WORKER = 2
POLL = 0.5  # seconds between two looks for checkpoints, while no worker can measure


@dataclass(frozen=True)
class Session:
    """A run with the workers that it has."""

    experiment: Experiment
    folder: RunFolder
    journal: Journal
    display: Display
    client: Client
    publisher: Publisher
    downloads: Downloads
    most_memory: float  # of a worker
    ran: list[Key] = field(default_factory=list)  # the units of this session

    @property
    def recorded(self) -> set[Key]:
        return {record.key for record in self.journal.records()}

    def compute(
        self,
        source: Source,
        on_record: Callable[[Record], None],
        on_share: Callable[[WorkUnit, float], None] = lambda unit, share: None,
    ) -> None:
        """Run the units of a source until it has none left."""
        profile = self.experiment.config.cluster
        settings = Settings(
            slots=UNITS_PER_WORKER * max(profile.workers, len(workers(self.client))),
            patience=profile.patience,
            alone=True,  # two threads that import transformers at once get half of it
            most_memory=self.most_memory,
        )
        say = self.display.message
        run_source(source, self.client, self.journal, settings, on_record, say, on_share)

    def show(
        self,
        record: Record,
        phase: str = "",
        done: float | None = None,
        left: float | None = None,
    ) -> None:
        """Show what a unit gave.

        ``done`` is how far the phase is, by default a unit further, and ``left`` the seconds that
        it still takes.
        """
        self.ran.append(record.key)
        if not record.ok:
            reason = escape(str(record.reason))
            self.display.message(
                f"[yellow]{record.kind} {record.name}: {record.status}, {reason}[/]"
            )
        self.display.advance(phase or record.kind, record_text(record), done, left)


@contextmanager
def session(
    experiment: Experiment,
    folder: RunFolder,
    journal: Journal,
    display: Display,
    client: Client,
    is_given: bool,
) -> Iterator[Session]:
    """A run with its workers, its live page and its downloads, within the block.

    Workers that the run has not started itself are checked first.
    """
    profile = experiment.config.cluster
    limited = (location.rolling for location in experiment.locations.values())
    with (
        thread_of(client),
        Publisher(client, journal.entries) as publisher,
        Downloads(limited, display.say) as downloads,
    ):
        if is_given or not profile.is_ours:
            files = _files(folder, experiment.locations.values(), experiment.tasks)
            scoring = require_workers(client, folder.path, files, profile.patience)
            if scoring != experiment.scored_on:
                display.say(
                    "No worker offers the resource CPU: the workers that offer GPU also score the"
                    " tasks."
                )
            experiment = replace(experiment, scored_on=scoring)
        most_memory = 0 if is_given else profile.most_memory
        yield Session(
            experiment, folder, journal, display, client, publisher, downloads, most_memory
        )


def _files(folder: RunFolder, locations: Iterable[Location], tasks: Iterable[Task]) -> list[str]:
    paths = {folder.path}
    for location in locations:
        for source in filter(None, (location, location.base)):
            path = Path(source.path)
            if source.rolling:
                path = Path(source.rolling.folder).parent
            paths.add(path)
    for task in tasks:
        paths.update(map(Path, task.files))
    return sorted({str(path.absolute()) for path in paths if path.exists()})


def train_and_measure(session: Session) -> None:
    """Train the suites that are not complete, and measure each checkpoint once it is there."""
    experiment = session.experiment
    suites = experiment.trainings
    units = measure.units(experiment, session.folder, session.journal.records())
    began = earliest(session.journal.entries, RunStarted).at
    revisions = train.own_revisions(suites, session.recorded, began)
    _announce(session, units, revisions)
    waiting = {unit.name: unit for unit in units}
    show, on_share = _measuring(session, units)
    telemetry = TelemetryFile(session.folder.telemetry)
    config = experiment.config
    programs = train.recipe_programs(suites, config)
    with train.trainings(session.client, programs, config, session.display) as running:
        while True:
            ended = running.ended  # before the look for checkpoints
            trained = list(train.records(suites, revisions, session.recorded))
            session.journal.append(*trained)
            session.ran.extend(record.key for record in trained)
            ready = [name for name, unit in waiting.items() if measure.is_ready(suites, unit)]
            if ready and (ended or running.leave_workers()):
                session.compute(Sweep([waiting.pop(name) for name in ready]), show, on_share)
            elif ended:
                break
            else:
                latest = workers(session.client).values()
                telemetry.add(
                    time.time(), {str(worker["name"]): worker["metrics"] for worker in latest}, {}
                )
                _pause(POLL)
        running.wait()


def _measuring(
    session: Session, units: Sequence[WorkUnit]
) -> tuple[Callable[[Record], None], Callable[[WorkUnit, float], None]]:
    """What shows a measured checkpoint, and how far one is read."""
    recorded = session.recorded
    done = sum(unit.key in recorded for unit in units)
    shares: dict[Key, float] = {}

    def show(record: Record) -> None:
        nonlocal done
        done += 1
        shares.pop(record.key, None)
        session.show(record, done=done + sum(shares.values()))

    def on_share(unit: WorkUnit, share: float) -> None:
        shares[unit.key] = share
        latest = f"{unit.name}  {share:.0%} read"
        session.display.advance("measure", latest, done + sum(shares.values()))

    return show, on_share


def _pause(seconds: float) -> None:
    """Wait, unless the run is asked to stop: also one in a thread, which gets no signals."""
    stopped = threading.Event()
    with stop_signals(lambda by_hand: stopped.set()):
        stopped.wait(seconds)
    if stopped.is_set():
        raise KeyboardInterrupt


def _announce(
    session: Session, units: Sequence[WorkUnit], revisions: Mapping[str, Sequence[str]]
) -> None:
    """Tell the user and the live page what will be trained and measured."""
    experiment = session.experiment
    recorded = session.recorded
    steps = {
        f"{name}@{revision}": steps_to(suite.recipe, revision)
        for name, suite in experiment.trainings.items()
        for revision in revisions[name]
    }
    shown = units if experiment.metrics else []
    session.publisher.send(UnitsPlanned({"train": len(steps), "measure": len(shown)}, steps))
    measured = sum(unit.key in recorded for unit in shown)
    session.display.phase("measure", len(shown), measured)
    specs = (unit.args[0] for unit in units if unit.key not in recorded)
    session.downloads.expect(spec.reader.location.rolling for spec in specs if spec.missing)


def search_best(session: Session, grows: bool) -> None:
    """Search the best arm, and record it.

    With ``grows`` it begins with the cells of earlier searches.
    """
    experiment = session.experiment
    records = list(session.journal.records())
    learner, key = _learner(session, records, grows)
    scratch = session.folder.embeddings.resolve()
    source = search.SearchSource(
        experiment, learner, key, scratch, session.downloads, session.recorded
    )
    session.display.phase("search", 100, int(source.percent), unit="% of budget")
    session.publisher.send(
        SearchStarted(learner.budget, learner.problem.exhaustive_cost, learner.spent)
    )

    def on_share(unit: WorkUnit, share: float) -> None:
        source.read(unit.key, share)
        latest = f"{unit.name}  {share:.0%} read"
        session.display.advance("search", latest, source.percent, source.left)

    def show(record: Record) -> None:
        session.show(record, "search", source.percent, source.left)
        session.publisher.send_computed(partial(search.posterior, experiment.plan, learner))
        if record.kind == "score":
            write_score(record)

    with _scores_written(session.folder.store, experiment.plan, records) as write_score:
        session.compute(source, show, on_share)
    session.display.finish("search")
    _conclude(session, learner)


def _learner(session: Session, records: Sequence[Record], grows: bool) -> tuple[Learner, Key]:
    experiment = session.experiment
    config = experiment.config.search
    to_search = problem.measured_problem(experiment, records)
    if to_search.default != experiment.baseline:
        session.display.say(
            f"The baseline {experiment.baseline} could not be measured: candidates are compared"
            " with the last layer of their own model."
        )
    key = content_key("search", experiment.plan.key, [str(arm) for arm in to_search.arms])
    if config.budget == "auto":
        _, allowed = problem.automatic_budget(to_search)
        session.display.say(f"Budget {allowed}.")
    decided = search.decided(session.journal.entries, key)
    if grows:
        decided = search.carried_on(experiment.plan, to_search, decided, records)
    learner = Learner(
        to_search,
        experiment.policy,
        budget=problem.budget(config, to_search, grows),
        window=experiment.plan.window,
        seed=experiment.plan.seed,
        decided=decided,
        within=config.within,
    )
    return learner, key


def _conclude(session: Session, learner: Learner) -> None:
    """Record the recommendation, with where the arm's weights are."""
    experiment = session.experiment
    plan = experiment.plan
    learner.rebuild_posterior()  # the live posterior depends on the clock
    best = learner.recommendation()
    finalists: Sequence[Arm] = ()
    if experiment.fresh:
        finalists = _score_fresh(session, learner, best)
        cost = fresh.cost(problem.build_problem(experiment, fresh=True), finalists)
        best = replace(best, spent=best.spent + cost, exhaustive=best.exhaustive + cost)
    checkpoint = best.arm.checkpoint
    location = {
        **location_fields(experiment.locations[checkpoint]),
        "depth": plan.by_model[checkpoint.model].depth,
        "protocol": experiment.readers[checkpoint].protocol.as_dict(),
    }
    session.journal.append(
        SearchEnded(
            key=plan.key,
            recommendation=best,
            location=location,
            order=learner.outcome_order,
            kinds=champions(learner.state, plan.kinds),
            ending=learner.ending,
            fresh=finalists,
        )
    )


def _score_fresh(session: Session, learner: Learner, best: Recommendation) -> Sequence[Arm]:
    experiment = session.experiment
    plan = experiment.plan
    picked = {pick.cell for pick in learner.picks}
    wanted = plan.records(session.journal.records())
    scores = Scores.of(wanted, plan.kinds).where(picked.__contains__)
    arms = fresh.finalists(plan.weights, best, scores)
    units = list(fresh.units(experiment, arms, session.folder.embeddings.resolve()))
    recorded = session.recorded
    session.display.phase("fresh", len(units), sum(unit.key in recorded for unit in units))
    session.compute(Sweep(units), session.show)
    return arms


@contextmanager
def _scores_written(
    path: Path, plan: Plan, records: Sequence[Record]
) -> Iterator[Callable[[Record], None]]:
    """A function that writes recorded scores to the store at once.

    So the store can be read while the run goes on. It is their only writer. A thread writes what
    came meanwhile, a chunk for each checkpoint, and the driver does not wait for it. What cannot be
    written is left to the end of the run, when the store is made equal to the journal.
    """
    blocks = store.score_blocks(plan, records)
    waiting: queue.SimpleQueue[Record] = queue.SimpleQueue()

    def write() -> None:
        changed = set()
        while not waiting.empty():
            for record in plan.records([waiting.get()]):
                store.add_score(blocks, plan, record)
                changed.add(Cell.parse(record.name).arm.checkpoint)
        for checkpoint in changed:
            store.write(path, "scores", checkpoint, blocks[checkpoint])

    with ThreadPoolExecutor(1) as thread:

        def add(record: Record) -> None:
            waiting.put(record)
            thread.submit(write)

        yield add
