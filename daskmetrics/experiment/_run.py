"""An experiment from its configuration to its recommendation, resumable at any point."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from distributed import Client
from rich.markup import escape

from daskmetrics import store
from daskmetrics.bandit import (
    Learner,
    Pick,
    Problem,
    Recommendation,
    champions,
)
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.hub import require_on_hub
from daskmetrics.checkpoints.locations import recorded
from daskmetrics.checkpoints.shipped import require_known
from daskmetrics.cluster.connection import connect
from daskmetrics.core.errors import room_for
from daskmetrics.core.events import (
    RunFinished,
    RunStarted,
    SearchEnded,
    SearchStarted,
    UnitsPlanned,
    is_finished,
    latest,
    scored,
)
from daskmetrics.core.files import RunFolder, private
from daskmetrics.core.machine import environment, usage, workers
from daskmetrics.core.names import Arm, Key, without_default
from daskmetrics.core.results import Scored
from daskmetrics.dashboard import RUN_PAGE, Publisher
from daskmetrics.execution import Journal, Record, Settings, Sweep
from daskmetrics.execution import run as run_source
from daskmetrics.execution.display import Display
from daskmetrics.execution.journal import read
from daskmetrics.experiment import _downloads
from daskmetrics.experiment import _fresh as fresh
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.experiment import measure as measure
from daskmetrics.experiment import search as search
from daskmetrics.experiment import train as train
from daskmetrics.experiment._worker import record_text
from daskmetrics.experiment.clients import require_workers
from daskmetrics.experiment.preparation import VERSION, Experiment

PACKAGES = ("daskmetrics", "torch", "transformers", "distributed", "zarr", "numpy", "scikit-learn")
# one running and one waiting, so that no worker is idle while the driver decides
UNITS_PER_WORKER = 2


@dataclass(frozen=True)
class RunResult:
    """The result of a call of `run`: how many units were computed, and how many failed."""

    computed: int
    failed: int

    @property
    def nothing_to_do(self) -> bool:
        return self.computed == 0 and self.failed == 0


def run(
    experiment: Experiment, folder: RunFolder, display: Display, client: Client | None = None
) -> RunResult:
    """Measure every checkpoint, search the best arm, and record the recommendation in the journal.

    Recorded units are not computed again; a finished run is not changed. The workers of a given
    ``client`` are checked first; by default the run starts the configured cluster and ends it.
    After a `DiskFullError` or a `ClusterLostError` the same call resumes; a `DaskmetricsError` says
    that no checkpoint could be measured.
    """
    entries = list(read(folder.journal)) if folder.journal.exists() else []
    if is_finished(entries, experiment.key):
        start = latest(entries, RunStarted)
        if start and start.config and any(maintain.check_files(folder, entries)):
            maintain.write_files(folder, start.config, experiment.prompts)
        return RunResult(0, 0)
    require_inputs(experiment)
    search.check(experiment)
    folder.create()
    with private(), Journal(folder.journal, folder.lock) as journal:
        for notice in journal.notices:
            display.message(escape(notice))
        for warning in experiment.warnings:
            display.message(f"[yellow]{escape(warning)}[/]")
        return continue_run(experiment, folder, journal, display, client)


def continue_run(
    experiment: Experiment,
    folder: RunFolder,
    journal: Journal,
    display: Display,
    client: Client | None = None,
    on_record: Callable[[Record], None] = lambda record: None,
    grows: bool = False,
) -> RunResult:
    """`run` for an open journal, after `require_inputs`.

    With ``grows`` the search goes on from the cells of earlier searches; ``on_record`` is called
    with each new record.
    """
    with room_for(f"the files of the run in '{folder.path}'"):
        begin(experiment, folder, journal)
    shutil.rmtree(folder.embeddings, ignore_errors=True)  # also those of killed workers
    try:
        with rolling.offline_workers(experiment.missing_locations):
            result = _RunDriver(experiment, folder, journal, display, on_record, grows).drive(
                client
            )
    finally:
        shutil.rmtree(folder.embeddings, ignore_errors=True)
    journal.append(RunFinished(experiment.key, time.time()))
    rolling.drop(experiment.locations.values())
    return result


def require_inputs(experiment: Experiment) -> None:
    """Check that weights and data are here, or can be downloaded, and that the budget suffices."""
    for task in experiment.tasks:
        if not task.is_local:
            task.texts()
    for model in experiment.config.models:
        missing = experiment.missing.get(model.name, ())
        require_on_hub(model, missing)
        require_known(experiment.config.protocol, model, missing)
    if experiment.fresh:
        # a budget that is too small is an error now, not after the search
        fresh.allotment_of(experiment)


def begin(experiment: Experiment, folder: RunFolder, journal: Journal) -> None:
    """Write configuration, prompts and start into the run, and create the store with all recorded
    metrics.
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
            aliases={str(checkpoint): names for checkpoint, names in experiment.aliases.items()},
            warnings=experiment.warnings,
            config=config,
        )
    )
    _lay_out(_plan(experiment), folder, journal)


