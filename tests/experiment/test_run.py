from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from daskmetrics import store
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import (
    RunFinished,
    StoreCreated,
    from_json,
    latest,
    to_json,
)
from daskmetrics.domain.names import Arm, Cell, Checkpoint
from daskmetrics.domain.plan import Plan
from daskmetrics.domain.results import Measured, Scored, Status
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.display import Display
from daskmetrics.execution.stopping import stop_thread
from daskmetrics.experiment import _run as run
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.experiment import phases
from tests.stored import read_block


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run").create()


def test_a_failed_checkpoint_has_its_status_and_no_number(prepared):
    experiment = prepared()
    plan = experiment.plan
    suite = plan.suites[0]
    lost, fine, never = suite.checkpoints()[:3]
    shape = len(suite.layers), len(experiment.metrics)
    values, status = np.ones(shape).tolist(), np.ones(shape, int).tolist()
    good = Measured(suite.layers, ("a",) * len(experiment.metrics), values, values, status)
    keys = plan.measure_keys
    records = [
        Record(keys[lost], str(lost), "measure", "quarantined", reason="its worker died"),
        Record(keys[fine], str(fine), "measure", "ok", value=good),
        Record("another configuration", str(never), "measure", "ok", value=good),
    ]
    blocks = store.metric_blocks(plan, records)
    assert set(blocks) == {lost, fine}
    assert (blocks[lost].status == Status.QUARANTINED).all() and np.isnan(blocks[lost].values).all()
    assert (blocks[fine].status == Status.OK).all() and (blocks[fine].values == 1).all()


def test_scores_are_in_the_store_during_a_run_and_after_a_kill(prepared, folder):
    experiment = prepared()
    plan = experiment.plan
    checkpoint = Checkpoint("a", "step1")

    def record(layer, task, **result):
        cell = Cell(Arm("a", "step1", layer), plan.tasks[task].name)
        key = plan.score_key(cell.arm, plan.tasks[task])
        return Record(key, str(cell), "score", **result)

    def stored():
        return read_block(folder.store, "scores", checkpoint)

    first = record(2, 1, status="ok", value=Scored(0.5, 0.1))
    failed = record(0, 1, status="nan")
    last = record(1, 0, status="ok", value=Scored(0.25, 0.1))
    with Journal(folder.journal, folder.lock) as journal:
        run.lay_out(plan, folder, journal)
        with phases._scores_written(folder.store, plan, []) as write:
            write(first)
            write(failed)
        assert stored().values[2, 1] == 0.5 and np.isnan(stored().values[0, 1])
        assert stored().status[:3, 1].tolist() == [Status.NAN, Status.MISSING, Status.OK]
        assert np.count_nonzero(stored().status) == 2
        journal.append(first, failed, last)  # killed before it wrote the last one
        records = list(journal.records())
        files = latest(journal.entries, StoreCreated).files
        assert not store.verify(folder.store, plan, files, records, finished=False)
        run.lay_out(plan, folder, journal)
        assert stored().equals(store.score_blocks(plan, records)[checkpoint])
        # a score that is recorded and written while the store is compared is no damage
        (found,) = store.verify(folder.store, plan, files, records[:-1], finished=False)
        assert found.kind is store.DamageKind.UNVOUCHED
        # its driver writes three files one after the other
        [status] = filter(Path.is_file, (folder.store / "a/scores_status/c").rglob("*"))
        status.rename(folder.path / "written")
        assert store.verify(folder.store, plan, files, records, finished=False)
        threading.Timer(0.05, (folder.path / "written").rename, [status]).start()
        assert not store.verify(folder.store, plan, files, records, finished=False)


def test_a_store_is_laid_out_once_for_each_plan(prepared, folder):
    plan = prepared().plan
    with Journal(folder.journal, folder.lock) as journal:
        for _ in range(3):
            run.lay_out(plan, folder, journal)
        assert list(map(type, journal.entries)) == [StoreCreated]
        (folder.store / "a" / "metrics" / "zarr.json").write_text("{}")
        run.lay_out(plan, folder, journal)
        assert list(map(type, journal.entries)) == [StoreCreated, StoreCreated]
        latest_files = latest(journal.entries, StoreCreated).files
        assert not list(store.check_files(folder.store, latest_files))
        other = prepared(seed=1).plan
        run.lay_out(other, folder, journal)
        assert latest(journal.entries, StoreCreated).key == other.store_key


def test_a_plan_is_journaled_once_and_again_after_another(prepared, folder):
    one, other = prepared(), prepared(seed=1)
    with Journal(folder.journal, folder.lock) as journal:
        for each in (one, one, other, other, one):
            assert run.begin(each.plan, each.prompts, folder, journal).key == each.plan.key
        plans = [entry for entry in journal.entries if isinstance(entry, Plan)]
        assert [plan.key for plan in plans] == [one.plan.key, other.plan.key, one.plan.key]
        restored = from_json(json.loads(json.dumps(to_json(journal.entries[0]))))
        assert restored == journal.entries[0] and type(journal.entries[0]) is Plan


@pytest.mark.parametrize(
    ("cluster", "width", "trained", "workers"),
    [({}, 16, False, 1), ({"workers": 2}, 16, False, 2), ({}, 8192, False, 2), ({}, 16, True, 2)],
    ids=["small", "as configured", "large", "training"],
)
def test_a_small_run_starts_one_worker_and_decides_as_configured(
    prepared, cluster, width, trained, workers
):
    experiment = prepared(cluster=cluster)
    plan = replace(experiment.plan, widths={"a": width, "b": width})
    experiment = replace(experiment, plan=plan)
    if not trained:
        experiment = replace(experiment, trainings={})
    assert run._sized(experiment).cluster.workers == workers
    assert experiment.plan.window == prepared().plan.window


def test_the_files_of_a_run_are_written_again(prepared, folder):
    experiment = prepared()
    with Journal(folder.journal, folder.lock) as journal:
        run.begin(experiment.plan, experiment.prompts, folder, journal)
        folder.corpus.unlink()
        folder.config.unlink()
        maintain._restore_files(folder, experiment.plan)
    assert json.loads(folder.corpus.read_text()) == list(experiment.prompts)
    assert yaml.safe_load(folder.config.read_text()) == experiment.config.as_dict()


def test_a_finished_run_gets_back_the_files_of_its_journal(prepared, folder):
    experiment = prepared()
    with Journal(folder.journal, folder.lock) as journal:
        run.begin(experiment.plan, experiment.prompts, folder, journal)
        journal.append(RunFinished(experiment.plan.key, 0.0))
        entries = journal.entries
    folder.config.unlink()
    # the key does not depend on the cluster, and the configuration does
    assert run.run(prepared(cluster={"workers": 3}), folder, Display()) == 0
    assert not list(maintain.check_files(folder, entries))


def test_a_run_in_a_thread_can_be_stopped_while_it_waits():
    ended = threading.Event()

    def wait():
        with pytest.raises(KeyboardInterrupt):
            phases._pause(60)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    while not stop_thread(thread.ident):
        thread.join(0.01)
        assert thread.is_alive()
    assert ended.wait(10)
