"""What is mapped: the keys of items, the files they come from, and the function that is sent."""

from __future__ import annotations

import csv
import functools
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import cloudpickle
import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError, DataError, UndefinedError
from daskmetrics.domain.results import result_as_json
from daskmetrics.execution.map.function import (
    load,
    load_function,
    make_items,
    prepare,
    read_items,
    run_batch,
    run_call,
)

VALUES = [0, 0.0, False, None, "0", [0], {"a": 0}, {"a": 0.0}, float("nan"), (0,), {1: 2}, {"1": 2}]


@dataclass(frozen=True)
class Setting:
    rate: float


def keys(values, function="m:f", version="v", seed=0) -> list[str]:
    return [item.key for item in make_items(values, function, version, seed)]


def test_a_key_depends_on_everything_that_a_result_depends_on():
    others = [{"function": "m:g"}, {"version": "w"}, {"seed": 1}]
    different = keys(VALUES) + [key for other in others for key in keys([0], **other)]
    assert len(set(different)) == len(VALUES) + 3


def test_equal_items_are_numbered_and_order_changes_no_key():
    first = make_items([5, 7, 5], "m:f", "v")
    assert {item.key for item in first} == set(keys([5, 5, 7]))
    assert all(0 <= item.seed < 2**32 for item in first)
    assert len({item.key for item in first}) == len({item.seed for item in first}) == 3


def test_objects_have_keys_if_their_content_is_reproducible():
    one, same, other = keys([Setting(0.1)]), keys([Setting(0.1)]), keys([Setting(0.2)])
    assert one == same != other
    for value in (object(), iter("ab")):
        with pytest.raises(ConfigError, match="no reproducible content"):
            make_items([value], "m:f", "v")


@pytest.mark.parametrize(
    ("name", "text", "items"),
    [
        ("a.txt", "one\r\n\n two \n", ["one", " two "]),
        ("a.txt", "a\u2028b\x0b\x85c\n", ["a\u2028b\x0b\x85c"]),
        ("a.jsonl", '{"rate": 0.1}\n\n[1, "\u2028"]\n', [{"rate": 0.1}, [1, "\u2028"]]),
        (
            "a.csv",
            '\ufeffrate,name\r\n1e400,"a\u2028\nb"\r\n007,\r\n',
            [{"rate": "1e400", "name": "a\u2028\nb"}, {"rate": "007", "name": ""}],
        ),
    ],
)
def test_items_are_read_from_a_file(tmp_path, name, text, items):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    assert read_items(path) == items


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", None, "does not exist"),
        ("a.xlsx", b"", "has an unknown format"),
        ("a.txt", b" \n", "contains no items"),
        ("a.jsonl", b'{"a": 1}\n{"a": ', "line 2 is not JSON"),
        ("a.jsonl", b'{"a": 1, "a": 2}', "a name stands twice"),
        ("a.jsonl", b"[" * 100_000, "line 1 is not JSON"),
        ("a.csv", b"a,b\n1,2\n1\n", "line 3 has 1 fields, but the header has 2"),
        ("a.csv", b"a,b\n1,2,3\n", "line 2 has 3 fields"),
        ("a.csv", b"a,a\n1,2\n", "a column twice"),
        ("a.csv", b'a,b\n1,"2\n', "Is a closing double quote missing"),
    ],
)
def test_the_message_names_what_cannot_be_read(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_items(path)


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@settings(max_examples=10)
@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=4))
def test_the_same_table_gives_the_same_items_in_every_format(texts):
    rows = [{"text": text, "zip": number} for text, number in texts]
    frame = pandas.DataFrame(rows)
    with TemporaryDirectory() as place:
        folder = Path(place)
        for name, separator in (("a.csv", ","), ("a.csv.gz", ","), ("a.tsv", "\t")):
            frame.to_csv(folder / name, sep=separator, index=False, quoting=csv.QUOTE_ALL)
        (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        frame.to_parquet(folder / "a.parquet")
        expected = make_items(rows, "f", "v")
        for path in folder.iterdir():
            assert make_items(read_items(path), "f", "v") == expected, path


def power(item, exponent=2):
    return item**exponent


class Model:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, item):
        return self.weight * item

    def method(self, item, seed=0):
        return self.weight * item + seed


def test_name_and_keywords_are_detected():
    def step(item, batch_size, *, seed): ...

    def whole(seed): ...

    assert prepare(step).accepted == {"batch_size", "seed"}
    assert not prepare(whole).accepted  # its only argument is the item
    assert "seed" in prepare(Model(1).method).accepted
    assert not prepare(len).accepted
    assert prepare(functools.partial(power)).name.endswith(":power")
    assert prepare(Model(1)).name.endswith(":Model")
    assert prepare(str.upper).name == "builtins:str.upper"


