from __future__ import annotations

import pytest

from daskmetrics import config
from daskmetrics.core.errors import ConfigError

BASE = {"name": "x", "models": [{"name": "a", "source": "somewhere"}]}


def parsed(**readouts):
    return config.parse({**BASE, "readouts": readouts}).readouts


@pytest.mark.parametrize(
    ("readouts", "names"),
    [
        ({}, ("",)),
        ({"pooling": "last", "dimensions": 64}, ("last,64d",)),
        (
            {"pooling": ["mean", "last"], "dimensions": ["all", 128, 32]},
            ("mean", "mean,128d", "mean,32d", "last", "last,128d", "last,32d"),
        ),
    ],
)
def test_readouts_are_the_product_of_what_is_listed(readouts, names):
    assert parsed(**readouts).names == names


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("pooling", ["men"], "readouts.pooling"),
        ("dimensions", ["half"], "'all', or a number such as 256"),
        ("dimensions", [0], "readouts.dimensions"),
        ("dimensions", [], "readouts.dimensions"),
    ],
)
def test_what_is_not_a_part_of_a_readout_is_refused_and_named(part, value, message):
    with pytest.raises(ConfigError, match=message):
        parsed(**{part: value})


def test_a_model_may_have_readouts_of_its_own():
    own = {"name": "b", "source": "elsewhere", "readouts": {"pooling": ["cls"]}}
    first, second = config.parse({**BASE, "models": [*BASE["models"], own]}).models
    assert first.readouts is None
    assert second.readouts.names == ("cls",)
