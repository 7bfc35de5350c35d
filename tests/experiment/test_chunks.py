from __future__ import annotations

import numpy as np

from daskmetrics.arms import Arm, Checkpoint
from daskmetrics.execution import Record
from daskmetrics.experiment.chunks import metric_chunks, score_chunks
from daskmetrics.status import Status


def test_a_failed_checkpoint_has_its_status_and_no_number(prepared):
    experiment = prepared()
    suite = experiment.suites[0]
    lost, fine, never = suite.checkpoints()[:3]
    values = [[1.0] * len(experiment.metrics)] * len(suite.layers)
    good = {"values": values, "stderr": values, "status": [[1] * len(experiment.metrics)] * len(suite.layers)}
    chunks = metric_chunks(
        experiment,
        [
            Record(experiment.measure_key(suite, lost), str(lost), "measure", "quarantined", reason="its worker died"),
            Record(experiment.measure_key(suite, fine), str(fine), "measure", "ok", value=good),
            Record("another configuration", str(never), "measure", "ok", value=good),
        ],
    )
    assert set(chunks) == {lost, fine}
    assert (chunks[lost].status == Status.QUARANTINED).all() and np.isnan(chunks[lost].values).all()
    assert (chunks[fine].status == Status.OK).all() and (chunks[fine].values == 1).all()


def test_scores_lie_at_their_layer_and_task(prepared):
    experiment = prepared()
    arm, task = Arm("a", "step1", 2), experiment.tasks[1]
    value = {"score": 0.5, "stderr": 0.1, "n": 9, "encode_seconds": 0.0}
    chunks = score_chunks(experiment, [Record(experiment.score_key(arm, task), "", "score", "ok", value=value)])
    (block,) = chunks.values()
    assert set(chunks) == {Checkpoint("a", "step1")}
    assert block.values[2, 1] == 0.5
    assert np.count_nonzero(block.status) == 1
