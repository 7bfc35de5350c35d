from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskmetrics import config, experiment, store
from daskmetrics.bandit import Pick
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.costs import UNKNOWN_TASK, CostModel
from daskmetrics.domain.events import RunFinished, SearchEnded, UnitAsked, UnitsRetried
from daskmetrics.domain.names import Arm, Cell
from daskmetrics.domain.results import Scored
from daskmetrics.execution import Journal, Record
from daskmetrics.execution.journal import read
from daskmetrics.experiment import measure
from daskmetrics.experiment.problem import build_problem
from daskmetrics.experiment.search import cells_left
from daskmetrics.metrics import resolve
from daskmetrics.metrics.registry import operations
from daskmetrics.planning.calibration import Calibration, Sample
from daskmetrics.planning.estimate import samples, store_bytes, workload
from daskmetrics.planning.options import NO_WAIT, Offer, option_of
from daskmetrics.planning.preview import preview
from daskmetrics.planning.work import USUAL_START, Work, bounded
from tests.events import started

PYTHIA = Path(__file__).parents[2] / "configs" / "pythia.yaml"


def shown(prepared_experiment, folder) -> dict[str, str]:
    return dict(preview(prepared_experiment, folder).rows)


def work_left(prepared_experiment, folder, device="cpu", calibrations=()):
    entries = tuple(read(folder.journal))
    return workload(prepared_experiment, entries, calibrations, device)


def write(folder, *entries) -> None:
    with Journal(folder.journal, folder.lock) as journal:
        for entry in entries:
            journal.append(entry)


def finish(prepared_experiment, folder, cells: int = 0) -> list[Record]:
    """Write the journal of a run that computed everything and scored some cells."""
    units = measure.units(prepared_experiment, folder, ())
    records, asked = [Record(unit.key, unit.name, unit.kind, "ok") for unit in units], []
    task = prepared_experiment.plan.tasks[0]
    for arm in prepared_experiment.plan.arms[:cells]:
        key, cell = prepared_experiment.plan.score_key(arm, task), Cell(arm, task.name)
        records.append(Record(key, str(cell), "score", "ok"))
        pick = Pick(0, cell, "search", 1.0, {"because": "rival"})
        asked.append(UnitAsked(key, str(cell), {"pick": pick.as_dict(), "search": "s"}))
    plan = prepared_experiment.plan
    write(folder, plan, started(), *asked, *records, RunFinished(plan.key, 1.0))
    return records


def test_a_failure_that_was_taken_back_is_still_to_do(prepared, tmp_path):
    small, folder = prepared(), RunFolder(tmp_path / "run").create()
    units = measure.units(small, folder, ())
    unit, count = units[-1], 2 * len(units)  # each checkpoint is trained and measured
    assert f"{count} to do" in shown(small, folder)["measuring"]
    failed = Record(unit.key, unit.name, unit.kind, "oom")
    write(folder, small.plan, started(), failed, RunFinished("k", 1.0))
    assert f"{count - 1} to do" in shown(small, folder)["measuring"]
    write(folder, UnitsRetried([unit.key]))
    assert f"{count} to do" in shown(small, folder)["measuring"]


def test_a_finished_run_has_nothing_left_to_do(prepared, tmp_path):
    small, folder = prepared(), RunFolder(tmp_path / "run").create()
    new = work_left(small, folder)
    assert new.on(2, "cpu").expected > 0 and new.units > len(small.plan.checkpoints)
    finish(small, folder, cells=3)
    rows = shown(small, folder)
    assert rows["measuring"].endswith(" units, 0 to do") and rows["state"].startswith("finished")
    work = work_left(small, folder)
    assert (work.units, work.start.expected, work.on(2, "cpu").expected) == (0, 0.0, 0.0)


def test_checkpoints_of_several_models_are_measured_side_by_side(prepared, tmp_path):
    small, folder = prepared(tasks=[]), RunFolder(tmp_path / "run").create()
    work = work_left(small, folder)
    by_kind = [phase for phase in work.phases if phase.name.startswith("measure")]
    assert len(by_kind) == len(small.plan.suites) > 1
    longest = max(phase.unit.expected for phase in work.phases)
    alone = sum(phase.units * phase.unit.expected for phase in by_kind)
    at_once = Work((tuple(by_kind),), start=work_left(small, folder).start)
    many = at_once.on(len(small.plan.checkpoints), "cpu").expected - at_once.start.expected
    assert many <= longest * 1.001 < alone


def test_the_time_includes_the_start_of_workers_of_an_experiment(prepared, tmp_path):
    small, folder = prepared(), RunFolder(tmp_path / "run").create()
    samples = Sample("map", "step", (1.0,), 1.0), Sample("measure", "a", (1.0,), 1.0)
    of_map, of_experiment = (
        Calibration("cpu", at=at, samples=(sample,), start=10.0 * at)
        for at, sample in zip((2.0, 1.0), samples, strict=True)
    )
    assert work_left(small, folder, "cpu", [of_map]).start == USUAL_START
    assert work_left(small, folder, "cpu", [of_experiment, of_map]).start.expected == 10.0
    work, workers = work_left(small, folder), small.config.cluster.workers
    option = option_of(1, Offer("", "cpu", 1, workers, NO_WAIT), work)
    assert f"about {bounded(option.total)}:" in shown(small, folder)["time"]
    assert option.total[1] == work.on(workers, "cpu").expected > USUAL_START.expected