def _plan(experiment: Experiment) -> store.StorePlan:
    """The layout of the experiment's store, and the keys of the units that fill it."""
    config = experiment.config.as_dict()
    encode = {}
    for checkpoint in experiment.checkpoints:
        keys = (experiment.encode_key(checkpoint, task) for task in experiment.tasks)
        encode[str(checkpoint)] = tuple(keys)
    attributes = {
        "name": experiment.config.name,
        "protocol": config["protocol"],
        "protocols": _recorded_protocols(experiment),
        "corpus": {**config["corpus"], "key": experiment.prompts_key},
        "seed": experiment.config.seed,
        "environment": environment(*PACKAGES),
    }
    return store.StorePlan(
        template=experiment.template(attributes),
        version=VERSION,
        seed=experiment.config.seed,
        measure={str(checkpoint): key for checkpoint, key in experiment.measure_keys.items()},
        encode=encode,
    )


def _recorded_protocols(experiment: Experiment) -> dict[str, Any]:
    """What was done for each model: one protocol, or one for each revision if they differ."""
    protocols: dict[str, dict[str, Any]] = {suite.model: {} for suite in experiment.suites}
    for checkpoint, protocol in experiment.protocols.items():
        protocols[checkpoint.model][checkpoint.revision] = protocol.as_dict()
    for model, by_revision in protocols.items():
        shared, *others = by_revision.values()
        if all(other == shared for other in others):
            protocols[model] = shared
    return protocols


