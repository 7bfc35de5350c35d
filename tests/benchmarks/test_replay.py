"""Searches of known scores: tables, their costs, trials, and the script."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import replay
from replay import (
    ReplayPlan,
    Scenario,
    ScoreRow,
    ScoreTable,
    Setting,
    read,
    run_trials,
    score_table,
    simulate,
    true_losses,
)

from daskmetrics.bandit import policy_named
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.domain.names import Arm
from tests.bandit.conftest import make_world
from tests.report.conftest import Story, make_run

DATA = os.environ.get("DASKMETRICS_PUBLISHED_DATA")
needs_data = pytest.mark.skipif(
    not DATA, reason="set DASKMETRICS_PUBLISHED_DATA to the folder of published_scores.csv.gz"
)
TASKS = {"cheap": 1.0, "fair": 4.0, "expensive": 100.0, "extreme": 400.0}
KINDS = {"cheap": "pairs", "fair": "pairs", "expensive": "classes", "extreme": "classes"}


def known_rows() -> list[ScoreRow]:
    """Thirty arms on four tasks, which are better the later and the nearer to layer 3."""
    rng = np.random.default_rng(0)
    rows = []
    for t, step in enumerate((0, 1, 4, 16, 64, 256)):
        for layer in range(5):
            arm = Arm("m", f"step{step}", layer)
            quality = 0.5 + 0.05 * t - 0.03 * (layer - 3) ** 2
            for task, seconds in TASKS.items():
                score = round(quality + rng.normal(0, 0.003), 6)
                rows.append(ScoreRow(arm, task, score, seconds, 0.0, KINDS[task]))
    return rows


@pytest.fixture
def known() -> ScoreTable:
    return score_table(known_rows())


@pytest.fixture
def known_csv(tmp_path: Path) -> Path:
    lines = ["model,revision,layer,task,score,seconds,kind,metric:entropy"]
    for row in known_rows():
        numbers = f"{row.task},{row.score},{row.seconds},{row.kind},{0.1 * row.arm.layer}"
        lines.append(f"m,{row.arm.revision},{row.arm.layer},{numbers}")
    return write(tmp_path / "scores.csv", *lines)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


# --- tables


def test_models_of_a_table_differ_in_depth_and_revisions():
    rows = [
        ScoreRow(Arm("a", "main", 2), "t", 0.1, kind="pairs"),
        ScoreRow(Arm("b", "step4", 0), "t", 0.2),  # the others say the kind
        ScoreRow(Arm("b", "step4", 6), "t", 0.3),
    ]
    table = score_table(rows)
    assert [(s.model, s.revisions, s.layers, s.depth) for s in table.suites] == [
        ("a", ("main",), (2,), 2),
        ("b", ("step4",), (0, 6), 6),
    ]
    assert np.isnan(table.seconds).all()
    assert table.kinds == score_table(rows[::-1]).kinds == {"t": "pairs"}
    with pytest.raises(DataError, match="no scores"):
        score_table([])


def test_a_table_has_the_scores_of_its_rows(tmp_path, known_csv, known):
    table = read(known_csv)
    assert table.arms == known.arms and table.kinds == known.kinds
    np.testing.assert_array_equal(table.scores, known.scores)
    np.testing.assert_array_equal(table.seconds, known.seconds)
    with pytest.raises(ConfigError, match="neither a table nor the folder of a run"):
        read(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="No run in"):
        read(tmp_path)


def test_the_published_columns(tmp_path):
    header = "family,size,revision,layer,task,task_type,main_score,evaluation_time,n_subsets"
    rows = "Pythia,14m,main,0,BIOSSES,sts,0.5,7.5,1", "Pythia,14m,main,1,BIOSSES,sts,,8,1"
    table = read(write(tmp_path / "scores.csv", header, *rows))
    # a row without a score is no row
    assert [str(arm) for arm in table.arms] == ["Pythia-14m@main/0"]
    assert table.kinds == {"BIOSSES": "sts"}
    assert table.scores.tolist() == [[0.5]] and table.seconds.tolist() == [[7.5]]


@pytest.mark.parametrize(
    "column", ["model", "revision", "layer", "task", "score", "seconds", "kind"]
)
def test_a_misspelt_column_is_an_error(tmp_path, column, known_csv):
    renamed = tmp_path / "renamed.csv"
    header, *rows = known_csv.read_text().splitlines()[:3]
    for name in (f"{column}s", f" {column}", column.title()):
        write(renamed, header.replace(column, name, 1), *rows)
        with pytest.raises(ConfigError, match=f"has a column '{name}' and no '{column}'"):
            read(renamed)


def test_only_the_requested_models_are_read(tmp_path):
    path = write(tmp_path / "s.csv", "model,layer,task,score", "a,0,t,1", "b,0,t,2")
    assert [suite.model for suite in read(path).suites] == ["a", "b"]
    assert [suite.model for suite in read(path, ["b"]).suites] == ["b"]
    with pytest.raises(ConfigError, match=r"Unknown model 'c'.*Valid: a, b"):
        read(path, ["c"])


HEADER = "model,layer,task,score"


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("model,layer,score", ["a,0,1"], "has no column 'task'"),
        (HEADER, ["a,first,t,1"], "line 2: 'layer' is 'first'"),
        (HEADER, ["a,1.5,t,1"], "line 2: 'layer' is 1.5, and not a whole"),
        (HEADER, ["a,0,t,1", "a,-1,t,1"], "line 3: 'layer' is '-1'"),
        (HEADER, ["a,0,t,good"], "line 2: 'score' is 'good'"),
        (HEADER, ["a,0,t,1e300"], "line 2: 'score' is '1e300'"),
        (HEADER, ["a,0,,1"], "line 2: there is no task"),
        (HEADER, ["a,0,t,1", "a,0,t,2"], "line 3: a@main/0:t has the scores 1 and 2"),
        (HEADER + ",seconds", ["a,0,t,1,-3"], "line 2: 'seconds' is '-3'"),
        (HEADER + ",seconds", ["a,0,t,1,inf"], "line 2: 'seconds' is 'inf'"),
        (HEADER + ",score", ["a,0,t,1,2"], "has a column twice in its header"),
        (HEADER, [], "contains no scores"),
    ],
)
def test_an_error_in_a_table_has_its_line(tmp_path, header, rows, message):
    with pytest.raises((ConfigError, DataError), match=message):
        read(write(tmp_path / "s.csv", header, *rows))


def test_the_folder_of_a_run(tmp_path):
    run = make_run(tmp_path / "run", Story(budget=1.0, objective="stdlib:order"))
    table = read(run.folder.path)
    assert tuple(dict.fromkeys(arm.model for arm in table.arms)) == run.models
    assert table.kinds == run.kinds
    scores = {arm: {task: s.score for task, s in of.items()} for arm, of in run.recorded.items()}
    assert {cell: scores[cell.arm][cell.task] for cell in table.cells()} == table.cells()
    assert table.known == sum(map(len, scores.values()))
    assert table.objective == "stdlib:order"
    assert (table.seconds > 0).all() and (table.encode <= table.seconds).all()
    failing = tuple(f"{arm}:{task}" for arm in table.arms for task in table.tasks)
    unscored = make_run(tmp_path / "other", Story(decisions=3, failing=failing))
    with pytest.raises(ConfigError, match=r"has no scores.*search.policy=sweep"):
        read(unscored.folder.path)


@pytest.mark.shared
@needs_data
def test_the_published_tables():
    folder = Path(str(DATA))
    table = read(folder / "published_scores.csv.gz", ["Pythia-410m"])
    assert table.scores.shape == (350, 32) and table.known == 11_200
    assert np.nansum(table.seconds) / 3600 == pytest.approx(278, abs=0.5)
    with gzip.open(folder / "published_scores.csv.gz", "rt") as lines:
        row = next(row for row in csv.DictReader(lines) if row["size"] == "410m")
    index = table.arms.index(Arm("Pythia-410m", row["revision"], int(row["layer"])))
    assert table.scores[index, table.tasks.index(row["task"])] == float(row["main_score"])

    other = read(folder / "other_families_scores.csv.gz")
    holes = {suite.model: 0 for suite in other.suites}
    for arm, complete in zip(other.arms, np.isfinite(other.scores).all(axis=1), strict=True):
        holes[arm.model] += not complete
    assert holes == {"LLM2Vec-mntp-8B": 14, "Pythia-160m": 0, "mamba-130m": 0, "mamba-370m": 22}


# --- costs and losses


def test_costs_are_seconds_shared_encodings_or_units(known):
    published = Scenario(overhead=30).build_problem(known)
    assert published.score_cost[0].tolist() == [31.0, 130.0, 430.0, 34.0]
    assert not published.encode_cost.any()
    shared = Scenario("shared").build_problem(known)
    np.testing.assert_allclose(shared.encode_cost[0], [0.9, 90.0, 360.0, 3.6])
    np.testing.assert_allclose(shared.encode_cost + shared.score_cost, known.seconds)
    assert shared.exhaustive_cost < known.seconds.sum() / 3
    # measured encodings are preferred to assumed ones
    measured = replace(known, encode=0.5 * known.seconds)
    assert not Scenario().build_problem(known).encode_cost.any()
    np.testing.assert_allclose(Scenario().build_problem(measured).encode_cost, 0.5 * known.seconds)
    # a cell without seconds costs the mean of its task
    known.seconds[7, 2] = np.nan
    assert Scenario().build_problem(known).score_cost[7, 2] == 400.0
    for nothing in (np.nan, 0.0):
        known.seconds[:] = nothing
        assert Scenario().build_problem(known).exhaustive_cost == 120
        with pytest.raises(ConfigError, match="need seconds above 0"):
            Scenario("published").build_problem(known)


def test_a_seed_draws_its_tasks(known):
    drawn = [Scenario(subset=2).draw_tasks(known, seed).tasks for seed in range(12)]
    assert {len(tasks) for tasks in drawn} == {2} and len(set(drawn)) > 2
    again = Scenario(subset=2).draw_tasks(known, 3)
    assert drawn[3] == again.tasks
    columns = [known.tasks.index(task) for task in again.tasks]
    np.testing.assert_array_equal(again.scores, known.scores[:, columns])
    np.testing.assert_array_equal(again.seconds, known.seconds[:, columns])
    with pytest.raises(ConfigError, match="Cannot draw 9 tasks"):
        Scenario(subset=9).draw_tasks(known, 0)


def losses_of(table, objective="all"):
    table = replace(table, objective=objective)
    return true_losses(table, Scenario().build_problem(table))


def test_the_best_arm_is_that_of_the_objective(known):
    losses = losses_of(known)
    means = known.scores.mean(axis=1)
    assert losses.min() == losses[means.argmax()] == 0.0
    np.testing.assert_allclose(losses, 1 - means / means.max())
    known.scores[4, known.tasks.index("expensive")] += 1.0
    best = [losses_of(known, name).argmin() for name in ("expensive", "classes", "pairs")]
    assert best[:2] == [4, 4] and best[2] != 4


def test_a_best_mean_score_of_zero_has_no_share(known):
    zero = replace(known, scores=np.tile(known.scores[:, :1] - known.scores[:, 0].max(), (1, 4)))
    np.testing.assert_allclose(losses_of(zero), -zero.scores[:, 0])
    flat = replace(known, scores=np.zeros_like(known.scores))
    (trial,) = run_trials(ReplayPlan(flat, Scenario(), 0.2), [Setting("sweep")], [0])
    assert trial.path[-1].loss == 0.0 and np.isnan(trial.path[-1].expected_loss)


def test_an_incomplete_arm_is_never_the_best(known):
    best = losses_of(known).argmin()
    known.scores[best, 0] = np.nan
    losses = losses_of(known)
    assert losses.min() == 0 and losses[best] == np.inf
    known.scores[:, 0] = np.nan
    with pytest.raises(DataError, match=r"each of the 4 tasks \(90 of 120 cells"):
        losses_of(known)


# --- searches


def test_a_cell_missing_from_the_table_fails():
    small = make_world(revisions=3)
    table = {cell: score for cell, score in small.table.items() if cell.task != "task1"}
    result = simulate(small.problem, table, policy_named("race"), budget=0.5, seed=0)
    assert result.recommendation.failed > 0
    assert "task1" not in result.recommendation.best.scores


def test_a_sweep_on_three_workers_takes_a_third_of_the_time():
    small = make_world(revisions=3)
    unit = np.ones_like(small.scores)
    problem = replace(small.problem, encode_cost=0 * unit, score_cost=unit)
    sweep = policy_named("sweep")
    end = simulate(problem, small.table, sweep, budget=1.0, seed=0, workers=3).path[-1]
    assert (end.loss, end.share, end.seconds) == (0.0, 1.0, np.ceil(unit.size / 3))
    assert end.confidence > 0.99


def test_a_worker_loads_a_checkpoint_that_it_does_not_hold():
    small = make_world(revisions=3, layers=2, tasks=3)
    loading = replace(small.problem, load_cost=np.full(len(small.problem.arms), 100.0))
    sweep = [
        simulate(p, small.table, policy_named("sweep"), budget=1.0, seed=0)
        for p in (small.problem, loading)
    ]
    # the grid is swept checkpoint by checkpoint: each of the six is loaded once, and the one of the
    # second model that a first look needs is loaded for it, too
    assert sweep[1].path[-1].seconds - sweep[0].path[-1].seconds == pytest.approx(100.0 * (6 + 1))
    assert sweep[1].recommendation.spent == pytest.approx(loading.exhaustive_cost + 100.0)


def test_trials_do_not_depend_on_the_number_of_processes(known):
    plan = ReplayPlan(known, Scenario(subset=3), 0.15)
    settings = [Setting("race"), Setting("random")]
    one, two = (list(run_trials(plan, settings, range(2), jobs)) for jobs in (1, 2))
    # the last bits of a stated loss depend on the number of threads
    for trial, other in zip(one, two, strict=True):
        assert (trial.setting, trial.seed) == (other.setting, other.seed)
        for step, same in zip(trial.path, other.path, strict=True):
            assert astuple(step) == pytest.approx(astuple(same), rel=1e-6, nan_ok=True)
    order = [(trial.setting.policy, trial.seed) for trial in one]
    assert order == [("race", 0), ("race", 1), ("random", 0), ("random", 1)]
    with pytest.raises(ConfigError, match="Did you mean 'race'"):
        next(run_trials(plan, [Setting("rase")], [0], jobs=2))


@pytest.mark.slow
@pytest.mark.shared
@needs_data
@pytest.mark.parametrize(("tasks", "budget"), [(16, 0.02), (32, 0.003)])
def test_little_of_the_cost_finds_the_best_published_arm(tasks, budget):
    """Of 14 checkpoints x 25 layers on 32 tasks."""
    published = read(Path(str(DATA)) / "published_scores.csv.gz", ["Pythia-410m"])
    plan = ReplayPlan(published, Scenario("published", subset=tasks), budget, 0, ())
    trials = list(run_trials(plan, [Setting("race")], range(5)))
    assert all(trial.path[-1].share <= budget * (1 + 1e-9) for trial in trials)
    assert np.mean([trial.path[-1].loss <= 0.01 for trial in trials]) >= 0.8


# --- the script


@pytest.fixture
def printed(known_csv, capsys):
    """Calls the script with a table in place of ``TABLE``; returns what it printed."""
    header, *rows = known_csv.read_text().splitlines()
    holes = [row for i, row in enumerate(rows) if i % 7 != 3]
    others = [row.replace("m,", "n,", 1) for row in rows]
    write(known_csv.with_name("holes.csv"), header, *holes)
    write(known_csv.with_name("both.csv"), header, *rows, *others)

    def call(line: str) -> str:
        table, *options = line.split()
        replay.main([str(known_csv.with_name(table)), "--jobs", "1", *options])
        return " ".join(capsys.readouterr().out.split())

    return call


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("scores.csv --seeds 3", "30 candidates x 4 tasks, 120 of 120 scores known"),
        ("scores.csv --seeds 3 --budget 0.5 --policy random", "of 3"),
        ("holes.csv --seeds 1 --budget 1", "30 candidates x 4 tasks, 103 of 120 scores known"),
        ("holes.csv --seeds 1 --budget 0.01", "not known"),  # the loss of an incomplete candidate
        ("both.csv --seeds 1 --models n", "30 candidates x 4 tasks, 120 of 120 scores known"),
        ("both.csv --seeds 1 --models n,m", "60 candidates x 4 tasks, 240 of 240 scores known"),
        ("scores.csv --seeds 1 --subset 1 --workers 4", "the best on all tasks is m@step256/3"),
        ("scores.csv --seeds 1 --costs unit --overhead 30", "the best on all tasks is m@step256/3"),
        ("scores.csv --seeds 1 --objective pairs", "the best on pairs is m@step256/3"),
    ],
)
def test_the_script_says_what_was_searched_and_found(printed, line, fact):
    assert fact in printed(line)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("none.csv", "No scores at"),
        ("scores.csv --policy rase", "Did you mean 'race'?"),
        ("scores.csv --budget 2", "A search needs a budget"),
        ("scores.csv --subset 9", "Cannot draw 9 tasks"),
        ("scores.csv --seeds 0", "--seeds 0: give 1 or more"),
        ("scores.csv --jobs 0", "--jobs 0: give 1 or more"),
        ("scores.csv --objective nope", "nope"),
    ],
)
def test_a_mistake_ends_the_script_with_its_remedy(printed, line, message):
    with pytest.raises(SystemExit, match=message):
        printed(line)