def test_what_more_workers_would_save_is_shown_on_a_cluster(prepared, tmp_path):
    folder = RunFolder(tmp_path / "run").create()
    assert "more workers" not in shown(prepared(), folder), "they would share this machine"
    on_slurm = shown(prepared(cluster={"kind": "slurm", "workers": 1}), folder)
    assert on_slurm["more workers"].startswith("2, 4, 8 times as many: train a, train b ")
    assert "; search " in on_slurm["more workers"]


def test_a_run_whose_tasks_were_removed_is_still_estimated(prepared, tmp_path):
    small, folder = prepared(), RunFolder(tmp_path / "run").create()
    scores = finish(small, folder, cells=3)[-3:]
    entries = [
        replace(entry, value=Scored(0.5, 0.1)) if entry in scores else entry
        for entry in read(folder.journal)
    ]
    before = samples(small, entries, small.config.cluster)
    without = samples(prepared(tasks=[]), entries, small.config.cluster)
    [search] = [sample for sample in before if sample not in without]
    assert (search.kind, len(search.seconds)) == ("score", 3)


@pytest.mark.parametrize(
    ("search", "most"),
    [({}, 32), ({"window": 16}, 16), ({"window": 64}, 64), ({"policy": "sweep"}, None)],
)
def test_a_search_is_faster_up_to_the_workers_that_it_can_use(prepared, tmp_path, search, most):
    experiment, folder = prepared(search=search), RunFolder(tmp_path / "run").create()
    phases = {phase.name: phase for phase in work_left(experiment, folder).phases}
    phase = phases["search"]
    assert phase.at_once == most
    many = replace(phase, units=30_000)
    at_16, at_128 = (many.on(workers, "cpu")[1] for workers in (16, 128))
    assert at_128 == pytest.approx(at_16 * 16 / (most or 128), rel=0.01)


def test_the_window_of_another_configuration_does_not_count(prepared, tmp_path):
    small, folder = prepared(search={"policy": "sweep"}), RunFolder(tmp_path / "run").create()
    write(folder, replace(small.plan, search="another", window=4), started())
    *_, phase = work_left(small, folder).phases
    assert (phase.name, phase.at_once) == ("search", None)
    write(folder, replace(small.plan, window=8), started())
    *_, phase = work_left(small, folder).phases
    assert phase.at_once == 8


def test_an_enlarged_configuration_counts_only_what_is_new(prepared, tmp_path):
    small, folder = prepared(), RunFolder(tmp_path / "run").create()
    known = finish(small, folder, cells=5)
    added = {"name": "c", "train": {"width": 8, "depth": 1, "steps": 2}}
    models = [*small.config.as_dict()["models"], added]
    large, entries = prepared(models=models), tuple(read(folder.journal))
    new = {unit.name for unit in measure.units(large, folder, ())}
    new -= {record.name for record in known}
    # weights that are not on this machine are trained again, but not measured again
    assert new and all(name.startswith("c@") for name in new)
    left = {phase.name: phase.units for phase in work_left(large, folder).phases}
    measuring = {name: units for name, units in left.items() if name.startswith("measure")}
    assert measuring == {"measure c": len(new)}
    everything = prepared(models=models, search={"budget": 1.0})
    exhaustive = build_problem(everything).exhaustive_cost
    cells = len(large.plan.arms) * len(large.tasks)
    paid = 5 * 1.0  # of which a first score, with its encoding, costs more than others
    assert cells_left(everything, entries) == round(cells * (1 - paid / exhaustive))
    few = prepared(models=models, search={"budget": 1.0, "cells": 7})
    assert cells_left(few, entries) == 2


def test_a_score_that_was_taken_back_is_all_that_is_left(prepared, tmp_path):
    small, folder = prepared(), RunFolder(tmp_path / "run").create()
    *_, last = finish(small, folder, cells=3)
    ended = SearchEnded(small.plan.key, None, {}, (), {}, "sure")
    failed = Record(last.key, last.name, "score", "oom")
    entries = [entry for entry in (*read(folder.journal), ended) if entry != last] + [failed]
    assert cells_left(small, [*entries, RunFinished(small.plan.key, 2.0)]) == 0
    assert cells_left(small, [*entries, UnitsRetried([last.key])]) == 1


def test_what_was_scored_with_other_weights_is_not_done(prepared):
    small = prepared(search={"budget": 1.0})
    name, cells = small.tasks[0].name, len(small.plan.arms) * len(small.tasks)
    stale = Record("another key", str(Cell(small.plan.arms[0], name)), "score", "ok")
    gone = Record("a key", str(Cell(Arm("gone", "step1", 0), name)), "score", "ok")
    assert cells_left(small, [small.plan, stale, gone]) == cells