def test_a_function_that_cannot_be_sent_is_refused(tmp_path):
    file = (tmp_path / "open.txt").open("w+")
    lock, big = threading.Lock(), bytes(33 * 2**20)
    for function, message in (
        (lambda item: lock, "cannot be sent to workers"),
        (lambda item: file.read(), "the file '.*open.txt' is open"),
        (lambda: 1, r"too many positional arguments"),
        (lambda item, rate: 1, r"missing a required argument: .rate"),
        (lambda *, seed: 1, r"too many positional arguments"),
        (lambda item: big, "carries 33 MiB"),
        (3, "needs a function"),
    ):
        with pytest.raises(ConfigError, match=message):
            prepare(function)
    file.close()


@pytest.fixture
def restored_path(monkeypatch):
    """Loading a file adds its folder to the path; other tests must not import from it."""
    monkeypatch.setattr(sys, "path", sys.path[:])


@pytest.mark.usefixtures("restored_path")
def test_a_module_given_as_a_file_is_sent_with_those_beside_it(tmp_path):
    name = f"user_{abs(hash(tmp_path)) % 10**9}"  # no other test's
    (tmp_path / f"{name}_near.py").write_text("OFFSET = 40\ndef shift(x): return x + OFFSET\n")
    path = tmp_path / f"{name}.py"
    path.write_text(f"from {name}_near import shift\ndef step(item): return shift(item)\n")
    ready = prepare(load(f"{path}:step"))
    assert load(f"{path}:step") is load(f"{path}:step")
    packed = tmp_path / "packed"
    packed.write_bytes(ready.payload)
    code = f"import pickle; print(pickle.load(open({str(packed)!r}, 'rb'))[0](2))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
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
        ("broken_here.py:step", "ZeroDivisionError"),
        ("json.py:step", "A module 'json' is already loaded"),
        ("ends_here.py:step", "SystemExit: 0"),
        ("pipe.py:step", "is a pipe"),
    ],
)
@pytest.mark.usefixtures("restored_path")
def test_the_message_names_what_cannot_be_loaded(tmp_path, monkeypatch, reference, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_here.py").write_text("1 / 0")
    (tmp_path / "ends_here.py").write_text("raise SystemExit(0)")
    (tmp_path / "json.py").write_text("def step(item): ...")
    os.mkfifo(tmp_path / "pipe.py")
    assert load("json:dumps")(1) == "1"
    with pytest.raises((ConfigError, DataError), match=message):
        load(reference)


# what a call gives


class OutOfMemoryError(RuntimeError):
    """Named as that of torch."""


def raising(error):
    def step(item):
        raise error

    return step


def outcome_of(function):
    outcome = run_call(function, "k", 0, {})
    json.dumps(result_as_json(outcome), allow_nan=False)  # the journal can store it
    return outcome


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (np.float64(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        ({"a": (1, np.int64(2))}, {"a": [1, 2]}),
        (None, None),
        (True, True),
    ],
)
def test_values_are_converted_to_json(value, stored):
    outcome = outcome_of(lambda item: value)
    assert (outcome.status, outcome.value) == ("ok", stored)
    assert type(outcome.value) is type(stored) and outcome.seconds >= 0


def test_numbers_that_are_not_finite_are_named_and_become_none():
    outcome = outcome_of(lambda item: {"loss": float("nan"), "steps": [1, float("inf")], "fine": 2})
    assert (outcome.status, outcome.reason) == ("nan", "not finite: loss, steps[1]")
    assert outcome.value == {"loss": None, "steps": [1, None], "fine": 2}


@pytest.mark.parametrize(
    ("error", "status", "permanent"),
    [
        (ValueError("no"), "error", False),
        (SystemExit(3), "error", False),
        (DataError("no"), "error", True),
        (UndefinedError("no"), "nan", False),
        (MemoryError(), "oom", False),
        (OutOfMemoryError("CUDA"), "oom", False),
    ],
)
def test_the_status_follows_from_the_kind_of_error(error, status, permanent):
    outcome = outcome_of(raising(error))
    assert (outcome.status, outcome.permanent) == (status, permanent)
    assert type(error).__name__ in outcome.reason and "raise error" in outcome.traceback


@pytest.mark.parametrize("value", [object(), {1: 2}, {"a": {2}}, "x" * 2**21])
def test_a_value_the_journal_cannot_store_is_a_permanent_error(value):
    outcome = outcome_of(lambda item: value)
    assert outcome.status == "error" and outcome.permanent


def test_reason_and_traceback_are_bounded():
    outcome = outcome_of(raising(ValueError("x" * 100_000)))
    assert len(outcome.traceback) <= 8000
    assert outcome.reason == ("ValueError: " + "x" * 1000)[:500]

    def deep(item):
        return deep(item + 1)

    assert "RecursionError" in outcome_of(deep).reason


def test_keywords_are_passed_and_a_failing_item_fails_alone():
    payload = prepare(lambda item, seed, batch_size: seed + batch_size / item).payload
    keywords = {"seed": 10, "batch_size": 3}
    calls = [cloudpickle.dumps(("k", i, keywords)) for i in (1, 0, 2)]
    outcomes = [(outcome.status, outcome.value) for outcome in run_batch(payload, calls).items]
    assert outcomes == [("ok", 13.0), ("error", None), ("ok", 11.5)]
    assert load_function(payload) is load_function(bytes(payload))  # once per worker
