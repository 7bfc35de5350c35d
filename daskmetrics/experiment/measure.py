"""The first source of work: measure every checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from daskmetrics.checkpoints.locations import folder_of
from daskmetrics.core.files import RunFolder
from daskmetrics.core.keys import Key
from daskmetrics.domain import events
from daskmetrics.domain.costs import CostModel, TextSize, weight_bytes
from daskmetrics.domain.names import Checkpoint
from daskmetrics.domain.results import Measured
from daskmetrics.execution import Record, WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.experiment.train import TrainedSuite
from daskmetrics.metrics.registry import operations
from daskmetrics.training.suite import is_complete, parameters


def units(experiment: Experiment, folder: RunFolder, records: Iterable[Record]) -> list[WorkUnit]:
    """A work unit for each checkpoint, whether it exists yet or not."""
    plan = experiment.plan
    records = tuple(records)
    done = {record.key for record in records if record.ok}
    waiting = [checkpoint for checkpoint, key in plan.measure_keys.items() if key not in done]
    # what each checkpoint's worker probably measures next, if units are assigned in turn
    later = map(experiment.locations.__getitem__, waiting[experiment.config.cluster.workers :])
    following = dict(zip(waiting, later, strict=False))
    results = defaultdict[Key | None, list[Measured]](list)
    for _, result in events.measured(records):
        results[result.states].append(result)
    metrics = dict(zip((about.key for about in plan.metrics), experiment.metrics, strict=True))
    measure = []
    for checkpoint, key in plan.measure_keys.items():
        states = plan.states_key(checkpoint)
        spec = worker.MeasureSpec(
            checkpoint=checkpoint,
            reader=experiment.readers[checkpoint],
            layers=plan.by_model[checkpoint.model].layers,
            metrics=metrics,
            prompts=folder.corpus.resolve(),
            prompts_key=plan.prompts,
            store=folder.store.resolve(),
            seed=experiment.config.seed,
            states_key=states,
            recorded=tuple(results[states]),
            following=following.get(checkpoint),
        )
        measure.append(
            WorkUnit(
                key=key,
                name=str(checkpoint),
                kind="measure",
                function=worker.measure,
                args=(spec,),
                resources={"GPU": 1},
                keeps=str(checkpoint),
                timeout=experiment.config.cluster.timeout,
            )
        )
    return measure


def is_ready(trainings: Mapping[str, TrainedSuite], unit: WorkUnit) -> bool:
    """Whether the unit's checkpoint is there, and not still to be trained."""
    checkpoint = Checkpoint.parse(unit.name)
    suite = trainings.get(checkpoint.model)
    return suite is None or is_complete(suite.folder, checkpoint.revision)


def assumed_seconds(experiment: Experiment, checkpoint: Checkpoint, costs: CostModel) -> float:
    """Assumed seconds of measuring a checkpoint."""
    width = experiment.plan.widths[checkpoint.model]
    suite = experiment.plan.by_model[checkpoint.model]
    prompts = TextSize.of(map(len, experiment.prompts), experiment.config.protocol.max_length)
    layer_operations = operations(experiment.metrics, prompts.texts, width, prompts.length)
    views = max((metric.views for metric in experiment.metrics), default=0)
    return (
        costs.load_seconds(bytes_of(experiment, checkpoint))
        + views * costs.forward_seconds(width, suite.depth, prompts)
        + costs.reduce_seconds(len(suite.layers) * layer_operations)
    )


def bytes_of(experiment: Experiment, checkpoint: Checkpoint) -> float:
    """Bytes of a checkpoint's weights.

    They are those of its files, of its recipe, or assumed from its shape.
    """
    location = experiment.locations.get(checkpoint)  # none of an earlier configuration
    if location and location.rolling:
        return float(location.rolling.bytes)
    folder = location and folder_of(location)
    if folder and (files := [*folder.glob("*.safetensors")] or [*folder.glob("*.bin")]):
        return float(sum(path.stat().st_size for path in files))
    if checkpoint.model in experiment.trainings:
        return 4.0 * parameters(experiment.trainings[checkpoint.model].recipe)
    depth = experiment.plan.by_model[checkpoint.model].depth
    return weight_bytes(experiment.plan.widths[checkpoint.model], depth)
