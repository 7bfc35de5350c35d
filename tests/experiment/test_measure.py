from __future__ import annotations

import math
import time

from daskmetrics import training
from daskmetrics.core.files import RunFolder
from daskmetrics.domain.events import measures_nothing
from daskmetrics.execution import Record
from daskmetrics.experiment import measure, train


def done(unit):
    return Record(unit.key, unit.name, unit.kind, "ok")


def units_of(experiment, folder, records=()):
    return measure.units(experiment, RunFolder(folder), records)


def test_a_checkpoint_is_measured_once_it_is_trained(prepared, tmp_path):
    experiment = prepared()
    suite = experiment.trainings["b"]
    units = units_of(experiment, tmp_path)
    assert {unit.kind for unit in units} == {"measure"}
    assert not any(measure.is_ready(experiment.trainings, unit) for unit in units)
    training.train(suite.recipe, suite.folder)
    ready = [unit.name for unit in units if measure.is_ready(experiment.trainings, unit)]
    assert ready == ["b@step0", "b@step1", "b@step2"]


def test_only_what_is_compared_is_trained(prepared):
    model = {"name": "b", "train": {"width": 8, "depth": 1, "steps": 2}, "revisions": "all to 1"}
    experiment = prepared(models=[model])
    suite = experiment.trainings["b"]
    assert suite.missing == ("step0", "step1")
    assert train.recipe_program("b", suite, experiment.config).words[-1] == "--until=1"
    training.train(suite.recipe, suite.folder, suite.until)
    assert suite.is_done and not training.is_complete(suite.folder, "step2")
    assert train.own_revisions(prepared().trainings, (), math.inf)["b"] == ["step2"]


def test_a_run_records_no_training_of_another_run(prepared):
    suites = prepared().trainings
    began = time.time() - 1
    own = train.own_revisions(suites, (), began)
    assert own["b"] == ["step0", "step1", "step2"]
    training.train(suites["b"].recipe, suites["b"].folder)
    trained = list(train.records(suites, own, ()))
    assert [record.name for record in trained] == ["b@step0", "b@step1", "b@step2"]
    assert all(began < record.at < time.time() + 1 for record in trained)
    assert train.own_revisions(suites, (), began) == own  # of this run, which was killed before
    later = time.time() + 1
    assert train.own_revisions(suites, (), later)["b"] == []
    assert train.own_revisions(suites, {trained[1].key}, later)["b"] == ["step1"]


def test_each_unit_names_the_checkpoint_to_read_ahead(prepared, tmp_path):
    """Keys do not depend on it, and it is one checkpoint at most."""
    experiment = prepared(cluster={"workers": 2, "unit_minutes": 2})
    units = units_of(experiment, tmp_path)
    assert {unit.timeout for unit in units} == {120.0}
    specs = [unit.args[0] for unit in units]
    following = [spec.following for spec in specs]
    assert following == [*(spec.reader.location for spec in specs[2:]), None, None]
    again = units_of(experiment, tmp_path, [done(units[2])])
    assert again[0].args[0].following == specs[3].reader.location
    assert [unit.key for unit in again] == [unit.key for unit in units]


def test_nothing_is_loaded_without_metrics(prepared, tmp_path):
    experiment = prepared(
        metrics=[], models=[{"name": "b", "train": {"width": 8, "depth": 1, "steps": 2}}]
    )
    units = units_of(experiment, tmp_path)  # with neither weights, prompts nor store
    value = units[0].function(*units[0].args)
    assert (value.names, value.values) == ((), ((), ()))  # a row for each layer
    assert measures_nothing(Record(units[0].key, units[0].name, "measure", "ok", value))
    assert not list(tmp_path.iterdir())
