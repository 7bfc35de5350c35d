"""An experiment from its configuration to its recommendation, resumable at any point."""

from __future__ import annotations

import queue
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from distributed import Client
from rich.markup import escape

from daskmetrics import store
from daskmetrics.bandit import Learner, Recommendation, champions
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.hub import require_on_hub
from daskmetrics.checkpoints.locations import recorded as location_fields
from daskmetrics.cluster.connection import connect
from daskmetrics.cluster.selftest import appears, marker
from daskmetrics.config import Config
from daskmetrics.core.costs import CostModel
from daskmetrics.core.errors import ConfigError, room_for
from daskmetrics.core.events import (
    RunFinished,
    RunStarted,
    SearchEnded,
    SearchStarted,
    StorePlan,
    UnitsPlanned,
    is_finished,
    latest,
    scored,
)
from daskmetrics.core.files import RunFolder, private, require_regular
from daskmetrics.core.machine import environment, usage, workers
from daskmetrics.core.names import Arm, Cell, Key, content_key
from daskmetrics.core.results import Scored
from daskmetrics.dashboard import RUN_PAGE, Publisher
from daskmetrics.execution import (
    Journal,
    Record,
    Settings,
    Source,
    Sweep,
)
from daskmetrics.execution import run as run_source
from daskmetrics.execution.display import Display
from daskmetrics.execution.journal import read
from daskmetrics.execution.runner import PLAIN
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.experiment import measure, search, train
from daskmetrics.experiment._trackers import log_search, require_trackers, trackers
from daskmetrics.experiment._worker import record_text
from daskmetrics.experiment.preparation import VERSION, Experiment

PACKAGES = ("daskmetrics", "torch", "transformers", "distributed", "zarr", "numpy", "scikit-learn")
# one running and one waiting, so that no worker is idle while the driver decides
UNITS_PER_WORKER = 2
# assumed seconds of work below which a second worker would not pay for its start
SMALL_WORK = 10.0


def run(
    experiment: Experiment,
    folder: RunFolder,
    display: Display,
    client: Client | None = None,
    cluster: ExitStack | None = None,
) -> int:
    """Measure every checkpoint, search the best arm, and record the recommendation in the journal;
    returns the number of units that ran.

    Recorded units are not computed again; a finished run is not changed. The workers of a given
    ``client`` are checked first; by default the run starts the configured cluster, and ends it once
    all is recorded, or leaves this and the run's lock to the end of ``cluster``.
    After a `StorageError` or a `ClusterLostError` the same call resumes; a `DaskmetricsError` says
    that no checkpoint could be measured.
    """
    entries = list(read(folder.journal))
    if is_finished(entries, experiment.key):
        start = latest(entries, RunStarted)
        if start and start.config and any(maintain.check_files(folder, entries)):
            maintain.write_files(folder, start.config, experiment.prompts)
        return 0
    require_inputs(experiment)
    require_trackers(experiment.config.log_to)
    search.check(experiment)
    folder.create()
    with ExitStack() as stack:
        cluster = cluster or stack
        stack.enter_context(private())
        journal = cluster.enter_context(Journal(folder.journal, folder.lock))
        for notice in journal.notices:
            display.say(notice)
        for warning in experiment.warnings:
            display.message(f"[yellow]{escape(warning)}[/]")
        return continue_run(experiment, folder, journal, display, client, cluster)


def continue_run(
    experiment: Experiment,
    folder: RunFolder,
    journal: Journal,
    display: Display,
    client: Client | None,
    cluster: ExitStack,
    grows: bool = False,
) -> int:
    """`run` for an open journal, after `require_inputs`.

    With ``grows`` the search goes on from the cells of earlier searches, and the caller logs its
    end as ``log_to`` says.
    """
    with room_for(f"the files of the run in '{folder.path}'"):
        begin(experiment, folder, journal)
    shutil.rmtree(folder.embeddings, ignore_errors=True)  # also those of killed workers
    try:
        with ExitStack() as stack:
            start = next(entry for entry in journal.entries if isinstance(entry, RunStarted))
            # the same when the run goes on
            identity = content_key("tracked", start.key, start.at)
            names = () if grows else experiment.config.log_to
            log = stack.enter_context(
                trackers(names, experiment.config.name, identity, folder.path, display.say)
            )
            stack.enter_context(
                rolling.offline_workers(
                    location.rolling for location in experiment.missing.values()
                )
            )
            ran = _RunDriver(experiment, folder, journal, display, grows).drive(client, cluster)
            ended = latest(journal.entries, SearchEnded)
            if ended and ended.key == experiment.key:
                log_search(log, experiment, ended)
    finally:
        shutil.rmtree(folder.embeddings, ignore_errors=True)
    journal.append(RunFinished(experiment.key, time.time()))
    rolling.drop(location.rolling for location in experiment.locations.values())
    return ran


