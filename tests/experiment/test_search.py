"""The search as a source, message by message, without processes."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from daskmetrics import experiment
from daskmetrics.bandit import Learner, Problem, arm_features, least_budget, policy_named
from daskmetrics.checkpoints.rolling import Downloads
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.keys import seed_of
from daskmetrics.domain.events import UnitAsked
from daskmetrics.domain.names import Suite, grid
from daskmetrics.domain.outcomes import difference
from daskmetrics.domain.results import Measured, Scored
from daskmetrics.execution import Record
from daskmetrics.experiment import problem as problems
from daskmetrics.experiment import search as search
from daskmetrics.experiment._worker import LayerEmbeddings
from tests.experiment.conftest import SMALL


def measured(experiment, lost=()):
    """Records of all checkpoints, some of which could not be measured."""
    records = []
    for checkpoint, key in experiment.plan.measure_keys.items():
        record = Record(key, str(checkpoint), "measure", "ok", Measured((), (), (), (), status=()))
        if str(checkpoint) in lost:
            record = replace(record, status="quarantined", value=None, reason="its worker died")
        records.append(record)
    return records


def answer(unit):
    result = Scored(seed_of(unit.key) % 1000 / 1000, 0.01, n=100, encode_seconds=0.1)
    return Record(unit.key, unit.name, unit.kind, "ok", result)


class Bench:
    """A search whose units are answered by hand."""

    def __init__(self, experiment, decided=(), lost=()):
        self.problem = problems.measured_problem(experiment, measured(experiment, lost))
        self.key = f"search of {len(self.problem.arms)} arms"
        config = experiment.config.search
        self.learner = Learner(
            self.problem,
            policy_named(config.policy),
            budget=problems.budget(config, self.problem),
            window=experiment.plan.window,
            seed=0,
            decided=decided,
        )
        self.search = search.SearchSource(
            experiment, self.learner, self.key, Path(), Downloads(()), ()
        )
        self.entries: list[UnitAsked] = []

    def drive(self, slots=4, seed=0, stop_after=10_000, known=()):
        """Answer in random order with so many units in flight; the units that had to be run."""
        rng, flight, asked = random.Random(seed), [], []
        while len(asked) < stop_after:
            units = self.search.ask(slots - len(flight))
            self.entries += [UnitAsked(unit.key, unit.name, unit.note) for unit in units]
            for unit in units:
                if unit.key in known:
                    self.search.tell(answer(unit))
                else:
                    asked.append(unit)
                    flight.append(unit)
            if flight:
                self.search.tell(answer(flight.pop(rng.randrange(len(flight)))))
            elif not units:
                break
        return asked


def test_each_cell_is_scored_once_and_encodings_are_shared(prepared):
    bench, asked = Bench(prepared()), []
    while units := bench.search.ask(1):
        asked += units
        failed = Record(units[0].key, units[0].name, "score", "nan", reason="not finite")
        bench.search.tell(failed if len(asked) % 3 == 0 else answer(units[0]))
    assert len({unit.key for unit in asked}) == len(asked) > 4
    assert bench.learner.recommendation().failed == len(asked) // 3
    assert len({unit.input.key for unit in asked}) < len(asked)
    assert {tuple(unit.resources) for unit in asked} == {("CPU",)}
    assert {tuple(unit.input.resources) for unit in asked} == {("GPU",)}


def test_the_live_posterior_needs_no_score(prepared):
    """The first result of a search may be a failure."""
    bench = Bench(prepared())
    (unit,) = bench.search.ask(1)
    bench.search.tell(Record(unit.key, unit.name, "score", "nan", reason="not finite"))
    shown = search.posterior(bench.search.experiment.plan, bench.learner)
    assert shown.leader in map(str, bench.problem.arms) and shown.loss > 0


def test_the_time_left_counts_from_the_first_result(prepared, monkeypatch):
    clock = partial(next, itertools.count(0.0, 10.0))
    monkeypatch.setattr(search, "TimeLeft", partial(search.TimeLeft, clock=clock))
    bench = Bench(prepared(search={"policy": "sweep", "budget": 1.0}))
    lefts = []
    while units := bench.search.ask(1):
        bench.search.tell(answer(units[0]))
        lefts.append(bench.search.left)
    assert bench.search.percent == pytest.approx(100)
    assert lefts[1] > 0 and lefts[-1] == pytest.approx(0, abs=1e-6)


def test_the_latest_encodings_are_kept_as_far_as_there_is_room(prepared, tmp_path):
    """A later layer of their checkpoint then needs no other encoding."""
    sweep = {"policy": "sweep", "budget": 1.0}
    kept = {}
    for size in (2**20, search.KEPT_IN_MEMORY // 10, search.KEPT_IN_FILES // 6, 2**40):
        source = Bench(prepared(search=sweep)).search
        source.scratch, source._room_in_files = tmp_path / str(size), search.KEPT_IN_FILES
        rng, flight, used, there = random.Random(0), [], set(), set()
        while (units := source.ask(5 - len(flight))) or flight:
            for unit in units:
                (source.scratch / f"{unit.input.key}-0").mkdir(parents=True, exist_ok=True)
                there.add(unit.input.key)
            used |= there
            flight += units
            record = answer(flight.pop(rng.randrange(len(flight))))
            released = source.tell(replace(record, value=replace(record.value, bytes=size)))
            there -= set(released)
            assert {unit.input.key for unit in flight} <= there
            assert {f"{key}-0" for key in there} == {path.name for path in source.scratch.iterdir()}
        kept[size] = len(there)
    assert list(kept.values()) == [len(used), 10, 6, search.ALWAYS_KEPT]
    assert len(used) > 10


def test_arms_with_equal_vectors_score_equally(prepared, tmp_path):
    """Folds, draws and starting points belong to the task: what a score differs by is the vectors."""
    experiment = prepared(tasks=["stdlib:package", "stdlib:order", "stdlib:clusters"])
    units = Bench(experiment).drive()
    for task in experiment.tasks:
        texts = len(task.texts())
        vectors = np.random.default_rng(0).normal(size=(1, texts, 4)).astype(np.float32)
        values = []
        for unit in [unit for unit in units if unit.args[0] == task][:3]:
            layer = unit.args[1]
            embeddings = LayerEmbeddings((layer,), texts, {"": [4]}, tmp_path, "key")
            embeddings.put(np.arange(texts), [vectors])
            value = unit.function(embeddings, *unit.args)
            assert value.reading.layer == layer
            values.append(replace(value, reading=None))
        assert len(values) > 1 and values.count(values[0]) == len(values)
        apart = difference(*values[:2])
        assert apart.value == 0 and apart.paired and apart.stderr < values[0].stderr / 4
    units += Bench(prepared(seed=3)).drive()
    assert len({unit.args[2] for unit in units}) == 3 + 2  # of a task and a seed


def test_the_order_of_arrival_does_not_change_the_search(prepared):
    quiet, shuffled = Bench(prepared()), Bench(prepared())
    first, second = quiet.drive(slots=1), shuffled.drive(slots=6, seed=1)
    assert [unit.key for unit in first] == [unit.key for unit in second]
    assert quiet.learner.recommendation() == shuffled.learner.recommendation()


def test_a_search_resumes_from_the_journal(prepared):
    quiet, broken = Bench(prepared()), Bench(prepared())
    quiet.drive()
    asked = broken.drive(stop_after=12)
    assert search.decided(broken.entries, "another") == []
    resumed = Bench(prepared(), decided=search.decided(broken.entries, broken.key))
    known = {unit.key for unit in asked[:6]}  # what was recorded before the interruption
    assert not {unit.key for unit in resumed.drive(seed=12, known=known)} & known
    assert resumed.learner.picks == quiet.learner.picks
    assert resumed.learner.recommendation() == quiet.learner.recommendation()


def test_checkpoints_that_were_not_measured_are_excluded(prepared):
    experiment = prepared()
    bench = Bench(experiment, lost=("b@step2", "a@step1"))
    names = {str(arm.checkpoint) for arm in bench.problem.arms}
    assert names == {str(c) for c in experiment.plan.checkpoints} - {"b@step2", "a@step1"}
    lost = tuple(map(str, experiment.plan.checkpoints))
    with pytest.raises(
        DaskmetricsError, match=r"No checkpoint .* runs retry RUN.*: its worker died"
    ):
        problems.measured_problem(experiment, measured(experiment, lost))


def test_without_its_baseline_a_search_compares_within_models(prepared):
    experiment = prepared(search={"baseline": "b@step2"})
    problem = problems.measured_problem(experiment, measured(experiment, lost=("b@step2",)))
    baselines = {(problem.arms[i].model, problem.arms[i].revision) for i in problem.default_arms}
    assert problem.default is None and baselines == {("a", "step4"), ("b", "step1")}


def test_an_objective_changes_weights_and_no_keys(prepared):
    plain = prepared()
    weighed = prepared(search={"objective": "stdlib:order", "weights": {"stdlib:order": 2}})
    assert problems.build_problem(plain).objective_weights.tolist() == [0.5, 0.5]
    assert problems.build_problem(weighed).objective_weights.tolist() == [1.0, 0.0]
    assert weighed.plan.store_key == plain.plan.store_key
    assert weighed.plan.key != plain.plan.key


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "clasification"}, "'clasification'. Did you mean 'classification'"),
        ({"weights": {"stdlib:ordr": 2}}, "Unknown task in 'search.weights': 'stdlib:ordr'. Did"),
        ({"weights": {"stdlib:order": -1}}, "search.weights.stdlib:order': got -1"),
        ({"policy": "rase"}, "Unknown policy 'rase'. Did you mean 'race'"),
        ({"policy": "nowhere:ask"}, "Policy 'nowhere:ask' cannot be loaded"),
        ({"policy": "math:pi"}, "must be a function of a State, but is a float"),
    ],
)
def test_an_invalid_search_is_an_error_before_anything_starts(prepared, settings, message):
    with pytest.raises(ConfigError, match=message):
        prepared(search=settings)


def test_a_policy_may_be_an_object_or_an_import_path(prepared):
    def mine(state):
        return None

    custom = experiment.prepare(prepared().config, mine)
    assert custom.policy is mine and custom.config.search.policy.endswith("<locals>.mine")
    assert custom.plan.key != prepared().plan.key
    named = prepared(search={"policy": "daskmetrics.bandit.policies:race"})
    assert named.policy is policy_named("race")


def fails(state):
    raise KeyError(state)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("os:makedirs", "failed with TypeError in .*posixpath"),
        ("operator:not_", "must return a Choice or None, but returned a bool"),
        ("tests.experiment.test_search:fails", r"KeyError in .*test_search\.py, line \d+"),
        ("copy:copy", "must return a Choice or None, but returned a State"),
    ],
)
def test_a_function_that_is_no_policy_is_refused_at_once(prepared, path, message):
    with pytest.raises(ConfigError, match=message):
        problems.check(prepared(search={"policy": path}))


def test_the_window_depends_on_the_workers_until_a_run_has_begun(prepared):
    few, many, most = (prepared(cluster={"kind": "local", "workers": n}).plan for n in (2, 32, 128))
    assert few.key == many.key
    # the policy could not use more
    assert [plan.window for plan in (few, many, most)] == [8, 32, 32]
    another = prepared(seed=1, search={"window": 5}).plan
    assert few.after([another, many]).window == 32
    assert prepared(search={"window": 4}).plan.after([many]).window == 4


def test_a_growing_search_reuses_cells_of_earlier_searches(prepared):
    exp = prepared(search={"budget": 0.6})
    problem, tasks = problems.measured_problem(exp, measured(exp)), exp.plan.tasks_of["score"]
    cells = [problem.cell(arm, task) for arm, task in ((0, 1), (3, 0), (5, 1))]
    half = Scored(0.5, 0.1)
    records = [
        Record(exp.plan.score_key(cell.arm, tasks[cell.task]), str(cell), "score", "ok", half)
        for cell in cells
    ]
    other = Record("of deleted weights", "a@gone/0:order", "score", "ok", half)
    picks = search.carried_on(exp.plan, problem, [], [records[0], other, *records[1:]])
    assert [pick.cell for pick in picks] == cells
    assert [pick.index for pick in picks] == [pick.known for pick in picks] == [0, 1, 2]
    # a search that was interrupted after two decisions keeps these, and what they lack follows
    again = search.carried_on(exp.plan, problem, picks[:2], records)
    assert again == picks
    learner = Learner(problem, exp.policy, budget=0.6, window=4, seed=0, decided=picks)
    assert [pick.cell for pick in learner.open] == cells and learner.spent > 0
    source = search.SearchSource(exp, learner, "key", Path("scratch"), Downloads(()), ())
    asked = source.ask(3)
    assert [unit.key for unit in asked] == [record.key for record in records]
    for record in records:
        source.tell(record)
    new = source.ask(4)
    assert new and not {unit.key for unit in new} & {record.key for record in records}


def test_a_growing_search_pays_at_least_for_one_arm(prepared):
    exp = prepared(search={"budget": 0.01})
    problem = problems.measured_problem(exp, measured(exp))
    assert problems.budget(exp.config.search, problem).share == 0.01
    whole = problem.exhaustive_cost
    least = problems.budget(exp.config.search, problem, grows=True).within(whole)
    assert least >= max(problem.arm_cost.min(), least_budget(problem)) > 0.01 * whole


def problem_of(checkpoints, seconds, times=1.0):
    """Two models of so many checkpoints in all, whose scores take so many seconds together; those
    of the second model take so many times as much as those of the other.
    """
    revisions = [tuple(f"step{step}" for step in range(count)) for count in (checkpoints - 1, 1)]
    suites = [Suite(name, names, (0, 1), 1) for name, names in zip("ab", revisions, strict=True)]
    arms = grid(suites)
    cost = np.ones((len(arms), 1))
    cost[-2:] = times
    cost *= seconds / (1.5 * cost.sum())  # two layers share an encoding
    return Problem(arms, ("task",), arm_features(suites), cost, cost, kinds=("sts",))


@pytest.mark.parametrize(
    ("problem", "share", "reason"),
    [
        (problem_of(3, 1e6), 1.0, "3 checkpoints"),
        (problem_of(20, 200.0), 1.0, "all scores take about 3.3 min"),
        (problem_of(20, 1e6, times=1e3), 1.0, "a first look at every model takes 65%"),
        (problem_of(20, 1e6), 0.3, "all scores take about 11.6 days"),
    ],
)
def test_an_automatic_budget_scores_all_of_a_small_grid(problem, share, reason):
    chosen, text = problems.automatic_budget(problem)
    assert chosen == share and reason in text
    assert text.startswith("auto: every score, since") == (share == 1.0)


@pytest.mark.parametrize(
    ("models", "needed"),
    [(2, "each of 2 models"), (1, r"a single score, with its encoding, takes 0\.\d+")],
)
def test_a_budget_that_is_too_small_is_refused(prepared, models, needed):
    def with_budget(budget):
        return prepared(models=SMALL["models"][:models], search={"budget": budget})

    with pytest.raises(ConfigError, match=rf"may spend 0.0001 of.*{needed}.*search\.budget=0\.\d+"):
        problems.check(with_budget(1e-4))
    problems.check(with_budget("auto"))
