"""From the journal's records to the chunks of the store: what the store must hold, however it came about."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from daskmetrics import store
from daskmetrics.arms import Checkpoint
from daskmetrics.execution import Record
from daskmetrics.experiment.prepare import Experiment
from daskmetrics.status import Status


def metric_chunks(experiment: Experiment, records: Iterable[Record]) -> dict[Checkpoint, store.Block]:
    """The metrics of every checkpoint that the journal knows; a failed one has its status and no numbers."""
    by_key = {record.key: record for record in records if record.kind == "measure"}
    shapes = {suite.model: (len(suite.layers), len(experiment.metrics)) for suite in experiment.suites}
    return {
        checkpoint: _metrics(by_key[key], shapes[suite.model])
        for suite in experiment.suites
        for checkpoint in suite.checkpoints()
        if (key := experiment.measure_key(suite, checkpoint)) in by_key
    }


def _metrics(record: Record, shape: tuple[int, int]) -> store.Block:
    if record.ok:
        return store.Block.of(record.value)
    nothing = np.full(shape, np.nan)
    return store.Block(nothing, nothing, np.full(shape, Status.of(record.status), np.uint8))


def score_chunks(experiment: Experiment, records: Iterable[Record]) -> dict[Checkpoint, store.Block]:
    """The scores of every checkpoint of which at least one cell was asked for."""
    by_key = {record.key: record for record in records if record.kind == "score"}
    names = [task.name for task in experiment.tasks]
    cells = {
        (arm.model, arm.revision, arm.layer, task.name): _cell(by_key[key])
        for arm in experiment.arms
        for task in experiment.tasks
        if (key := experiment.score_key(arm, task)) in by_key
    }
    return store.score_blocks(experiment.suites, names, cells)


def _cell(record: Record) -> tuple[float, float, Status]:
    if not record.ok:
        return float("nan"), float("nan"), Status.of(record.status)
    return record.value["score"], record.value["stderr"], Status.OK