def require_inputs(experiment: Experiment) -> None:
    """Check that weights and data are here, or can be downloaded."""
    for task in experiment.tasks:
        if not task.is_local:
            task.texts()
    for model in experiment.config.models:
        pooling = model.pooling or experiment.config.protocol.pooling
        missing = [name.revision for name in experiment.missing if name.model == model.name]
        require_on_hub(model, missing, pooling)


def require_workers(client: Client, folder: Path, paths: Sequence[str], patience: float) -> str:
    """Check that workers can run the units; returns the resource that scoring occupies.

    That is ``CPU``; or ``GPU`` if no worker offers ``CPU``, since a machine with a GPU can score,
    too. The other way round there is no substitute: a worker that offers only ``CPU`` may stand
    beside GPU workers that come later.

    The workers must see the run's ``folder`` and these ``paths`` of this machine. The first is
    awaited for ``patience`` seconds. Each reason that they cannot run the units is a `ConfigError`.
    """
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError:
        raise ConfigError(
            f"No worker arrived within {patience:.0f} s: start some, for instance cluster.scale(2),"
            " or cluster.adapt(minimum=1) where their number follows the work."
        ) from None
    offered: set[str] = set()
    for worker in workers(client).values():
        resources = worker["resources"]
        if not resources.keys() & PLAIN.keys():
            resources = PLAIN
        offered |= {name for name, amount in resources.items() if amount}
    if "GPU" not in offered:
        raise ConfigError(
            "No worker offers the resource GPU, which models need. Start workers without resources,"
            ' or with: dask worker ... --resources "GPU=1 CPU=1" (also on machines without a GPU).'
            " If they have not arrived yet, wait for them first: client.wait_for_workers(N)."
        )
    # a folder of the same name on another disk does not count: workers look for a new file in it
    with marker(folder) as (file, text):
        first_unseen = client.run(_first_unseen, file, text, list(paths), on_error="ignore")
    for address, path in first_unseen.items():
        if path:
            raise ConfigError(
                f"The worker at {address} does not see '{path}' of this machine. Put"
                " the run, its models and its texts into a folder that all machines share."
            )
    return "CPU" if "CPU" in offered else "GPU"


def _first_unseen(marker: Path, text: str, paths: Sequence[str]) -> str | None:
    try:
        if appears(marker, text):
            return next((path for path in paths if not Path(path).exists()), None)
    except OSError:  # it is there, but this user cannot read it
        pass
    return str(marker.parent)


def begin(experiment: Experiment, folder: RunFolder, journal: Journal) -> None:
    """Write configuration, prompts and start into the run, and create the store with all recorded
    values.
    """
    config = experiment.config.as_dict()
    maintain.write_files(folder, config, experiment.prompts)
    journal.append(
        RunStarted(
            key=experiment.key,
            at=time.time(),
            name=experiment.config.name,
            arms=len(experiment.arms),
            checkpoints=len(experiment.checkpoints),
            tasks={
                task.name: {"kind": task.kind, "main_score": task.main_score}
                for task in experiment.tasks
            },
            widths=dict(experiment.widths),
            window=search.window(experiment, journal.entries),
            environment=environment(*PACKAGES),
            aliases={
                str(checkpoint): location.aliases
                for checkpoint, location in experiment.locations.items()
                if location.aliases
            },
            warnings=experiment.warnings,
            config=config,
            looks={look.name: look.look_of for look in experiment.looks},
        )
    )
    _lay_out(_plan(experiment), folder, journal)


