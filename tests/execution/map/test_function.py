from __future__ import annotations

import functools
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.map.function import load, name_of, prepare, version_of


def scaled(factor):
    def step(item):
        return factor * item

    return step


def plain(item):
    return item


def with_default(item, power=2):
    return item**power


class Model:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, item):
        return self.weight * item

    def method(self, item, seed=0):
        return self.weight * item + seed


def test_the_version_depends_on_source_defaults_and_captured_values():
    assert version_of(plain) == version_of(plain) != version_of(with_default)
    assert version_of(scaled(2)) == version_of(scaled(2)) != version_of(scaled(3))
    powers = [functools.partial(with_default, power=power) for power in (3, 4)]
    assert len({version_of(function) for function in (with_default, *powers)}) == 3
    assert name_of(powers[0]).endswith(":with_default") and name_of(Model(1)).endswith(":Model")
    assert version_of(Model(1)) == version_of(Model(1)) != version_of(Model(2))
    assert version_of(Model(1).method) == version_of(Model(1).method) != version_of(Model(2).method)


def test_a_function_typed_into_an_interpreter_or_that_calls_itself_has_a_version():
    made = []
    for body in ("item + 1", "item + 1", "item + 2"):
        space: dict = {}
        exec(f"def typed(item): return {body}", space)
        made.append(version_of(space["typed"]))
    assert made[0] == made[1] != made[2]

    def factorial(n):
        return n * factorial(n - 1) if n else 1

    assert len(version_of(factorial)) == 32


def test_keywords_are_detected():
    def step(item, batch_size, *, seed): ...

    def whole(seed): ...

    assert prepare(step).accepted == {"batch_size", "seed"}
    assert not prepare(whole).accepted  # its only argument is the item
    assert "seed" in prepare(Model(1).method).accepted
    assert not prepare(len).accepted


def test_a_function_that_cannot_be_sent_is_refused():
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be sent to workers"):
        prepare(lambda item: lock)
    with pytest.raises(ConfigError, match="needs a function"):
        prepare(3)
    big = bytes(33 * 2**20)
    with pytest.raises(ConfigError, match="carries 33 MiB"):
        prepare(lambda item: big)


@pytest.fixture
def module(tmp_path) -> Path:
    """A module whose name is no other test's, with a neighbour that it imports."""
    name = f"user_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{name}_near.py").write_text("OFFSET = 40\ndef shift(x): return x + OFFSET\n")
    path = tmp_path / f"{name}.py"
    path.write_text(
        f"from math import gcd\nfrom {name}_near import shift\ndef step(item): return shift(item)\n"
    )
    return path


def test_a_module_given_as_a_file_is_sent_with_the_modules_beside_it(module, tmp_path):
    ready = prepare(load(f"{module}:step"))
    assert load(f"{module}:step") is load(f"{module}:step")
    packed = tmp_path / "packed"
    packed.write_bytes(ready.payload)
    code = f"import pickle; print(pickle.load(open({str(packed)!r}, 'rb'))(2))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.stdout == "42\n", done.stderr


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("bench.py", "is not a reference to a function"),
        (":step", "is not a reference to a function"),
        ("nowhere.py:step", "does not exist"),
        ("no_such_module:step", "Cannot import 'no_such_module'"),
        ("json:lods", "Did you mean 'loads'"),
        ("json:decoder", "Unknown function of 'json' 'decoder'"),
    ],
)
def test_the_message_names_what_cannot_be_loaded(reference, message):
    assert load("json:dumps")(1) == "1"
    with pytest.raises(ConfigError, match=message):
        load(reference)


def test_a_file_that_fails_on_import_is_reported(tmp_path):
    (tmp_path / "broken_here.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        load(f"{tmp_path / 'broken_here.py'}:step")
    (tmp_path / "json.py").write_text("def step(item): ...")
    with pytest.raises(ConfigError, match="A module 'json' is already loaded"):
        load(f"{tmp_path / 'json.py'}:step")
