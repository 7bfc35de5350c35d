"""One experiment from its configuration to its recommendation, resumable at any point."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import yaml
from distributed import Client
from rich.markup import escape

from daskmetrics import store
from daskmetrics.bandit import Learner, champions
from daskmetrics.cluster._connect import connect
from daskmetrics.config._checkpoints import require_on_hub
from daskmetrics.core._environment import environment
from daskmetrics.core._events import (
    RunFinished,
    RunStarted,
    SearchEnded,
    SearchStarted,
    UnitsPlanned,
    UsageMeasured,
)
from daskmetrics.core._files import RunFolder, atomic_write, private
from daskmetrics.core._workers import workers
from daskmetrics.core.errors import room_for
from daskmetrics.core.names import Arm
from daskmetrics.dashboard import Feed
from daskmetrics.execution import Journal, Record, Settings, Sweep
from daskmetrics.execution import run as run_source
from daskmetrics.execution._journal import is_finished, read
from daskmetrics.experiment import _measure as measure
from daskmetrics.experiment import _search as searching
from daskmetrics.experiment import _train as train
from daskmetrics.experiment._prepare import VERSION, Experiment
from daskmetrics.experiment._progress import Display, record_text

PACKAGES = ("daskmetrics", "torch", "transformers", "distributed", "zarr", "numpy", "scikit-learn")
UNITS_PER_WORKER = 2  # one running and one waiting, so that no worker idles while the driver thinks


@dataclass(frozen=True)
class Outcome:
    """How a call of `run` ended: what it computed anew, and whether there was anything to do."""

    computed: int
    failed: int

    @property
    def nothing_to_do(self) -> bool:
        return self.computed == 0 and self.failed == 0


def run(experiment: Experiment, folder: RunFolder, display: Display, client: Client | None = None) -> Outcome:
    """Measure every checkpoint, search the best arm, and journal the recommendation.

    What the run's journal already holds is not computed again; a finished run is left as it is.

    Parameters
    ----------
    experiment : Experiment
        As `prepare` gives it.
    folder : RunFolder
        Where the run lives; made if it does not exist.
    display : Display
        Where progress is shown.
    client : distributed.Client, optional
        Of a cluster that `connect` made and that outlives the run; by default the run has its own.

    Raises
    ------
    ConfigError
        If weights or a task's data cannot be had, or no worker arrives.
    LockedError
        If another driver holds the run.
    DiskFullError
        If there is no room for the run's files.
    ClusterLostError
        If the scheduler goes away; run again to resume.
    DaskmetricsError
        If not one checkpoint could be measured.
    """
    if folder.journal.exists() and is_finished(read(folder.journal), experiment.key):
        return Outcome(0, 0)
    _require_inputs(experiment)
    folder.create()
    with private(), Journal(folder.journal, folder.lock) as journal:
        for notice in journal.notices:
            display.message(escape(notice))
        with room_for(f"the files of the run in '{folder.path}'"):
            begin(experiment, folder, journal)
        with _scratch(folder), _hub_left_alone(experiment):
            outcome = _Driver(experiment, folder, journal, display).drive(client)
        journal.append(RunFinished(experiment.key, time.time()))
    return outcome


@contextmanager
def _scratch(folder: RunFolder) -> Iterator[None]:
    """What killed workers left of embeddings goes, before and afterwards."""
    shutil.rmtree(folder.embeddings, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(folder.embeddings, ignore_errors=True)


@contextmanager
def _hub_left_alone(experiment: Experiment) -> Iterator[None]:
    """Workers that start meanwhile do not ask the hub for what is here; each such question can take a minute."""
    before = os.environ.get("HF_HUB_OFFLINE")
    if not experiment.missing:
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("HF_HUB_OFFLINE", None)
        else:
            os.environ["HF_HUB_OFFLINE"] = before


def _require_inputs(experiment: Experiment) -> None:
    """Stop now, and not in the middle, if weights or data are neither here nor to be had."""
    for task in experiment.tasks:
        if not task.is_local:
            task.texts()
    for model in experiment.config.models:
        require_on_hub(model, experiment.missing.get(model.name, ()))


def begin(experiment: Experiment, folder: RunFolder, journal: Journal) -> None:
    """Write down what is going to be done, and lay out the store with everything that is known already."""
    config = experiment.config.as_dict()
    atomic_write(folder.config, yaml.safe_dump(config, sort_keys=False))
    atomic_write(folder.corpus, json.dumps(experiment.prompts))
    journal.append(
        RunStarted(
            key=experiment.key,
            at=time.time(),
            name=experiment.config.name,
            arms=len(experiment.arms),
            checkpoints=len(experiment.checkpoints),
            tasks={task.name: {"kind": task.kind, "main_score": task.main_score} for task in experiment.tasks},
            widths=dict(experiment.widths),
            window=searching.window(experiment, journal.entries),
            environment=environment(*PACKAGES),
        )
    )
    _lay_out(_plan(experiment), folder, journal)


def _plan(experiment: Experiment) -> store.Plan:
    config = experiment.config.as_dict()
    attributes = {
        "name": experiment.config.name,
        "protocol": config["protocol"],
        "corpus": {**config["corpus"], "key": experiment.prompts_key},
        "seed": experiment.config.seed,
        "environment": environment(*PACKAGES),
    }
    return _store_plan(experiment, attributes)


class _Driver:
    """The run on a living cluster."""

    def __init__(self, experiment: Experiment, folder: RunFolder, journal: Journal, display: Display) -> None:
        self.experiment, self.folder, self.journal, self.display = experiment, folder, journal, display
        self.computed = self.failed = 0

    def drive(self, given: Client | None) -> Outcome:
        profile = self.experiment.config.cluster
        own = self._workers_of_its_own() if given is None else nullcontext(given)
        with own as client, Feed(client, self.journal.entries) as feed:
            self._train(client)
            slots = UNITS_PER_WORKER * max(profile.workers, len(workers(client)))
            settings = Settings(slots=slots, patience=profile.patience)
            self._measure(client, settings, feed)
            if self.experiment.tasks:
                self._search(client, settings, feed)
            self.journal.append(_usage(client))
        self._complete_store()
        return Outcome(self.computed, self.failed)

    def _workers_of_its_own(self) -> AbstractContextManager[Client]:
        config = self.experiment.config
        return connect(config.cluster, config.name, self._warn, on_start=self.display.message)

    def _train(self, client: Client) -> None:
        """Suites of several ranks, by process groups; those of one rank are units beside the measuring."""
        for each in self.experiment.trainings.values():
            each.claim()
        own = {name: each for name, each in self.experiment.trainings.items() if each.recipe.ranks > 1}
        train.train(client, self.experiment.config, self.display, own)
        known = {record.key for record in self.journal.records()}
        for record in train.records(own):
            if record.key not in known:
                self.journal.append(record)

    def _warn(self, text: str) -> None:
        self.display.message(escape(text))

    def _measure(self, client: Client, settings: Settings, feed: Feed) -> None:
        units = measure.units(self.experiment, self.folder, self.journal.records())
        known = {record.key for record in self.journal.records()}
        planned = {kind: [unit for unit in units if unit.kind == kind] for kind in ("train", "measure")}
        feed.note(UnitsPlanned({kind: len(own) for kind, own in planned.items()}))
        for kind, own in planned.items():
            self.display.phase(kind, len(own), sum(unit.key in known for unit in own))
        sweep = Sweep(units)
        run_source(sweep, client, self.journal, settings, self._show, self.display.message)
        for unit in sweep.blocked():
            self.display.message(f"[yellow]{unit.name} was not measured, since training its suite failed[/]")

    def _search(self, client: Client, settings: Settings, feed: Feed) -> None:
        config = self.experiment.config.search
        problem = searching.problem(self.experiment, self.journal.records())
        key = searching.search_key(self.experiment, problem)
        campaign = Learner(
            problem,
            self.experiment.policy,
            budget=searching.budget(config),
            window=searching.window(self.experiment, self.journal.entries),
            seed=self.experiment.search_seed,
            decided=searching.decided(self.journal.entries, key),
            confidence=config.confidence,
            within=config.within,
            free_running=config.free_running,
        )
        search = searching.Search(self.experiment, campaign, key, self.folder.embeddings.resolve())
        self.display.phase("search", math.ceil(campaign.budget))  # in the cost that the budget is counted in

        feed.note(SearchStarted(campaign.budget, problem.exhaustive_cost, campaign.spent))

        def show(record: Record) -> None:
            self._show(record, campaign.spent)
            feed.think(partial(searching.belief, self.experiment, campaign))

        run_source(search, client, self.journal, settings, show, self.display.message)
        campaign.rebuild_posterior()  # which the clock decided
        best = campaign.recommendation()
        self.journal.append(
            SearchEnded(
                key=self.experiment.key,
                location=self._location(best.arm),
                **best.as_dict(),
                order=campaign.outcome_order,
                kinds=[asdict(each) for each in champions(campaign.state, self.experiment.kinds)],
            )
        )

    def _location(self, arm: Arm) -> dict[str, Any]:
        """What a reader needs to load an arm."""
        location = self.experiment.locations[arm.checkpoint]
        depth = next(suite.depth for suite in self.experiment.suites if suite.model == arm.model)
        return {"path": location.path, "revision": location.revision, "depth": depth}

    def _show(self, record: Record, spent: float | None = None) -> None:
        self.computed += record.ok
        self.failed += not record.ok
        if not record.ok:
            self.display.message(
                f"[yellow]{record.kind} {record.name}: {record.status}, {escape(str(record.reason))}[/]"
            )
        self.display.advance("search" if record.kind == "score" else record.kind, record_text(record), spent)

    def _complete_store(self) -> None:
        """Make the store equal to the journal, whatever happened to it, and ready for readers."""
        records, planned = list(self.journal.records()), _plan(self.experiment)
        with room_for(f"the store '{self.folder.store}'"):
            store.restore(self.folder.store, "metrics", planned.metric_blocks(records))
            if self.experiment.tasks:
                store.restore(self.folder.store, "scores", planned.score_blocks(records))
            store.finish(self.folder.store, {})


def _store_plan(experiment: Experiment, attributes: Mapping[str, Any]) -> store.Plan:
    """What the store of this experiment is to hold, and the keys of the units that fill it."""
    return store.Plan(
        template=experiment.template(attributes),
        version=VERSION,
        seed=experiment.config.seed,
        measure={
            str(checkpoint): experiment.measure_key(suite, checkpoint)
            for suite in experiment.suites
            for checkpoint in suite.checkpoints()
        },
        encode={
            str(checkpoint): tuple(experiment.encode_key(checkpoint, task) for task in experiment.tasks)
            for checkpoint in experiment.checkpoints
        },
    )


def _lay_out(planned: store.Plan, folder: RunFolder, journal: Journal) -> None:
    """Have a sound store for this plan, with the metrics in it that the journal vouches for.

    A store that is there is kept, unless its metadata was damaged; of a new one the journal learns what it is.
    """
    known = store.Plan.latest(journal.entries)
    same = known is not None and known.template.key == planned.template.key
    new = store.create(folder.store, planned.template)
    if known is not None and same and not new and any(store.check_files(folder.store, known.files)):
        store.lay_out(folder.store, planned.template)
        new = True
    if new or not same:
        journal.append(dataclasses.replace(planned, files=store.files_of(folder.store)).event())
    store.restore(folder.store, "metrics", planned.metric_blocks(journal.records()))


def _used() -> dict[str, Any]:
    """CPU seconds and largest memory of this process, in bytes; of a GPU only what torch took there."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": own.ru_utime + own.ru_stime,
        "memory": own.ru_maxrss * 1024,
        "cpus": len(os.sched_getaffinity(0)),
        "gpu_memory": _gpu_memory(),
    }


def _gpu_memory() -> int | None:
    torch = sys.modules.get("torch")  # not imported for this
    return int(torch.cuda.max_memory_reserved()) if torch and torch.cuda.is_initialized() else None


def _usage(client: Client) -> UsageMeasured:
    """What the workers have used so far; one that leaves meanwhile is left out."""
    names = {address: str(worker["name"]) for address, worker in workers(client).items()}
    told = client.run(_used, on_error="ignore")
    return UsageMeasured({names[a]: own for a, own in told.items() if a in names})
