from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.bandit import arm_features
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.keys import content_key
from daskmetrics.domain.names import (
    Arm,
    Cell,
    Suite,
    order_problem,
    select_revisions,
    step_of,
    training_order,
)

FOLDER = ["step0", "step1", "step2", "step4", "step1000", "step2000", "main"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("all", tuple(FOLDER)),
        ("log", ("step0", "step1", "step2", "step4")),
        ("every 1000", ("step0", "step1000", "step2000")),
        ("every 1000 to 1000", ("step0", "step1000")),
        ("log to 2", ("step0", "step1", "step2")),
        ("main", ("main",)),
        (["step4", "main"], ("step4", "main")),
    ],
)
def test_ranges_keep_what_exists(wanted, expected):
    assert select_revisions(wanted, FOLDER) == expected


@pytest.mark.parametrize(
    ("wanted", "revisions", "message"),
    [
        ("step3", FOLDER, "'step3' does not exist. Available: step0, step1"),
        (["step0", "step77"], FOLDER, "'step77' does not exist. Available: step0, step1"),
        ("every 1000", None, "every 1000 to 143000"),
    ],
)
def test_unknown_revisions_and_endless_ranges_are_refused(wanted, revisions, message):
    with pytest.raises(ConfigError, match=message):
        select_revisions(wanted, revisions)


def test_layers_that_a_suite_does_not_have_are_refused():
    with pytest.raises(ConfigError, match=r"layers 0\.\.\.6, but not \[7\]"):
        Suite("m", ("main",), (0, 7), 6)


def test_order_of_training():
    ordered = ("step8", "step64", "step512", "main")
    assert training_order(["main", "step512", "step8", "step64"]) == ordered
    assert step_of("main") is None


@pytest.mark.parametrize(
    ("ordered", "steps"),
    [
        ("epoch_1 epoch_2 epoch_10", [1, 2, 10]),
        ("global_step50 global_step100", [50, 100]),
        ("checkpoint-20-merged checkpoint-100-merged main", [20, 100, None]),
        ("0900000 1000000", [900_000, 1_000_000]),
        ("epoch=2-step=600 epoch=10-step=3000", [600, 3000]),
        ("stage1-step500-tokens2.5B stage1-step1000-tokens5B", [500, 1000]),
        ("tokens500M tokens1B tokens1.5B", [500 * 10**6, 10**9, 1500 * 10**6]),
        ("iter_0000900 iter_0001000", [900, 1000]),
        ("step9k step10k final", [9000, 10_000, None]),
        ("2024-04-01-step-8 2024-05-01-step-64", [8, 64]),
        ("step_8.pt step_64.pt", [8, 64]),
        ("step9e3 step1e4 step2.5e4", [9000, 10_000, 25_000]),
        ("8-lr1e-4 64-lr1e-4", [8, 64]),
        ("seed3e8 seed3e40", [8, 40]),  # of epochs
        ("vit_300e-100 vit_300e-1000", [100, 1000]),
    ],
)
def test_steps_are_found_in_names_and_order_them(ordered, steps):
    names = tuple(ordered.split())
    assert training_order(sorted(names)) == names
    assert list(map(step_of, names)) == steps
    assert order_problem(names) == ""
    times = arm_features([Suite("m", names, (1,), 1)])[:, 0]
    assert all(a < b for a, b in pairwise(times[: len(names) - steps.count(None)]))


@given(st.sets(st.integers(0, 10**6), min_size=1), st.sampled_from(("", "e-{}-of", "step_{}.5B")))
def test_any_template_orders_by_its_number(steps, template):
    names = [(template or "{}").format(step) for step in sorted(steps)]
    assert training_order(sorted(names)) == tuple(names)


@pytest.mark.parametrize(
    "name",
    [
        *("main", "v1.5", "v2", "2024-05-01", "epoch-0.5", "a" * 39 + "1", "refs/pr/1"),
        *("1_Pooling", "tmp-checkpoint-5", ".step8.123.part", "step" + "9" * 30, "２"),
    ],
)
def test_other_numbers_are_no_steps(name):
    assert step_of(name) is None


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["step100", "epoch1"], "'epoch1' and 'step100' do not name their steps in one way"),
        (["stage1-step900", "stage2-step100"], "100 and 900 are taken as steps"),
        (["checkpoint-5", "checkpoint-5-merged"], "5 and 5 are taken as steps"),
        (["step1", "v1.5", "v1.10"], "'v1.5' and 'v1.10' name no training step"),
    ],
)
def test_names_without_one_order_are_reported(names, message):
    assert message in order_problem(names)


contents = st.lists(st.integers(-9, 99) | st.text("19a,", max_size=3), max_size=3)


@given(contents, contents)
def test_keys_are_equal_exactly_when_contents_are(a, b):
    assert (content_key(a) == content_key(b)) == (a == b)


def test_default_readouts_are_not_written():
    assert str(Arm("m", "step1", 3)) == "m@step1/3"


@pytest.mark.parametrize(
    "name", ["m@step1/3", "m@refs/pr/1/3", "m@step1/3/last,256d", "m@refs/1/6/mean"]
)
def test_names_of_arms_and_cells_parse_back(name):
    assert str(Arm.parse(name)) == name
    assert str(Cell.parse(f"{name}:file:reviews.csv")) == f"{name}:file:reviews.csv"


@pytest.mark.parametrize(
    "name", ["m@step1/3/lost", "m@step1/last", "m@step1/3/256d,last", "m/3/last"]
)
def test_what_is_no_arm_is_refused(name):
    with pytest.raises(ValueError, match="is not a candidate"):
        Arm.parse(name)


def test_a_suite_has_every_readout_of_every_layer():
    suite = Suite("m", ("a", "b"), (0, 1, 2), 2, ("", "last"))
    names = ["0", "0/last", "1", "1/last", "2", "2/last"]
    arms = [str(arm) for arm in suite.arms()]
    assert [arm for arm in arms if arm.startswith("m@a/")] == [f"m@a/{name}" for name in names]
    assert len(arms) == 2 * len(names)