def test_loading_and_downloads_are_in_the_estimate(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    grid = experiment.prepare(config.load(PYTHIA, ["tasks=[]"]))
    folder = RunFolder(tmp_path / "run")
    planned = work_left(grid, folder, "l40s")
    size = 144 * (15 + 89 + 707) * 1e6  # 117 GB
    assert planned.missing == ("432 checkpoints",)
    assert planned.download.expected == pytest.approx(size / 50e6, rel=0.01)
    loading = 432 * 0.2 + size / 1e9
    assert sum(phase.unit.expected * phase.units for phase in planned.phases) > loading
    assert planned.on(32, "l40s").expected > planned.download.expected
    rows = shown(grid, folder)
    assert "116.9 GB" in rows["download"] and "22.3 MB" in rows["disk"]


def test_the_disk_that_is_needed_is_that_of_the_files(prepared, tmp_path):
    """A chunk of the store is a file in two folders; a score in the journal has its outcomes."""
    grid = prepared(search={"budget": 1.0})
    folder = RunFolder(tmp_path / "run").create()
    store.create(folder.store, grid.plan, {})
    for checkpoint in grid.plan.checkpoints:
        shape = len(grid.plan.by_model[checkpoint.model].layers), len(grid.metrics)
        block = store.Block(np.ones(shape), np.ones(shape), np.ones(shape, np.uint8))
        store.write(folder.store, "metrics", checkpoint, block)
    used = sum(512 * path.stat().st_blocks for path in [folder.store, *folder.store.rglob("*")])
    counts = {suite.model: len(suite.revisions) for suite in grid.plan.suites}
    without_scores = store_bytes(grid.plan, counts, 0, [])
    assert 0.8 * used < without_scores < 1.25 * used
    cells = len(grid.plan.arms) * len(grid.tasks)
    assert work_left(grid, folder).disk_bytes > without_scores + 1500 * cells


def test_weights_on_this_machine_count_with_their_own_bytes(minilm, tmp_path):
    model = {"name": "minilm", "source": str(minilm)}
    one = experiment.prepare(config.parse({"name": "x", "models": [model]}))
    size = sum(path.stat().st_size for path in minilm.glob("*.safetensors"))
    work = work_left(one, RunFolder(tmp_path))
    (checkpoint,) = one.plan.checkpoints
    seconds = measure.assumed_seconds(one, checkpoint, CostModel("cpu"))
    assert [phase.unit.expected for phase in work.phases] == [seconds]
    assert seconds > 0.2 + size / 1e9 and work.download is None


def test_eigenvalues_grow_with_the_cube_and_are_shared():
    def spent(*names: str, prompts: int = 256, width: int = 1024) -> float:
        return operations(resolve(list(names)), prompts, width, 64.0)

    rank = "effective_rank"
    assert spent(rank, prompts=4096, width=2048) == 8 * spent(rank, prompts=2048)
    assert spent(rank, "alpha_req", "nesum") == spent("nesum")
    assert spent(rank, "rankme") == 2 * spent("rankme")
    assert spent("all") > spent("spectral") > spent("anisotropy") > 0


def test_texts_that_are_here_are_counted_and_others_estimated(prepared, tmp_path, monkeypatch):
    small, folder = prepared(), RunFolder(tmp_path / "run")
    count = sum(len(task.texts()) for task in small.tasks)
    assert shown(small, folder)["texts"] == f"{count:,} texts in 2 tasks: 2 counted"
    for kind in set(map(type, small.tasks)):
        monkeypatch.setattr(kind, "is_local", False)
    row = shown(small, folder)["texts"]
    assert f"{2 * UNKNOWN_TASK.texts:,} texts" in row and "2 with an estimated 5,000" in row


def test_warnings_about_the_data_are_shown_before_the_run(prepared, tmp_path):
    rows = "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(20))
    (tmp_path / "own.csv").write_text(f"text,label\n{rows}!,a\n")
    found = shown(prepared(tasks=[f"file:{tmp_path / 'own.csv'}"]), RunFolder(tmp_path / "run"))
    assert "1 of 21 texts" in found["warning"]


def test_names_and_prompts_that_differ_in_case_are_apart(prepared, tmp_path):
    model = {"train": {"width": 16, "depth": 1, "steps": 4}, "layers": "blocks"}
    prompts = {"a": "Query: ", "A": "query: ", "b": "query: "}
    models = [{**model, "name": name, "prompts": {"query": text}} for name, text in prompts.items()]
    rows = shown(prepared(models=models), RunFolder(tmp_path / "run"))
    read = "mean, at most 256 tokens, prompts: query"
    assert rows["models"].startswith("a (4 checkpoints x 1 layer), A")
    assert rows["vectors"] == f"a: {read} 'Query: '; A, b: {read} 'query: '"
