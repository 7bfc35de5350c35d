"""The unit that scores an arm on a task; arms of one checkpoint share an encoding."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daskmetrics.core.keys import seed_of
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.execution import WorkUnit
from daskmetrics.experiment import _worker as worker
from daskmetrics.experiment.preparation import Experiment
from daskmetrics.tasks import Task
from daskmetrics.tasks.mteb import MtebTask


def score_unit(
    experiment: Experiment, arm: Arm, task: Task, scratch: Path, kind: str, note: Mapping[str, Any]
) -> WorkUnit:
    """The unit that scores an arm on a task.

    Its input, the encoding, is shared by all arms of the checkpoint.
    """
    checkpoint = arm.checkpoint
    plan = experiment.plan
    about = plan.tasks_of[kind][task.name]
    timeout = experiment.config.cluster.timeout
    suite = plan.by_model[arm.model]
    reader = experiment.readers[checkpoint]
    spec = worker.EncodeSpec(
        key=plan.encode_key(checkpoint, about),
        task=task,
        layers=suite.layers,
        scratch=scratch,
        poolings=suite.poolings,
        sized=not experiment.metrics,
    )
    encode = WorkUnit(
        key=spec.key,
        name=f"{checkpoint}:{task.name}",
        kind="encode",
        function=worker.encode,
        args=(reader, spec),
        resources={"GPU": 1},
        timeout=timeout,
        keeps=str(checkpoint),
    )
    # of the task and the run, so that equal vectors score equally
    seed = seed_of("score", task.key, experiment.config.seed)
    if isinstance(task, MtebTask) and reader.protocol.shipped:
        task = task.compared_by(reader.protocol.shipped.similarity)
    return WorkUnit(
        key=plan.score_key(arm, about),
        name=str(Cell(arm, task.name)),
        kind=kind,
        function=worker.score,
        args=(task, arm.layer, seed, reader.protocol.key, arm.readout),
        resources={experiment.scored_on: 1},
        timeout=timeout,
        input=encode,
        note=note,
    )
