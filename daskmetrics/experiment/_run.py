"""An experiment from its configuration to its recommendation, resumable at any point."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from distributed import Client
from rich.markup import escape

from daskmetrics import store
from daskmetrics.checkpoints import rolling
from daskmetrics.checkpoints.hub import require_on_hub
from daskmetrics.cluster.connection import connect
from daskmetrics.config import Config
from daskmetrics.core.errors import room_for
from daskmetrics.core.files import RunFolder, private, require_regular
from daskmetrics.core.keys import content_key
from daskmetrics.core.machine import environment, usage
from daskmetrics.dashboard import RUN_PAGE
from daskmetrics.domain.costs import CostModel
from daskmetrics.domain.events import (
    RunFinished,
    RunStarted,
    StoreCreated,
    UsageMeasured,
    earliest,
    ended_search,
    is_finished,
    latest,
)
from daskmetrics.domain.plan import Plan
from daskmetrics.execution import Journal
from daskmetrics.execution.display import Display
from daskmetrics.execution.journal import read
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.experiment import measure, phases, problem
from daskmetrics.experiment._trackers import log_search, require_trackers, trackers
from daskmetrics.experiment.preparation import Experiment

PACKAGES = ("daskmetrics", "torch", "transformers", "distributed", "zarr", "numpy", "scikit-learn")
# assumed seconds of work below which a second worker would not pay for its start
SMALL_WORK = 10.0


def run(
    experiment: Experiment,
    folder: RunFolder,
    display: Display,
    client: Client | None = None,
    cluster: ExitStack | None = None,
) -> int:
    """Measure every checkpoint, search the best arm, and record it.

    It returns the number of units that ran; the recommendation is in the journal. Recorded units
    are not computed again; a finished run is not changed. The workers of a given ``client`` are
    checked first; by default the run starts the configured cluster, and ends it once all is
    recorded, or leaves this and the run's lock to the end of ``cluster``. After a `StorageError` or
    a `ClusterLostError` the same call resumes; a `DaskmetricsError` says that no checkpoint could
    be measured.
    """
    entries = list(read(folder.journal))
    if is_finished(entries, experiment.plan.key):
        finished = latest(entries, Plan)
        if finished and any(maintain.check_files(folder, entries)):
            maintain.write_files(folder, finished.config, experiment.prompts)
        return 0
    require_inputs(experiment)
    require_trackers(experiment.config.log_to)
    problem.check(experiment)
    folder.create()
    with ExitStack() as stack:
        cluster = cluster or stack
        stack.enter_context(private())
        journal = cluster.enter_context(Journal(folder.journal, folder.lock))
        for notice in journal.notices:
            display.say(notice)
        for encoder in _edited(latest(entries, Plan), experiment.plan):
            display.say(f"{encoder}: Its code has changed. What it gave is computed again.")
        for warning in experiment.plan.warnings:
            display.message(f"[yellow]{escape(warning)}[/]")
        return continue_run(experiment, folder, journal, display, client, cluster)


def _edited(earlier: Plan | None, plan: Plan) -> Iterator[str]:
    """The encoders that have another version of their code than in an earlier plan."""
    if earlier is None:
        return
    for model, protocol in plan.protocols.items():
        before = earlier.protocols.get(model, {})
        is_one = "encoder" in protocol and protocol["encoder"] == before.get("encoder")
        if is_one and protocol["version"] != before["version"]:
            yield protocol["encoder"]


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
        plan = begin(experiment.plan, experiment.prompts, folder, journal)
        experiment = replace(experiment, plan=plan)
    config = experiment.config
    start = earliest(journal.entries, RunStarted)
    # the same when the run goes on
    identity = content_key("tracked", earliest(journal.entries, Plan).key, start.at)
    names = () if grows else config.log_to
    missing = (location.rolling for location in experiment.missing.values())
    shutil.rmtree(folder.embeddings, ignore_errors=True)  # also those of killed workers
    try:
        with (
            trackers(names, config.name, identity, folder.path, display.say) as log,
            rolling.offline_workers(missing),
        ):
            is_given = client is not None
            client = client or cluster.enter_context(started(_sized(experiment), display))
            with phases.session(experiment, folder, journal, display, client, is_given) as session:
                phases.train_and_measure(session)
                if experiment.tasks:
                    phases.search_best(session, grows)
                journal.append(UsageMeasured(usage(client)))
            with room_for(f"the store '{folder.store}'"):
                lay_out(plan, folder, journal)
            if ended := ended_search(journal.entries, plan.key):
                log_search(log, plan, ended)
    finally:
        shutil.rmtree(folder.embeddings, ignore_errors=True)
    journal.append(RunFinished(plan.key, time.time()))
    rolling.drop(location.rolling for location in experiment.locations.values())
    return len(session.ran)


def require_inputs(experiment: Experiment) -> None:
    """Check that weights and data are here, or can be downloaded."""
    for task in experiment.tasks:
        if not task.is_local:
            task.texts()
    for model in experiment.config.models:
        pooling = model.pooling or experiment.config.protocol.pooling
        missing = [name.revision for name in experiment.missing if name.model == model.name]
        require_on_hub(model, missing, pooling)


def begin(plan: Plan, prompts: Sequence[str], folder: RunFolder, journal: Journal) -> Plan:
    """Write a run's files and its start, and create the store.

    The files are configuration, prompts and plan; the store has all recorded values. It returns the
    plan.
    """
    maintain.write_files(folder, plan.config, prompts)
    earlier = [entry for entry in journal.entries if isinstance(entry, Plan)]
    plan = plan.after(earlier)
    if earlier[-1:] != [plan]:
        journal.append(plan)
    journal.append(RunStarted(time.time(), environment(*PACKAGES)))
    lay_out(plan, folder, journal)
    return plan


def lay_out(plan: Plan, folder: RunFolder, journal: Journal) -> None:
    """Create the store of a plan with all recorded values.

    An existing store of this plan is kept unless its metadata is damaged; the journal records a new
    one. At the end of a run this makes the store equal to the journal, whatever happened to it
    meanwhile.
    """
    require_regular(folder.store, below=True)
    earlier = latest(journal.entries, StoreCreated)
    is_kept = (
        earlier is not None
        and earlier.key == plan.store_key
        and not any(store.check_files(folder.store, earlier.files))
    )
    if not is_kept:
        started = latest(journal.entries, RunStarted)
        store.create(folder.store, plan, started.environment if started else {})
        journal.append(StoreCreated(plan.store_key, store.files_of(folder.store)))
    records = list(journal.records())
    store.restore(folder.store, "metrics", store.metric_blocks(plan, records))
    store.restore(folder.store, "scores", store.score_blocks(plan, records))


def started(config: Config, display: Display) -> AbstractContextManager[Client]:
    """A client of the configured cluster, which ends with the context."""
    return connect(
        config.cluster, config.name, display.say, on_start=display.message, page=RUN_PAGE
    )


def _sized(experiment: Experiment) -> Config:
    """The configuration, with one local worker where work is small.

    That holds if no number of workers is set. Decisions follow the configured number
    (`search.window`), so that they stay the same.
    """
    config = experiment.config
    profile = config.cluster
    if profile.kind != "local" or "workers" in profile.model_fields_set or experiment.trainings:
        return config
    costs = CostModel("cpu")
    seconds = sum(
        measure.assumed_seconds(experiment, checkpoint, costs)
        for checkpoint in experiment.plan.checkpoints
    )
    if experiment.tasks:
        seconds += problem.build_problem(experiment).exhaustive_cost
    if seconds > SMALL_WORK:
        return config
    one_worker = profile.model_copy(update={"workers": 1})
    return config.model_copy(update={"cluster": one_worker})
