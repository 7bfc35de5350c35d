"""Each benchmark of searches at its smallest, as in test_small.py."""

from __future__ import annotations

import pytest

from tests.benchmarks.conftest import FOLDER, encoder

pytestmark = pytest.mark.benchmark


def test_readouts_are_searched_and_compared(run, tmp_path):
    encoder()
    text = run(FOLDER / "readouts.py", "--small", "--folder", tmp_path / "runs")
    rows = [line.split() for line in text.splitlines()]
    assert [row[-8:-6] for row in rows if "100%" in row] == [["7", "7"], ["28", "28"], ["28", "28"]]
    assert "2 searches of the known scores" in text


def test_transfer_and_stated_loss_are_compared_with_the_truth(run_here):
    rules, _, rest = run_here("families", "--jobs", "1").partition("Spearman's rho")
    rows = [(line[:44].strip(), line[44:].split()) for line in rules.splitlines()]
    loss = {rule: numbers[0] for rule, numbers in rows if "%" in "".join(numbers)}
    # its made-up tables are best in the middle
    assert loss["depth fitted on other families"] == "0.0%"
    assert loss["the last layer"] == "18.1%"
    for policy in ("race", "rivals:tpe", "60 % depth"):
        assert rest.count(f"{policy} ") >= 9  # three tables under three costs
    assert rest.count("Where searches end") == 4 and "within: 0" in rest
    assert rest.count("expected loss") >= 4 and rest.count("true loss") >= 4


def test_costs_of_being_sure_and_of_being_right_are_compared(run_here):
    text = run_here("calibration", "--seeds", "1", "--first-seed", "1")
    printed, line = (line for line in text.splitlines() if line.endswith("1 of 1"))
    assert printed.startswith("one wide task, 0 |") and "one wide task, 0" in line


def test_the_better_of_two_models_wins_or_the_budget_is_refused(run):
    encoder()
    text = run(FOLDER / "first_look.py", "--seeds", 1, "--checkpoints", 1)
    table = [line for line in text.splitlines() if " of 1 " in line]
    assert len(table) == 4 * 2 * 4
    assert {line.split(" of 1 ")[1].split()[1] for line in table} == {"0"}  # the worse one


def test_the_best_layer_of_real_checkpoints_is_searched(run):
    encoder()
    text = run(FOLDER / "sentences.py", "--small", "--seeds", 1)
    (row,) = [line.split() for line in text.splitlines() if " of 1" in line]
    cost, loss = (float(share.removesuffix("%")) for share in row[-2:])
    assert row[0] == "docstrings" and 0 < cost < 50 and 0 <= loss < 100


def test_every_policy_is_compared_under_every_cost(run):
    text = run(FOLDER / "search.py", "--small", "--only", "cost")
    for policy in ("race", "policies:lucb", "random", "policies:linucb", "rivals:tpe"):
        assert text.count(f"\n{policy} ") >= 3
    compared = text.split("Searches whose arm is within")[1]
    line = next(line for line in compared.splitlines() if line.startswith("race  "))
    # its made-up table is easy; after 10 % an arm with all scores is named before the leader, which
    # lacks some
    assert line.split()[-2] == "2/2"


def test_a_search_is_given_each_budget_in_question(run):
    text = run(FOLDER / "search.py", "--small", "--only", "budgets")
    assert text.count("; 2 of 2; ") == 9  # its made-up table is easy


def test_landscapes_that_mislead_are_searched(run):
    text = run(FOLDER / "landscapes.py", "--seeds", 1)
    rows = [line for line in text.splitlines() if " of 1 " in line]
    assert len(rows) == 12
    [peak] = [row for row in rows if row.startswith("peak at the last layer")]
    assert peak.split("  ")[-1].endswith("%") and " 1 of 1 " in peak
