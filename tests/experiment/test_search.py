"""The search as a source, message by message, without processes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daskmetrics import experiment
from daskmetrics.bandit import Learner, Problem, arm_features, least_budget, policy_named
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.events import UnitAsked
from daskmetrics.core.names import Suite, grid, seed_of
from daskmetrics.core.outcomes import Difference, difference
from daskmetrics.core.results import Measured, Scored
from daskmetrics.execution import Record
from daskmetrics.experiment import search as search
from daskmetrics.experiment._worker import LayerEmbeddings
from tests.events import started


def measured(experiment, lost=()) -> list[Record]:
    records = []
    for suite in experiment.suites:
        for checkpoint in suite.checkpoints():
            key = experiment.measure_keys[checkpoint]
            if str(checkpoint) in lost:
                records.append(
                    Record(key, str(checkpoint), "measure", "quarantined", reason="its worker died")
                )
                continue
            values = (
                np.random.default_rng(seed_of(key))
                .normal(size=(len(suite.layers), len(experiment.metrics)))
                .tolist()
            )
            names = tuple(metric.name for metric in experiment.metrics)
            result = Measured(suite.layers, names, values, values, status=())
            records.append(Record(key, str(checkpoint), "measure", "ok", result))
    return records


def answer(unit) -> Record:
    result = Scored(seed_of(unit.key) % 1000 / 1000, 0.01, n=100, encode_seconds=0.1)
    return Record(unit.key, unit.name, unit.kind, "ok", result)


class Bench:
    """A search whose units are answered by hand."""

    def __init__(self, experiment, decided=(), lost=()):
        self.problem = search.problem(experiment, measured(experiment, lost))
        self.key = f"search of {len(self.problem.arms)} arms"
        config = experiment.config.search
        self.learner = Learner(
            self.problem,
            policy_named(config.policy),
            budget=search.budget(config, self.problem),
            window=search.window(experiment, ()),
            seed=0,
            decided=decided,
        )
        self.search = search.SearchSource(experiment, self.learner, self.key, Path())
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
    bench = Bench(prepared())
    asked = bench.drive()
    assert len({unit.key for unit in asked}) == len(asked) > 4
    inputs = {unit.input.key for unit in asked}
    assert len(inputs) < len(asked)
    assert {tuple(unit.resources) for unit in asked} == {("CPU",)}
    assert {tuple(unit.input.resources) for unit in asked} == {("GPU",)}


def test_the_latest_encodings_are_kept_as_far_as_there_is_room(prepared, tmp_path):
    """A later layer of their checkpoint then needs no other encoding."""
    sweep = {"policy": "sweep", "budget": 1.0, "reward": "mean"}
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
    bench = Bench(prepared(tasks=["stdlib:package", "stdlib:order", "stdlib:clusters"]))
    units, by_task = bench.drive(), {}
    for unit in units:
        by_task.setdefault(unit.args[0], []).append(unit)
    assert all(len({unit.key for unit in same}) > 1 for same in by_task.values())
    for task, same in by_task.items():
        vectors = np.random.default_rng(0).normal(size=(1, len(task.texts()), 4)).astype(np.float32)
        values = []
        for unit in same[:3]:
            layer = unit.args[1]
            embeddings = LayerEmbeddings((layer,), len(task.texts()), {"": 4}, tmp_path, "key")
            embeddings.put(np.arange(len(task.texts())), [vectors])
            value = unit.function(embeddings, *unit.args)
            assert value.reading.layer == layer
            values.append(replace(value, reading=None))
        assert all(value == values[0] for value in values)
        assert difference(values[0], values[1]) == Difference(0.0, 0.0, paired=True)


def test_other_seeds_and_tasks_draw_other_folds(prepared):
    plain, other = prepared(), prepared(seed=3)
    seeds = {each.score_seed(task) for each in (plain, other) for task in each.tasks}
    assert len(seeds) == 2 * len(plain.tasks)


@pytest.mark.parametrize("seed", range(2))
def test_the_order_of_arrival_does_not_change_the_search(prepared, seed):
    quiet, shuffled = Bench(prepared()), Bench(prepared())
    first, second = quiet.drive(slots=1), shuffled.drive(slots=6, seed=seed)
    assert [unit.key for unit in first] == [unit.key for unit in second]
    assert quiet.learner.recommendation() == shuffled.learner.recommendation()


@pytest.mark.parametrize("stop_after", [1, 12])
def test_a_search_resumes_from_the_journal(prepared, stop_after):
    quiet, broken = Bench(prepared()), Bench(prepared())
    quiet.drive()
    asked = broken.drive(stop_after=stop_after)
    assert search.decided(broken.entries, "another") == []
    resumed = Bench(prepared(), decided=search.decided(broken.entries, broken.key))
    # what was recorded before the interruption
    known = {unit.key for unit in asked[: stop_after // 2]}
    again = resumed.drive(seed=stop_after, known=known)
    assert not {unit.key for unit in again} & known
    assert resumed.learner.picks == quiet.learner.picks
    assert resumed.learner.recommendation() == quiet.learner.recommendation()


def test_a_checkpoint_that_could_not_be_measured_is_excluded(prepared):
    bench = Bench(prepared(), lost=("b@step2", "a@step1"))
    arms = bench.problem.arms
    assert not {"b@step2", "a@step1"} & {str(arm.checkpoint) for arm in arms}
    assert bench.drive()


def test_a_search_without_measured_checkpoints_is_an_error(prepared):
    experiment = prepared()
    lost = tuple(map(str, experiment.checkpoints))
    with pytest.raises(DaskmetricsError, match="No checkpoint could be measured"):
        search.problem(experiment, measured(experiment, lost))


def test_failed_cells_are_not_scored_again(prepared):
    bench = Bench(prepared())
    asked = []
    while units := bench.search.ask(1):
        asked += units
        failed = Record(units[0].key, units[0].name, "score", "nan", reason="not finite")
        bench.search.tell(failed if len(asked) % 3 == 0 else answer(units[0]))
    assert len({unit.key for unit in asked}) == len(asked)
    assert bench.learner.recommendation().failed == len(asked) // 3


def test_an_objective_sets_the_weights_of_tasks_and_not_the_keys_of_numbers(prepared):
    plain, weighed = (
        prepared(),
        prepared(search={"objective": "stdlib:order", "weights": {"stdlib:order": 2}}),
    )
    assert search.build_problem(plain, plain.suites).objective_weights.tolist() == [0.5, 0.5]
    assert search.build_problem(weighed, weighed.suites).objective_weights.tolist() == [1.0, 0.0]
    assert weighed.numbers_key == plain.numbers_key and weighed.key != plain.key


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (
            {"objective": "clasification"},
            "Unknown objective 'clasification'. Did you mean 'classification'",
        ),
        (
            {"weights": {"stdlib:ordr": 2}},
            "Unknown task in 'search.weights': 'stdlib:ordr'. Did you mean",
        ),
        ({"weights": {"stdlib:order": -1}}, "search.weights.stdlib:order': got -1"),
        ({"policy": "rase"}, "Unknown policy 'rase'. Did you mean 'race'"),
        ({"policy": "nowhere:ask"}, "Policy 'nowhere:ask' cannot be loaded"),
        ({"policy": "math:pi"}, "must be a function of a State, but is a float"),
    ],
)
def test_an_invalid_search_is_an_error_before_anything_starts(prepared, search, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        prepared(search=search)


def test_a_policy_may_be_an_object_or_an_import_path(prepared):
    def mine(state):
        return None

    custom = experiment.prepare(prepared().config, mine)
    assert custom.policy is mine and custom.config.search.policy.endswith("<locals>.mine")
    assert custom.key != prepared().key
    assert prepared(search={"policy": "daskmetrics.bandit.policies:race"}).policy is policy_named(
        "race"
    )


def fails(state):
    raise KeyError(state)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("os:makedirs", "failed with TypeError in .*posixpath"),
        ("json:JSONDecoder", "failed with TypeError"),
        ("operator:not_", "Policy 'operator:not_' must be a function of a State"),
        (
            "tests.experiment.test_search:fails",
            r"failed with KeyError in .*test_search\.py, line \d+",
        ),
        ("copy:copy", "must return a Choice or None, but returned a State"),
    ],
)
def test_a_function_that_is_no_policy_is_refused_before_anything_starts(prepared, path, message):
    with pytest.raises(ConfigError, match=message):
        search.check(prepared(search={"policy": path}))


def test_the_window_depends_on_the_workers_until_a_run_has_begun(prepared):
    few, many = (prepared(cluster={"kind": "local", "workers": workers}) for workers in (2, 32))
    assert few.key == many.key
    assert [search.window(each, ()) for each in (few, many)] == [8, 32]
    more = {"kind": "local", "workers": 128}
    policies = [prepared(cluster=more, search={"policy": policy}) for policy in ("race", "sweep")]
    assert [search.window(each, ()) for each in policies] == [32, 128]  # which race could not use
    begun = [started("another", window=5), started(many.key, window=32)]
    assert search.window(few, begun) == search.fixed_window(few, begun) == 32
    assert search.fixed_window(few, ()) is None
    assert search.window(prepared(search={"window": 4}), begun) == 4


def test_a_growing_search_goes_on_from_the_cells_of_earlier_searches(prepared):
    exp = prepared(search={"budget": 0.6})
    problem, tasks = search.problem(exp, measured(exp)), {task.name: task for task in exp.tasks}
    cells = [problem.cell(arm, task) for arm, task in ((0, 1), (3, 0), (5, 1))]
    records = [
        Record(
            exp.score_key(cell.arm, tasks[cell.task]),
            str(cell),
            "score",
            "ok",
            value=Scored(0.5, 0.1),
        )
        for cell in cells
    ]
    other = Record("of deleted weights", "a@gone/0:order", "score", "ok", Scored(0.5, 0.1))
    picks = search.carried_on(exp, problem, [], [records[0], other, *records[1:]])
    assert [pick.cell for pick in picks] == cells
    assert [pick.index for pick in picks] == [pick.known for pick in picks] == [0, 1, 2]
    # a search that was interrupted after two decisions keeps these, and what they lack follows
    again = search.carried_on(exp, problem, picks[:2], records)
    assert again == picks
    learner = Learner(problem, exp.policy, budget=0.6, window=4, seed=0, decided=picks)
    assert [pick.cell for pick in learner.open] == cells and learner.spent > 0
    source = search.SearchSource(exp, learner, "key", Path("scratch"))
    asked = source.ask(3)
    assert [unit.key for unit in asked] == [record.key for record in records]
    for record in records:
        source.tell(record)
    new = source.ask(4)
    assert new and not {unit.key for unit in new} & {record.key for record in records}


def test_a_growing_search_pays_for_one_arm_and_a_look_at_every_model_at_least(prepared):
    exp = prepared(search={"budget": 0.01})
    problem = search.problem(exp, measured(exp))
    assert search.budget(exp.config.search, problem).share == 0.01
    least = search.budget(exp.config.search, problem, grows=True).within(problem.exhaustive_cost)
    assert (
        least >= max(problem.arm_cost.min(), least_budget(problem)) > 0.01 * problem.exhaustive_cost
    )


def problem_of(checkpoints: int, seconds: float, loading: float = 0.0) -> Problem:
    """Two models of so many checkpoints in all, whose scores take so many seconds together."""
    revisions = [tuple(f"step{step}" for step in range(count)) for count in (checkpoints - 1, 1)]
    suites = [Suite(name, names, (0, 1), 1) for name, names in zip("ab", revisions, strict=True)]
    arms = grid(suites)
    ones = np.ones((len(arms), 4))
    encode = loading * ones
    scale = seconds / (ones.sum() + checkpoints * 4 * loading)
    kinds = ("classification",) * 4
    return Problem(
        arms,
        tuple("stuv"),
        arm_features(suites),
        scale * encode,
        scale * ones,
        kinds=kinds,
    )


@pytest.mark.parametrize(
    ("problem", "share", "reason"),
    [
        (problem_of(3, 1e6), 1.0, "3 checkpoints"),
        (problem_of(20, 200.0), 1.0, "all scores take about 3.3 min"),
        (problem_of(20, 1e6), 0.3, "all scores take about 11.6 days"),
    ],
)
def test_a_search_that_chooses_its_budget_scores_everything_where_the_grid_is_small(
    problem, share, reason
):
    chosen = search.automatic_budget(problem)
    assert chosen.share == share and reason in str(chosen) and str(chosen).startswith("auto: ")
    assert str(chosen).startswith("auto: every score, since") == (share == 1.0)


def test_everything_is_scored_where_a_first_look_takes_half_of_it():
    problem = problem_of(4, 1e6, loading=1000.0)
    # the model of a single checkpoint
    factor = np.where(problem.model_index == 1, 50.0, 1.0)[:, None]
    encode, score = (factor * problem.encode_cost)[:, :1], problem.score_cost[:, :1]
    single_task = replace(problem, tasks=("s",), kinds=None, encode_cost=encode, score_cost=score)
    chosen = search.automatic_budget(single_task)
    assert chosen.share == 1.0 and "a first look at every model takes" in str(chosen)


def test_a_budget_below_a_look_at_every_model_is_refused_before_anything_starts(prepared):
    exp = prepared(search={"budget": 1e-4})
    with pytest.raises(
        ConfigError, match=r"each of 2 models.*search\.budget=0\.\d+, or let the search choose"
    ):
        search.check(exp)
    search.check(prepared(search={"budget": "auto"}))
