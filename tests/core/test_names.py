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
    grid,
    select_revisions,
    step_of,
    training_order,
)

FOLDER = ["step0", "step1", "step2", "step4", "step1000", "step2000", "main"]


def test_sizes_do_not_overwrite_each_other():
    small, large = (Suite(name, ("step0",), (0, 1), 1) for name in ("14m", "70m"))
    assert len(set(grid([small, large]))) == 4


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


def test_the_ranges_of_pythia():
    assert len(select_revisions("every 1000 to 143000", None)) == 144
    assert select_revisions("log to 512", None) == tuple(
        f"step{s}" for s in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    )


@pytest.mark.parametrize("wanted", ["step3", ["step0", "step77"]])
def test_the_error_for_a_missing_revision_lists_the_available_ones(wanted):
    with pytest.raises(ConfigError, match=r"'step(3|77)' does not exist. Available: step0, step1"):
        select_revisions(wanted, FOLDER)


def test_an_open_range_of_a_hub_id_needs_an_end():
    with pytest.raises(ConfigError, match="every 1000 to 143000"):
        select_revisions("every 1000", None)


def test_layers_beyond_the_depth_are_an_error():
    with pytest.raises(ConfigError, match=r"layers 0\.\.\.6, but not \[7\]"):
        Suite("m", ("main",), (0, 7), 6)


def test_order_of_training():
    assert training_order(["main", "step512", "step8", "step64"]) == (
        "step8",
        "step64",
        "step512",
        "main",
    )
    assert step_of("main") is None


@given(
    st.lists(st.integers() | st.text(), max_size=4), st.lists(st.integers() | st.text(), max_size=4)
)
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
    of_a = [str(arm) for arm in suite.arms() if arm.revision == "a"]
    assert of_a == [
        "m@a/0",
        "m@a/0/last",
        "m@a/1",
        "m@a/1/last",
        "m@a/1/concat0+1",
        "m@a/2",
        "m@a/2/last",
        "m@a/2/mean0-2",
    ]
    assert len(suite.arms()) == 2 * len(of_a)


def test_layers_that_are_read_together_must_be_among_those_of_the_suite():
    with pytest.raises(
        ConfigError, match=r"reads layers \[1\], which are not among its layers \[0, 2\]"
    ):
        Suite("m", ("a",), (0, 2), 2, ("concat1+2",))
