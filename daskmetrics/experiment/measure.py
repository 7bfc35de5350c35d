"""The first source of work: train suites, and measure every checkpoint as soon as it exists."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import daskmetrics.training as training
from daskmetrics.checkpoints.locations import folder_of
from daskmetrics.core import events
from daskmetrics.core.costs import CostModel, TextSize, weight_bytes
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Checkpoint, Key, Suite, content_key, step_of
from daskmetrics.core.results import Measured
from daskmetrics.execution import Record, WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.experiment.train import largest_first
from daskmetrics.metrics.registry import operations
from daskmetrics.training.suite import parameters


def units(experiment: Experiment, folder: RunFolder, records: Iterable[Record]) -> list[WorkUnit]:
    """Every work unit of the measuring phase, in the order in which they are best started.

    Training comes first, the most work foremost, since its steps cannot run side by side.
    """
    records = tuple(records)
    trained = Counter(record.name for record in records if record.kind == "train")
    chains = {
        suite.model: _training_chain(experiment, suite, trained) for suite in experiment.suites
    }
    train: list[WorkUnit] = []
    for model, _ in largest_first(experiment.trainings):
        train += chains[model].values()
    done = {record.key for record in records if record.ok}
    waiting = [checkpoint for checkpoint, key in experiment.measure_keys.items() if key not in done]
    # what each checkpoint's worker probably measures next, if units are assigned in turn
    later = map(experiment.locations.__getitem__, waiting[experiment.config.cluster.workers :])
    following = dict(zip(waiting, later, strict=False))
    results = defaultdict[Key | None, list[Measured]](list)
    for _, result in events.measured(records):
        results[result.states].append(result)
    metrics = dict(zip(experiment.metric_keys, experiment.metrics, strict=True))
    measure = []
    for checkpoint, key in experiment.measure_keys.items():
        states = experiment.states_key(checkpoint)
        spec = worker.MeasureSpec(
            checkpoint=checkpoint,
            location=experiment.locations[checkpoint],
            layers=experiment.by_model[checkpoint.model].layers,
            metrics=metrics,
            protocol=experiment.protocols[checkpoint],
            prompts=str(folder.corpus.resolve()),
            prompts_key=experiment.prompts_key,
            store=str(folder.store.resolve()),
            seed=experiment.config.seed,
            states_key=states,
            recorded=tuple(results[states]),
            following=following.get(checkpoint),
        )
        training_unit = chains[checkpoint.model].get(checkpoint.revision)
        unit = WorkUnit(
            key=key,
            name=str(checkpoint),
            kind="measure",
            function=worker.measure,
            args=(spec,),
            resources={"GPU": 1},
            requires=(training_unit.key,) if training_unit else (),
            keeps=str(checkpoint),
            timeout=experiment.config.cluster.timeout,
        )
        measure.append(unit)
    return train + measure


def _training_chain(
    experiment: Experiment, suite: Suite, trained: Counter[str]
) -> dict[str, WorkUnit]:
    """One unit for each revision that is not on disk yet; each continues the previous one."""
    trained_suite = experiment.trainings.get(suite.model)
    # a process group has trained a suite of several ranks before
    if trained_suite is None or trained_suite.recipe.ranks > 1:
        return {}
    chain: dict[str, WorkUnit] = {}
    before: tuple[Key, ...] = ()
    revisions = training.revisions(trained_suite.recipe)
    latest_compared = max(map(revisions.index, suite.revisions))
    for revision in revisions[: latest_compared + 1]:
        if training.is_complete(trained_suite.folder, revision):
            continue
        name = f"{suite.model}@{revision}"
        chain[revision] = WorkUnit(
            # a revision that was recorded but is no longer on disk is new work
            key=content_key("train", trained_suite.key, revision, trained[name]),
            name=name,
            kind="train",
            function=worker.train_to,
            args=(trained_suite.recipe, str(trained_suite.folder), revision, suite.model),
            resources={"GPU": 1},
            requires=before,
            timeout=experiment.config.cluster.timeout,
        )
        before = (chain[revision].key,)
    return chain


def steps_of(units: Iterable[WorkUnit]) -> dict[str, int]:
    """The steps that each training unit takes, by its name."""
    steps = {}
    for unit in units:
        if unit.kind == "train":
            recipe, _, revision, _ = unit.args
            names = ["step0", *training.revisions(recipe)]
            before = names[names.index(revision, 1) - 1]
            steps[unit.name] = (step_of(revision) or 0) - (step_of(before) or 0)
    return steps


def assumed_seconds(experiment: Experiment, checkpoint: Checkpoint, costs: CostModel) -> float:
    """Assumed seconds of measuring a checkpoint: loading, reading the prompts, and the metrics."""
    width = experiment.widths[checkpoint.model]
    suite = experiment.by_model[checkpoint.model]
    prompts = TextSize.of(map(len, experiment.prompts), experiment.config.protocol.max_length)
    layer_operations = operations(experiment.metrics, prompts.texts, width, prompts.length)
    views = max((metric.views for metric in experiment.metrics), default=0)
    return (
        costs.load_seconds(bytes_of(experiment, checkpoint))
        + views * costs.forward_seconds(width, suite.depth, prompts)
        + costs.reduce_seconds(len(suite.layers) * layer_operations)
    )


def bytes_of(experiment: Experiment, checkpoint: Checkpoint) -> float:
    """Bytes of a checkpoint's weights: of its files, of its recipe, or assumed from its shape."""
    location = experiment.locations.get(checkpoint)  # none of an earlier configuration
    if location and location.rolling:
        return float(location.rolling.bytes)
    folder = location and folder_of(location)
    if folder and (files := [*folder.glob("*.safetensors")] or [*folder.glob("*.bin")]):
        return float(sum(path.stat().st_size for path in files))
    if checkpoint.model in experiment.trainings:
        return 4.0 * parameters(experiment.trainings[checkpoint.model].recipe)
    depth = experiment.by_model[checkpoint.model].depth
    return weight_bytes(experiment.widths[checkpoint.model], depth)


def planned_units(
    experiment: Experiment, folder: RunFolder, recorded: Iterable[Record]
) -> list[WorkUnit]:
    """The units of training, and those of measuring if there is a metric, whether done or not."""
    planned = units(experiment, folder, recorded)
    if experiment.metrics:
        return planned
    return [unit for unit in planned if unit.kind == "train"]


def units_left(
    experiment: Experiment, folder: RunFolder, entries: Sequence[events.Event]
) -> list[WorkUnit]:
    """The units of training and measuring that are to do; a recorded failure counts as done until
    `retry`.
    """
    if events.is_finished(entries, experiment.key):
        return []
    recorded = tuple(events.records(entries))
    done = {record.key for record in recorded}
    return [unit for unit in planned_units(experiment, folder, recorded) if unit.key not in done]
