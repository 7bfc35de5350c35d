from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from daskmetrics import store
from daskmetrics.core.events import (
    StorePlan,
    from_json,
    latest,
    to_json,
)
from daskmetrics.core.files import RunFolder
from daskmetrics.core.names import Arm, Cell, Checkpoint
from daskmetrics.core.results import Measured, Scored, Status
from daskmetrics.execution import Journal, Record
from daskmetrics.experiment import _run as run
from daskmetrics.experiment import maintenance as maintain
from tests.stored import read_block


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run").create()


def test_a_failed_checkpoint_has_its_status_and_no_number(prepared):
    experiment = prepared()
    suite = experiment.suites[0]
    lost, fine, never = suite.checkpoints()[:3]
    shape = len(suite.layers), len(experiment.metrics)
    values, status = np.ones(shape).tolist(), np.ones(shape, int).tolist()
    good = Measured(suite.layers, ("a",) * len(experiment.metrics), values, values, status)
    keys = experiment.measure_keys
    records = [
        Record(keys[lost], str(lost), "measure", "quarantined", reason="its worker died"),
        Record(keys[fine], str(fine), "measure", "ok", value=good),
        Record("another configuration", str(never), "measure", "ok", value=good),
    ]
    blocks = store.metric_blocks(run._plan(experiment), records)
    assert set(blocks) == {lost, fine}
    assert (blocks[lost].status == Status.QUARANTINED).all() and np.isnan(blocks[lost].values).all()
    assert (blocks[fine].status == Status.OK).all() and (blocks[fine].values == 1).all()


def test_scores_are_in_the_store_while_the_run_goes_on_and_after_a_kill(prepared, folder):
    experiment = prepared()
    plan = run._plan(experiment)
    checkpoint = Checkpoint("a", "step1")

    def record(layer, task, **result):
        cell = Cell(Arm("a", "step1", layer), experiment.tasks[task].name)
        key = experiment.score_key(cell.arm, experiment.tasks[task])
        return Record(key, str(cell), "score", **result)

    def stored():
        return read_block(folder.store, "scores", checkpoint)

    first = record(2, 1, status="ok", value=Scored(0.5, 0.1))
    failed = record(0, 1, status="nan")
    last = record(1, 0, status="ok", value=Scored(0.25, 0.1))
    with Journal(folder.journal, folder.lock) as journal:
        run._lay_out(plan, folder, journal)
        with run._scores_written(folder.store, plan, []) as write:
            write(first)
            write(failed)
        assert stored().values[2, 1] == 0.5 and np.isnan(stored().values[0, 1])
        assert stored().status[:3, 1].tolist() == [Status.NAN, Status.MISSING, Status.OK]
        assert np.count_nonzero(stored().status) == 2
        journal.append(first, failed, last)  # killed before it wrote the last one
        records = list(journal.records())
        laid_out = latest(journal.entries, StorePlan)
        assert not store.verify(folder.store, laid_out, records, finished=False)
        run._lay_out(plan, folder, journal)
        assert stored().equals(store.score_blocks(plan, records)[checkpoint])
        # a score that is recorded and written while the store is compared is no damage
        (found,) = store.verify(folder.store, laid_out, records[:-1], finished=False)
        assert found.kind is store.DamageKind.UNVOUCHED
        # its driver writes three files one after the other
        [status] = filter(Path.is_file, (folder.store / "a/scores_status/c").rglob("*"))
        status.rename(folder.path / "written")
        assert store.verify(folder.store, laid_out, records, finished=False)
        threading.Timer(0.05, (folder.path / "written").rename, [status]).start()
        assert not store.verify(folder.store, laid_out, records, finished=False)


def test_the_plan_is_recorded_once_for_each_store(prepared, folder):
    plan = run._plan(prepared())
    with Journal(folder.journal, folder.lock) as journal:
        for _ in range(3):
            run._lay_out(plan, folder, journal)
        assert list(map(type, journal.entries)) == [StorePlan]
        restored = from_json(json.loads(json.dumps(to_json(journal.entries[0]))))
        assert restored == journal.entries[0]
        (folder.store / "a" / "metrics" / "zarr.json").write_text("{}")
        run._lay_out(plan, folder, journal)
        assert list(map(type, journal.entries)) == [StorePlan, StorePlan]
        assert not list(store.check_files(folder.store, latest(journal.entries, StorePlan).files))
        other = run._plan(prepared(seed=1))
        run._lay_out(other, folder, journal)
        assert latest(journal.entries, StorePlan).template == other.template


@pytest.mark.parametrize(
    ("cluster", "width", "trained", "workers"),
    [({}, 16, False, 1), ({"workers": 2}, 16, False, 2), ({}, 8192, False, 2), ({}, 16, True, 2)],
    ids=["small", "as configured", "large", "training"],
)
def test_a_small_run_starts_one_worker_and_decides_as_configured(
    prepared, cluster, width, trained, workers
):
    experiment = replace(prepared(cluster=cluster), widths={"a": width, "b": width})
    if not trained:
        experiment = replace(experiment, trainings={})
    assert run._sized(experiment).cluster.workers == workers
    assert run.search.window(experiment, []) == run.search.window(prepared(), [])


def test_the_files_of_a_run_are_written_again(prepared, folder):
    experiment = prepared()
    with Journal(folder.journal, folder.lock) as journal:
        run.begin(experiment, folder, journal)
        folder.corpus.unlink()
        folder.config.unlink()
        maintain._restore_files(folder, journal.entries)
    assert json.loads(folder.corpus.read_text()) == list(experiment.prompts)
    assert yaml.safe_load(folder.config.read_text()) == experiment.config.as_dict()
