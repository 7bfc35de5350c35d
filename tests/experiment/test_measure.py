from __future__ import annotations

from daskmetrics import training
from daskmetrics.core.events import measures_nothing
from daskmetrics.core.files import RunFolder
from daskmetrics.execution import Record, Sweep
from daskmetrics.experiment import measure as measure


def done(unit):
    return Record(unit.key, unit.name, unit.kind, "ok")


def measuring(experiment, folder, records=()):
    units = measure.units(experiment, RunFolder(folder), records)
    return [unit for unit in units if unit.kind == "measure"]


def test_each_checkpoint_is_measured_as_soon_as_it_is_trained(prepared, tmp_path):
    sweep = Sweep(measure.units(prepared(), RunFolder(tmp_path), []))
    (first, other) = sweep.ask(10)
    assert (first.name, other.name) == ("a@step0", "b@step0")
    assert {first.kind, other.kind} == {"train"}
    sweep.tell(done(first))
    assert [(unit.kind, unit.name) for unit in sweep.ask(10)] == [
        ("train", "a@step1"),
        ("measure", "a@step0"),
    ]


def test_only_what_is_compared_and_not_on_disk_is_trained(prepared, tmp_path):
    model = {"name": "b", "train": {"width": 8, "depth": 1, "steps": 4}}
    experiment = prepared(models=[{**model, "revisions": ["step1"]}])
    names = [unit.name for unit in measure.units(experiment, RunFolder(tmp_path), [])]
    assert names == ["b@step0", "b@step1", "b@step1"]
    suite = experiment.trainings["b"]
    training.train_to(suite.recipe, suite.folder, "step0")
    units = measure.units(prepared(models=[model]), RunFolder(tmp_path), [])
    trained = [unit.name for unit in units if unit.kind == "train"]
    assert trained == ["b@step1", "b@step2", "b@step4"]
    assert measure.steps_of(units) == {"b@step1": 1, "b@step2": 1, "b@step4": 2}
    assert next(unit.requires for unit in units if unit.kind == "measure") == ()


def test_a_recorded_revision_that_is_missing_on_disk_is_trained_again(prepared, tmp_path):
    experiment = prepared()
    before = measure.units(experiment, RunFolder(tmp_path), [])
    after = measure.units(experiment, RunFolder(tmp_path), [done(before[0])])
    assert after[0].name == before[0].name
    assert after[0].key != before[0].key
    keys = [[unit.key for unit in units if unit.kind == "measure"] for units in (before, after)]
    assert keys[0] == keys[1]


def test_each_unit_names_the_checkpoint_that_its_worker_probably_measures_next(prepared, tmp_path):
    """Keys do not depend on it, and it is one checkpoint at most."""
    experiment = prepared(cluster={"workers": 2, "unit_minutes": 2})
    units = measuring(experiment, tmp_path)
    assert {unit.timeout for unit in units} == {120.0}
    specs = [unit.args[0] for unit in units]
    following = [spec.following for spec in specs]
    assert following == [*(spec.location for spec in specs[2:]), None, None]
    again = measuring(experiment, tmp_path, [done(units[2])])
    assert again[0].args[0].following == specs[3].location
    assert [unit.key for unit in again] == [unit.key for unit in units]


def test_nothing_is_loaded_without_metrics(prepared, tmp_path):
    experiment = prepared(
        metrics=[], models=[{"name": "b", "train": {"width": 8, "depth": 1, "steps": 2}}]
    )
    units = measuring(experiment, tmp_path)  # with neither weights, prompts nor store
    value = units[0].function(*units[0].args)
    assert (value.names, value.values) == ((), ((), ()))  # a row for each layer
    assert measures_nothing(Record(units[0].key, units[0].name, "measure", "ok", value))
    assert not list(tmp_path.iterdir())
