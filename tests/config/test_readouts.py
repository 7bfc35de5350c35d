from __future__ import annotations

import pytest

from daskmetrics import config
from daskmetrics.config import Readouts
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
            {"pooling": ["mean", "last"], "dimensions": ["all", 128, "pca32"]},
            ("mean", "mean,128d", "mean,pca32", "last", "last,128d", "last,pca32"),
        ),
    ],
)
def test_readouts_are_the_product_of_what_is_listed(readouts, names):
    assert parsed(**readouts).names(depth=6) == names


@pytest.mark.parametrize(
    "text", ["mean(10:20)", "concat(3, 13)", "mean(-20:)", "concat(3, 3)", "mean(3:4)", "mean(5:3)"]
)
def test_layers_that_do_not_exist_are_refused_with_those_that_do(text):
    with pytest.raises(ConfigError, match=r"two or more different layers of 0\.\.\.12"):
        Readouts(layers=[text]).names(depth=12)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("pooling", ["men"], "readouts.pooling"),
        ("layers", ["mean(-:3)"], "'each', or layers that are read together"),
        ("dimensions", ["pca"], "components such as pca128"),
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
    assert second.readouts.names(3) == ("cls",)
