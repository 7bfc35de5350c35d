"""A value has the same hash in every process, and another one if its content differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from daskmetrics.core.content import NOT_REPRODUCIBLE, content_hash

pytest.importorskip("pandas")
pytest.importorskip("scipy")
kinds = pytest.importorskip("tests.core.kinds")


@pytest.fixture(scope="module")
def answers() -> list[dict[str, list[str]]]:
    """The hashes of two processes, in which the classes stand in the main module."""
    found = []
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, kinds.__file__]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(json.loads(done.stdout))
    return found


@pytest.mark.parametrize("name", kinds.KINDS)
def test_a_hash_is_of_the_content_in_every_process(answers, name):
    (one, other), again = (answer[name] for answer in answers)
    assert [one, other] == again
    assert one != other and "refused" not in one + other


@pytest.mark.parametrize("name", kinds.REFUSED)
def test_a_value_without_reproducible_content_is_refused(name):
    with pytest.raises(NOT_REPRODUCIBLE):
        content_hash(kinds.REFUSED[name])


def test_a_hash_does_not_depend_on_memory():
    numbers = np.arange(6).reshape(2, 3)
    turned = np.asfortranarray(numbers)
    assert content_hash(numbers) == content_hash(turned) == content_hash(numbers[::1])
    shared = (1, 2)
    assert content_hash((shared, shared)) == content_hash(((1, 2), (1, 2)))
    assert content_hash({1: 2, 3: 4}) == content_hash({3: 4, 1: 2})