def _lay_out(planned: StorePlan, folder: RunFolder, journal: Journal) -> None:
    """Create the store of this plan with all recorded values.

    An existing store of the same plan is kept unless its metadata is damaged; the journal records a
    new store. At the end of a run this makes the store equal to the journal, whatever happened to
    it meanwhile.
    """
    require_regular(folder.store, below=True)
    earlier = latest(journal.entries, StorePlan)
    is_kept = (
        earlier is not None
        and earlier.template.key == planned.template.key
        and not any(store.check_files(folder.store, earlier.files))
    )
    if not is_kept:
        store.create(folder.store, planned.template)
        journal.append(replace(planned, files=store.files_of(folder.store)))
    records = list(journal.records())
    store.restore(folder.store, "metrics", store.metric_blocks(planned, records))
    store.restore(folder.store, "scores", store.score_blocks(planned, records))


def _plan(experiment: Experiment) -> StorePlan:
    """The layout of the experiment's store, and the keys of the units that fill it."""
    config = experiment.config.as_dict()
    encode = {}
    for checkpoint in experiment.checkpoints:
        keys = (experiment.encode_key(checkpoint, task) for task in experiment.tasks)
        encode[str(checkpoint)] = tuple(keys)
    protocols: dict[str, object] = {}
    for suite in experiment.suites:
        by_revision = {
            checkpoint.revision: experiment.protocols[checkpoint].as_dict()
            for checkpoint in suite.checkpoints()
        }
        shared, *others = by_revision.values()
        is_shared = all(other == shared for other in others)
        protocols[suite.model] = shared if is_shared else by_revision
    attributes = {
        "name": experiment.config.name,
        "protocol": config["protocol"],
        "protocols": protocols,
        "corpus": {**config["corpus"], "key": experiment.prompts_key},
        "seed": experiment.config.seed,
        "environment": environment(*PACKAGES),
    }
    return StorePlan(
        template=experiment.template(attributes),
        version=VERSION,
        seed=experiment.config.seed,
        measure={str(checkpoint): key for checkpoint, key in experiment.measure_keys.items()},
        encode=encode,
    )


def started(config: Config, display: Display) -> AbstractContextManager[Client]:
    """A client of the configured cluster, which ends with the context."""
    return connect(
        config.cluster, config.name, display.say, on_start=display.message, page=RUN_PAGE
    )


def _sized(experiment: Experiment) -> Config:
    """The configuration, with one worker of this machine where the assumed work is small and no
    number of workers is set.

    Decisions follow the configured number (`search.window`), so that they stay the same.
    """
    config = experiment.config
    profile = config.cluster
    if profile.kind != "local" or "workers" in profile.model_fields_set or experiment.trainings:
        return config
    costs = CostModel("cpu")
    seconds = sum(
        measure.assumed_seconds(experiment, checkpoint, costs)
        for checkpoint in experiment.checkpoints
    )
    if experiment.tasks:
        seconds += search.build_problem(experiment).exhaustive_cost
    if seconds > SMALL_WORK:
        return config
    one_worker = profile.model_copy(update={"workers": 1})
    return config.model_copy(update={"cluster": one_worker})


@contextmanager
def _scores_written(
    path: Path, plan: StorePlan, records: Sequence[Record]
) -> Iterator[Callable[[Record], None]]:
    """A function that writes scores to the store once they are recorded, so that it can be read
    while the run goes on.

    It is their only writer. A thread writes what came meanwhile, a chunk for each checkpoint, and
    the driver does not wait for it. What cannot be written is left to the end of the run, when the
    store is made equal to the journal.
    """
    blocks = store.score_blocks(plan, records)
    waiting: queue.SimpleQueue[Record] = queue.SimpleQueue()

    def write() -> None:
        changed = set()
        while not waiting.empty():
            record = waiting.get()
            cell = Cell.parse(record.name)
            store.add_score(blocks, plan, cell, record)
            changed.add(cell.arm.checkpoint)
        for checkpoint in changed:
            store.write(path, "scores", checkpoint, blocks[checkpoint])

    with ThreadPoolExecutor(1) as thread:

        def add(record: Record) -> None:
            waiting.put(record)
            thread.submit(write)

        yield add


