from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.map._items import content_of, items

VALUES = [0, 0.0, False, None, "0", [0], {"a": 0}, {"a": 0.0}, float("nan"), (0,), {1: 2}, {"1": 2}]


@dataclass(frozen=True)
class Setting:
    rate: float


def test_different_values_have_different_keys():
    made = items(VALUES, "m:f", "v")
    assert len({item.key for item in made}) == len(VALUES)


def test_keys_are_the_same_in_another_process():
    code = f"""
import numpy as np
from daskmetrics.execution.map._items import content_of, items
nan = float("nan")
print([item.key for item in items({VALUES}, "m:f", "v")])
print(content_of(np.arange(5)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = f"{[item.key for item in items(VALUES, 'm:f', 'v')]}\n{content_of(np.arange(5))}\n"
    assert done.stdout == expected


def test_a_key_names_all_that_a_result_depends_on():
    def key(value=1, function="m:f", version="v", seed=0):
        return items([value], function, version, seed)[0].key

    others = {key(2), key(function="m:g"), key(version="w"), key(seed=1)}
    assert len(others) == 4 and key() not in others


def test_equal_items_are_counted_and_independent_of_their_place():
    first = items([5, 7, 5], "m:f", "v")
    again = items([5, 5, 7], "m:f", "v")
    assert len({item.key for item in first}) == 3
    assert {item.key for item in first} == {item.key for item in again}
    assert all(0 <= item.seed < 2**32 for item in first) and len({item.seed for item in first}) == 3


def test_objects_with_content_have_keys():
    one, same, other = Setting(0.1), Setting(0.1), Setting(0.2)
    assert content_of(one) == content_of(same) != content_of(other)
    assert content_of(np.arange(3)) != content_of(np.arange(4))


def test_what_has_no_content_is_refused():
    with pytest.raises(ConfigError, match="no content that names it"):
        items([object()], "m:f", "v")
