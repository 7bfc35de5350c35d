from __future__ import annotations

import json

import numpy as np
import pytest

from daskmetrics import store
from daskmetrics.core._files import RunFolder
from daskmetrics.core.names import Arm, Checkpoint
from daskmetrics.core.status import Status
from daskmetrics.execution import Journal, Record
from daskmetrics.experiment import run


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run").create()


def test_a_failed_checkpoint_has_its_status_and_no_number(prepared):
    experiment = prepared()
    suite = experiment.suites[0]
    lost, fine, never = suite.checkpoints()[:3]
    values = [[1.0] * len(experiment.metrics)] * len(suite.layers)
    good = {"values": values, "stderr": values, "status": [[1] * len(experiment.metrics)] * len(suite.layers)}
    blocks = run.plan(experiment, {}).metric_blocks(
        [
            Record(experiment.measure_key(suite, lost), str(lost), "measure", "quarantined", reason="its worker died"),
            Record(experiment.measure_key(suite, fine), str(fine), "measure", "ok", value=good),
            Record("another configuration", str(never), "measure", "ok", value=good),
        ],
    )
    assert set(blocks) == {lost, fine}
    assert (blocks[lost].status == Status.QUARANTINED).all() and np.isnan(blocks[lost].values).all()
    assert (blocks[fine].status == Status.OK).all() and (blocks[fine].values == 1).all()


def test_scores_lie_at_their_layer_and_task(prepared):
    experiment = prepared()
    arm, task = Arm("a", "step1", 2), experiment.tasks[1]
    value = {"score": 0.5, "stderr": 0.1, "n": 9, "encode_seconds": 0.0}
    record = Record(experiment.score_key(arm, task), "", "score", "ok", value=value)
    blocks = run.plan(experiment, {}).score_blocks([record])
    (block,) = blocks.values()
    assert set(blocks) == {Checkpoint("a", "step1")}
    assert block.values[2, 1] == 0.5
    assert np.count_nonzero(block.status) == 1


def test_a_plan_survives_the_journal(prepared):
    plan = run.plan(prepared(), {"seed": 0})
    entry = json.loads(json.dumps(plan.entry()))
    assert store.Plan.latest([{"type": "plan"}, entry, {"type": "note"}]) == plan
    assert store.Plan.latest([]) is None


def test_the_plan_is_journaled_once_and_again_with_a_new_store(prepared, folder):
    plan = run.plan(prepared(), {})
    with Journal(folder.journal, folder.lock) as journal:
        for _ in range(3):
            run.lay_out(plan, folder, journal)
        assert [entry["type"] for entry in journal.entries] == ["plan"]
        (folder.store / "a" / "metrics" / "zarr.json").write_text("{}")
        run.lay_out(plan, folder, journal)
        assert [entry["type"] for entry in journal.entries] == ["plan", "plan"]
        assert not list(store.check_files(folder.store, store.Plan.latest(journal.entries).files))
        other = run.plan(prepared(seed=1), {})
        run.lay_out(other, folder, journal)
        assert store.Plan.latest(journal.entries).template == other.template