@dataclass
class _RunDriver:
    """Drives a run on a cluster: training, measuring, search."""

    experiment: Experiment
    folder: RunFolder
    journal: Journal
    display: Display
    grows: bool
    ran: int = 0  # units
    trained: int = 0  # steps

    def drive(self, given: Client | None, cluster: ExitStack) -> int:
        config = self.experiment.config
        self.plan = _plan(self.experiment)
        client = given
        if client is None:
            client = cluster.enter_context(started(_sized(self.experiment), self.display))
        self.downloads = rolling.Downloads(
            (location.rolling for location in self.experiment.locations.values()), self.display.say
        )
        with (
            Publisher(client, self.journal.entries, self.experiment.task_weights) as publisher,
            self.downloads,
        ):
            if given is not None or config.cluster.kind in ("existing", "factory"):
                scoring = require_workers(
                    client, self.folder.path, self._files(), config.cluster.patience
                )
                if scoring != self.experiment.scored_on:
                    self.display.say(
                        "No worker offers the resource CPU: the workers that offer GPU also score"
                        " the tasks."
                    )
                    self.experiment = replace(self.experiment, scored_on=scoring)
            self._train(client)
            self.client = client
            self.settings = Settings(
                slots=UNITS_PER_WORKER * max(config.cluster.workers, len(workers(client))),
                patience=config.cluster.patience,
                alone=True,  # two threads that import transformers at once get half of it
                most_memory=config.cluster.most_memory if given is None else 0,
            )
            self._measure(publisher)
            if self.experiment.tasks:
                self._search(publisher)
            self.journal.append(usage(client))
        with room_for(f"the store '{self.folder.store}'"):
            _lay_out(self.plan, self.folder, self.journal)
        return self.ran

    def _files(self) -> list[str]:
        """Files and folders of this machine that workers must see."""
        paths = {self.folder.path}
        for location in self.experiment.locations.values():
            for source in filter(None, (location, location.base)):
                if source.rolling:
                    paths.add(Path(source.rolling.folder).parent)
                else:
                    paths.add(Path(source.path))
        paths |= {Path(getattr(task, "path", self.folder.path)) for task in self.experiment.tasks}
        return sorted({str(path.absolute()) for path in paths if path.exists()})

    def _recorded(self) -> set[Key]:
        return {record.key for record in self.journal.records()}

    def _compute(self, source: Source, on_record: Callable[[Record], None]) -> None:
        run_source(
            source, self.client, self.journal, self.settings, on_record, self.display.message
        )

    def _train(self, client: Client) -> None:
        """Train the suites of several ranks by process groups; suites of one rank are work units of
        `_measure`.
        """
        trainings = self.experiment.trainings
        for suite in trainings.values():
            suite.claim()
        suites = {name: suite for name, suite in trainings.items() if suite.recipe.ranks > 1}
        train.train(client, self.experiment.config, self.display, suites, self.folder.telemetry)
        recorded = self._recorded()
        new = (record for record in train.records(suites) if record.key not in recorded)
        self.journal.append(*new)

    def _measure(self, publisher: Publisher) -> None:
        units = measure.units(self.experiment, self.folder, self.journal.records())
        recorded = self._recorded()
        shown = [unit for unit in units if unit.kind == "train" or self.experiment.metrics]
        kinds = [unit.kind for unit in shown]
        planned = {kind: kinds.count(kind) for kind in ("train", "measure")}
        self._steps = measure.steps_of(units)  # checkpoints may be at unequal distances
        steps = sum(self._steps.values())
        self.display.phase("train", steps, unit=f"of {steps} steps")
        measured = sum(unit.kind == "measure" and unit.key in recorded for unit in shown)
        self.display.phase("measure", planned["measure"], measured)
        publisher.send(UnitsPlanned(planned, self._steps))
        waiting = (unit for unit in units if unit.kind == "measure" and unit.key not in recorded)
        specs = (unit.args[0] for unit in waiting)
        self.downloads.expect(spec.location.rolling for spec in specs if spec.missing)
        sweep = Sweep(units)
        self._compute(sweep, self._show)
        for unit in sweep.blocked():
            self.display.message(
                f"[yellow]{unit.name} was not measured: the training of its suite failed[/]"
            )

    def _search(self, publisher: Publisher) -> None:
        experiment = self.experiment
        config = experiment.config.search
        records = list(self.journal.records())
        problem = search.problem(experiment, records)
        key = content_key("search", experiment.key, [str(arm) for arm in problem.arms])
        if config.budget == "auto":
            _, allowed = search.automatic_budget(problem)
            self.display.say(f"Budget {allowed}.")
        decided = search.decided(self.journal.entries, key)
        if self.grows:
            decided = search.carried_on(experiment, problem, decided, records)
        learner = Learner(
            problem,
            experiment.policy,
            budget=search.budget(config, problem, self.grows),
            window=search.window(experiment, self.journal.entries),
            seed=experiment.config.seed,
            decided=decided,
            confidence=config.confidence,
            within=config.within,
        )
        scratch = self.folder.embeddings.resolve()
        recorded = {record.key for record in records}
        source = search.SearchSource(experiment, learner, key, scratch, self.downloads, recorded)

        def percent() -> float:
            return min(100.0, 100 * learner.spent / learner.budget)

        self.display.phase("search", 100, int(percent()), unit="% of budget")
        publisher.send(SearchStarted(learner.budget, problem.exhaustive_cost, learner.spent))

        def show(record: Record) -> None:
            self._show(record, percent())
            publisher.send_computed(partial(search.posterior, experiment, learner))
            if record.kind == "score":
                write_score(record)

        with _scores_written(self.folder.store, self.plan, records) as write_score:
            self._compute(source, show)
        self.display.finish("search")
        learner.rebuild_posterior()  # the live posterior depends on the clock
        best = learner.recommendation()
        finalists: Sequence[Arm] = ()
        if experiment.fresh:
            finalists = self._score_fresh(learner, best)
            cost = search.fresh_cost(experiment, finalists)
            best = replace(best, spent=best.spent + cost, exhaustive=best.exhaustive + cost)
        self._conclude(learner, best, finalists)

    def _score_fresh(self, learner: Learner, best: Recommendation) -> Sequence[Arm]:
        """Score the finalists on the items kept back, and return them."""
        experiment = self.experiment
        cells = {
            experiment.score_key(pick.cell.arm, experiment.by_task[pick.cell.task]): pick.cell
            for pick in learner.picks
            if pick.cell.task in experiment.kinds
        }
        scores: dict[Arm, dict[str, Scored]] = {}
        for record, result in scored(self.journal.records()):
            if cell := cells.get(record.key):
                scores.setdefault(cell.arm, {})[cell.task] = result
        arms = search.finalists(experiment, best, scores)
        units = list(search.fresh_units(experiment, arms, self.folder.embeddings.resolve()))
        recorded = self._recorded()
        self.display.phase("fresh", len(units), sum(unit.key in recorded for unit in units))
        self._compute(Sweep(units), self._show)
        return arms

    def _conclude(self, learner: Learner, best: Recommendation, finalists: Sequence[Arm]) -> None:
        """Record the recommendation, with where the arm's weights are, for readers of the run."""
        experiment = self.experiment
        location = {
            **location_fields(experiment.locations[best.arm.checkpoint]),
            "depth": experiment.by_model[best.arm.model].depth,
            "protocol": experiment.protocols[best.arm.checkpoint].as_dict(),
        }
        self.journal.append(
            SearchEnded(
                key=experiment.key,
                location=location,
                **best.as_dict(),
                order=learner.outcome_order,
                kinds=[
                    {"kind": kind, "arm": arm.as_dict()}
                    for kind, arm in champions(learner.state, experiment.kinds).items()
                ],
                ending=learner.ending,
                fresh=[str(arm) for arm in finalists],
            )
        )

    def _show(self, record: Record, done: float | None = None) -> None:
        self.ran += 1
        if not record.ok:
            reason = escape(str(record.reason))
            self.display.message(
                f"[yellow]{record.kind} {record.name}: {record.status}, {reason}[/]"
            )
        if record.kind == "train":
            self.trained += self._steps[record.name]
            done = self.trained
        phase = {"score": "search", "look": "search"}.get(record.kind, record.kind)
        self.display.advance(phase, record_text(record), done)