@dataclass
class _RunDriver:
    """Drives a run on a cluster: training, measuring, search."""

    experiment: Experiment
    folder: RunFolder
    journal: Journal
    display: Display
    on_record: Callable[[Record], None]
    grows: bool
    computed: int = 0
    failed: int = 0

    def drive(self, given: Client | None) -> RunResult:
        config = self.experiment.config
        cluster: AbstractContextManager[Client] = nullcontext(given)
        if given is None:
            cluster = connect(
                config.cluster, config.name, self._say, on_start=self.display.message, page=RUN_PAGE
            )
        downloads = self.downloads = rolling.Downloads(
            self.experiment.locations.values(), self._say
        )
        with (
            cluster as client,
            Publisher(client, self.journal.entries, self.experiment.task_weights) as publisher,
            downloads,
        ):
            if given is not None or config.cluster.kind in ("existing", "factory"):
                scoring = require_workers(
                    client, self.folder.path, self._files(), config.cluster.patience
                )
                if scoring != self.experiment.scored_on:
                    self._say(
                        "No worker offers the resource CPU: the workers that offer GPU also score the tasks."
                    )
                    self.experiment = replace(self.experiment, scored_on=scoring)
            self._train(client)
            slots = UNITS_PER_WORKER * max(config.cluster.workers, len(workers(client)))
            settings = Settings(
                slots=slots,
                patience=config.cluster.patience,
                alone=True,  # two threads that import transformers at once get half of it
                most_memory=config.cluster.most_memory if given is None else 0,
            )
            self._measure(client, settings, publisher)
            if self.experiment.tasks:
                self._search(client, settings, publisher)
            self.journal.append(usage(client))
        self._complete_store()
        return RunResult(self.computed, self.failed)

    def _say(self, text: str) -> None:
        self.display.message(escape(text))

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

    def _train(self, client: Client) -> None:
        """Train the suites of several ranks by process groups; suites of one rank are work units of
        `_measure`.
        """
        for suite in self.experiment.trainings.values():
            suite.claim()
        suites = {
            name: suite
            for name, suite in self.experiment.trainings.items()
            if suite.recipe.ranks > 1
        }
        train.train(client, self.experiment.config, self.display, suites, self.folder.telemetry)
        recorded = {record.key for record in self.journal.records()}
        for record in train.records(suites):
            if record.key not in recorded:
                self.journal.append(record)

    def _measure(self, client: Client, settings: Settings, publisher: Publisher) -> None:
        units = measure.units(self.experiment, self.folder, self.journal.records())
        recorded = {record.key for record in self.journal.records()}
        measuring = [unit for unit in units if unit.kind == "measure"]
        shown = {"train": [unit for unit in units if unit.kind == "train"], "measure": []}
        if self.experiment.metrics:
            shown["measure"] = measuring
        publisher.send(UnitsPlanned({kind: len(of_kind) for kind, of_kind in shown.items()}))
        for kind, of_kind in shown.items():
            self.display.phase(kind, len(of_kind), sum(unit.key in recorded for unit in of_kind))
        specs = (unit.args[0] for unit in measuring if unit.key not in recorded)
        self.downloads.expect(spec.location for spec in specs if spec.missing)
        sweep = Sweep(units)
        run_source(sweep, client, self.journal, settings, self._show, self.display.message)
        for unit in sweep.blocked():
            self.display.message(
                f"[yellow]{unit.name} was not measured: the training of its suite failed[/]"
            )
        if text := _downloads.spared(self.journal.records()):
            self._say(text)

    def _search(self, client: Client, settings: Settings, publisher: Publisher) -> None:
        config = self.experiment.config.search
        problem = search.problem(self.experiment, self.journal.records())
        key = search.search_key(self.experiment, problem)
        limits = search.budget(config, problem, self.grows)
        allotted = None
        if config.budget == "auto":
            self._say(f"Budget {search.automatic_budget(problem)}.")
        if self.experiment.fresh:
            allotted = fresh.allotment_of(self.experiment, problem.exhaustive_cost)
            limits = replace(limits, share=None, cost=allotted.search)
        learner = Learner(
            problem,
            self.experiment.policy,
            budget=limits,
            window=search.window(self.experiment, self.journal.entries),
            seed=self.experiment.config.seed,
            decided=self._decided(problem, key),
            confidence=config.confidence,
            within=config.within,
        )
        source = search.SearchSource(
            self.experiment, learner, key, self.folder.embeddings.resolve()
        )
        share = 100 / learner.budget
        self.display.phase("search", 100, min(100, int(learner.spent * share)), unit="% of budget")
        publisher.send(SearchStarted(learner.budget, problem.exhaustive_cost, learner.spent))

        def show(record: Record) -> None:
            self._show(record, min(100.0, learner.spent * share))
            publisher.send_computed(partial(search.posterior, self.experiment, learner))

        ahead = _downloads.Expecting(source, self.downloads, self.journal.records())
        run_source(ahead, client, self.journal, settings, show, self.display.message)
        self.display.finish("search")
        learner.rebuild_posterior()  # the live posterior depends on the clock
        best = learner.recommendation()
        finalists: tuple[Arm, ...] = ()
        if allotted:
            finalists, best = self._score_fresh(client, settings, learner, best, allotted)
        self.journal.append(
            SearchEnded(
                key=self.experiment.key,
                location=self._location(best.arm),
                **best.as_dict(),
                order=learner.outcome_order,
                kinds=[
                    asdict(champion, dict_factory=without_default)
                    for champion in champions(learner.state, self.experiment.kinds)
                ],
                ending=learner.ending,
                fresh=[str(arm) for arm in finalists],
            )
        )

    def _decided(self, problem: Problem, key: Key) -> list[Pick]:
        decided = search.decided(self.journal.entries, key)
        if self.grows:
            return search.carried_on(self.experiment, problem, decided, self.journal.records())
        return decided

    def _score_fresh(
        self,
        client: Client,
        settings: Settings,
        learner: Learner,
        best: Recommendation,
        allotted: fresh.Allotment,
    ) -> tuple[tuple[Arm, ...], Recommendation]:
        """Score the finalists on the items kept back; returns them, and the recommendation with the
        whole cost.
        """
        experiment = self.experiment
        problem = fresh.problem(experiment)
        picked = [pick.cell for pick in learner.picks]
        cells = {
            experiment.score_key(cell.arm, experiment.by_task[cell.task]): cell for cell in picked
        }
        scores: dict[Arm, dict[str, Scored]] = {}
        for record, result in scored(self.journal.records()):
            if cell := cells.get(record.key):
                scores.setdefault(cell.arm, {})[cell.task] = result
        arms, cost = fresh.finalists(best, scores, problem, allotted.total - best.spent)
        units = list(fresh.units(experiment, arms, problem, self.folder.embeddings.resolve()))
        recorded = {record.key for record in self.journal.records()}
        self.display.phase("fresh", len(units), sum(unit.key in recorded for unit in units))
        run_source(Sweep(units), client, self.journal, settings, self._show, self.display.message)
        return arms, replace(
            best,
            spent=best.spent + cost,
            budget=allotted.total,
            exhaustive=allotted.exhaustive,
        )

    def _location(self, arm: Arm) -> dict[str, Any]:
        """Where an arm's weights are, for readers of the run."""
        return {
            **recorded(self.experiment.locations[arm.checkpoint]),
            "depth": self.experiment.by_model[arm.model].depth,
            "protocol": self.experiment.protocols[arm.checkpoint].as_dict(),
        }

    def _show(self, record: Record, spent: float | None = None) -> None:
        self.computed += record.ok
        self.failed += not record.ok
        self.on_record(record)
        if not record.ok:
            reason = escape(str(record.reason))
            self.display.message(
                f"[yellow]{record.kind} {record.name}: {record.status}, {reason}[/]"
            )
        phase = "search" if record.kind == "score" else record.kind
        self.display.advance(phase, record_text(record), spent)

    def _complete_store(self) -> None:
        """Make the store equal to the journal."""
        records = list(self.journal.records())
        planned = _plan(self.experiment)
        with room_for(f"the store '{self.folder.store}'"):
            store.restore(self.folder.store, "metrics", planned.metric_blocks(records))
            if self.experiment.tasks:
                store.restore(self.folder.store, "scores", planned.score_blocks(records))


def _lay_out(planned: store.StorePlan, folder: RunFolder, journal: Journal) -> None:
    """Create the store of this plan with all recorded metrics.

    An existing store of the same plan is kept unless its metadata is damaged; the journal records a
    new store.
    """
    earlier = store.StorePlan.latest(journal.entries)
    same = earlier is not None and earlier.template.key == planned.template.key
    new = store.create(folder.store, planned.template)
    if earlier is not None and same and not new:
        new = any(store.check_files(folder.store, earlier.files))
        if new:
            store.lay_out(folder.store, planned.template)
    if new or not same:
        journal.append(replace(planned, files=store.files_of(folder.store)).event())
    store.restore(folder.store, "metrics", planned.metric_blocks(journal.records()))
