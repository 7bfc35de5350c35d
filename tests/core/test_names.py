from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import (
    Arm,
    Cell,
    Suite,
    content_key,
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
def test_a_revision_that_does_not_exist_or_a_range_without_an_end_is_refused(
    wanted, revisions, message
):
    with pytest.raises(ConfigError, match=message):
        select_revisions(wanted, revisions)


@pytest.mark.parametrize(
    ("layers", "readouts", "message"),
    [
        ((0, 7), ("",), r"layers 0\.\.\.6, but not \[7\]"),
        ((0, 2), ("concat1+2",), r"reads layers \[1\], which are not among its layers \[0, 2\]"),
    ],
)
def test_layers_that_a_suite_does_not_have_are_refused(layers, readouts, message):
    with pytest.raises(ConfigError, match=message):
        Suite("m", ("main",), layers, 6, readouts)


def test_order_of_training():
    ordered = ("step8", "step64", "step512", "main")
    assert training_order(["main", "step512", "step8", "step64"]) == ordered
    assert step_of("main") is None


contents = st.lists(st.integers(-9, 99) | st.text("19a,", max_size=3), max_size=3)


@given(contents, contents)
def test_keys_are_equal_exactly_when_contents_are(a, b):
    assert (content_key(a) == content_key(b)) == (a == b)


def test_arms_and_suites_with_the_default_readout_are_written_as_before_there_were_readouts():
    assert Arm("m", "step1", 3).as_dict() == {"model": "m", "revision": "step1", "layer": 3}
    assert str(Arm("m", "step1", 3)) == "m@step1/3"
    assert Arm("m", "step1", 3, "last").as_dict()["readout"] == "last"


@pytest.mark.parametrize(
    "name", ["m@step1/3", "m@refs/pr/1/3", "m@step1/3/last,256d", "m@refs/1/6/mean3-6"]
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


def test_a_suite_has_every_readout_of_every_layer_and_layers_together_once():
    suite = Suite("m", ("a", "b"), (0, 1, 2), 2, ("", "last", "mean0-2", "concat0+1"))
    names = ["0", "0/last", "1", "1/last", "1/concat0+1", "2", "2/last", "2/mean0-2"]
    arms = [str(arm) for arm in suite.arms()]
    assert [arm for arm in arms if arm.startswith("m@a/")] == [f"m@a/{name}" for name in names]
    assert len(arms) == 2 * len(names)
