"""The first source of work: train what is to be trained, and measure every checkpoint once it is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

import daskmetrics.training as training
from daskmetrics.config._checkpoints import Location
from daskmetrics.core._files import RunFolder
from daskmetrics.core.names import Checkpoint, Key, Suite, content_key
from daskmetrics.execution import Record, WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment._columns import Column, known_columns
from daskmetrics.experiment._prepare import Experiment


def units(experiment: Experiment, folder: RunFolder, records: Iterable[Record]) -> list[WorkUnit]:
    """Every work unit of the measuring phase, in the order in which they are best begun.

    Training comes first, largest model foremost, since its steps can only follow each other.
    """
    records = tuple(records)
    trained = Counter(record.name for record in records if record.kind == "train")
    chains = {suite.model: _training_chain(experiment, suite, trained) for suite in experiment.suites}
    longest = sorted(chains.values(), key=lambda chain: -_work(experiment, chain))
    train = [unit for chain in longest for unit in chain.values()]
    known = {record.key for record in records if record.ok}
    following = _following(experiment, known)
    columns = known_columns(records)
    measure = []
    for suite in experiment.suites:
        for checkpoint in suite.checkpoints():
            there = columns.get(experiment.states_key(suite, checkpoint), {})
            job = _job(experiment, suite, checkpoint, folder, there, following.get(checkpoint))
            training_unit = chains[suite.model].get(checkpoint.revision)
            measure.append(_measure(experiment.measure_key(suite, checkpoint), job, training_unit))
    return [replace(unit, timeout=experiment.config.cluster.timeout) for unit in train + measure]


def _following(experiment: Experiment, known: Container[Key]) -> dict[Checkpoint, Location]:
    """What the worker of each checkpoint will probably measure next, if units are dealt out in turn."""
    waiting = [
        checkpoint
        for suite in experiment.suites
        for checkpoint in suite.checkpoints()
        if experiment.measure_key(suite, checkpoint) not in known
    ]
    later = waiting[experiment.config.cluster.workers :]
    return {checkpoint: experiment.locations[after] for checkpoint, after in zip(waiting, later, strict=False)}


def _training_chain(experiment: Experiment, suite: Suite, trained: Counter[str]) -> dict[str, WorkUnit]:
    """One unit for each revision that is not on disk yet; each goes on from the one before."""
    own = experiment.trainings.get(suite.model)
    if own is None or own.recipe.ranks > 1:  # a process group has trained it before
        return {}
    chain: dict[str, WorkUnit] = {}
    before: tuple[Key, ...] = ()
    for revision in _needed(training.revisions(own.recipe), suite.revisions):
        if training.is_complete(own.folder, revision):
            continue
        name = f"{suite.model}@{revision}"
        unit = WorkUnit(
            # a revision that was recorded and is gone from disk is another piece of work
            key=content_key("train", own.key, revision, trained[name]),
            name=name,
            kind="train",
            function=worker.train_to,
            args=(own.recipe, str(own.folder), revision),
            resources={"GPU": 1},
            requires=before,
        )
        chain[revision] = unit
        before = (unit.key,)
    return chain


def _needed(all_revisions: Iterable[str], wanted: tuple[str, ...]) -> Iterator[str]:
    """The revisions up to the last wanted one."""
    last = max(wanted, key=list(all_revisions).index)
    for revision in all_revisions:
        yield revision
        if revision == last:
            return


def _job(
    experiment: Experiment,
    suite: Suite,
    checkpoint: Checkpoint,
    folder: RunFolder,
    known: Mapping[Key, Column],
    following: Location | None,
) -> worker.MeasureJob:
    wanted = dict(zip(experiment.metric_keys, experiment.metrics, strict=True))
    return worker.MeasureJob(
        checkpoint=checkpoint,
        location=experiment.locations[checkpoint],
        layers=suite.layers,
        metrics=wanted,
        protocol=experiment.config.protocol,
        prompts=str(folder.corpus.resolve()),
        store=str(folder.store.resolve()),
        seed=experiment.config.seed,
        states_key=experiment.states_key(suite, checkpoint),
        states=str(folder.states.resolve()) if experiment.config.keep_states else None,
        known={key: column for key, column in known.items() if key in wanted},
        following=following,
    )


def _measure(key: Key, job: worker.MeasureJob, training_unit: WorkUnit | None) -> WorkUnit:
    return WorkUnit(
        key=key,
        name=str(job.checkpoint),
        kind="measure",
        function=worker.measure,
        args=(job,),
        resources={"GPU": 1},
        requires=(training_unit.key,) if training_unit else (),
        keeps=str(job.checkpoint),
    )


def _work(experiment: Experiment, chain: dict[str, WorkUnit]) -> int:
    """Rough size of a training chain, to begin with the longest."""
    recipes = (unit.args[0] for unit in chain.values())
    return max((recipe.width**2 * recipe.depth * recipe.steps for recipe in recipes), default=0)
