"""From an experiment to the plan of its store: which units' records fill which chunks, for who reads the run later."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from daskmetrics import store
from daskmetrics.execution import Journal
from daskmetrics.experiment.prepare import VERSION, Experiment
from daskmetrics.layout import RunFolder


def plan(experiment: Experiment, attributes: Mapping[str, Any]) -> store.Plan:
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


def lay_out(planned: store.Plan, folder: RunFolder, journal: Journal) -> None:
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
        journal.append(dataclasses.replace(planned, files=store.files_of(folder.store)).entry())
    store.restore(folder.store, "metrics", planned.metric_blocks(journal.records()))
