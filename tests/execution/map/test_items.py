from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.map.function import content_hash, make_items, read_items

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


def test_keys_are_the_same_in_another_process():
    code = f"""
import numpy as np
from daskmetrics.execution.map.function import content_hash, make_items
nan = float("nan")
print([item.key for item in make_items({VALUES}, "m:f", "v")])
print(content_hash(np.arange(5)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{keys(VALUES)}\n{content_hash(np.arange(5))}\n"


def test_equal_items_are_numbered_and_their_keys_do_not_depend_on_the_order():
    first = make_items([5, 7, 5], "m:f", "v")
    assert len({item.key for item in first}) == 3
    assert {item.key for item in first} == set(keys([5, 5, 7]))
    assert all(0 <= item.seed < 2**32 for item in first) and len({item.seed for item in first}) == 3


def test_objects_have_keys_if_their_content_is_reproducible():
    one, same, other = Setting(0.1), Setting(0.1), Setting(0.2)
    assert content_hash(one) == content_hash(same) != content_hash(other)
    assert content_hash(np.arange(3)) != content_hash(np.arange(4))
    with pytest.raises(ConfigError, match="no reproducible content"):
        make_items([object()], "m:f", "v")


@pytest.mark.parametrize(
    ("name", "text", "items"),
    [
        ("a.txt", "one\r\n\n two \n", ["one", " two "]),
        ("a.jsonl", '{"rate": 0.1}\n\n[1, "\u2028"]\n', [{"rate": 0.1}, [1, "\u2028"]]),
        ("a.txt", "a\u2028b\x0b\x85c\n", ["a\u2028b\x0b\x85c"]),
        ("a.tsv", "rate\tname\n1e-3\t+49\n", [{"rate": "1e-3", "name": "+49"}]),
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
        ("a.txt", b"\xff\xfe", "is UTF-16 text"),
        ("a.txt", b"\xe9", "not UTF-8"),
        ("a.jsonl", b'{"a": 1}\n{"a": ', "line 2 is not JSON"),
        ("a.jsonl", b'{"a": 1, "a": 2}', "a name stands twice"),
        ("a.jsonl", b"[" * 100_000, "line 1 is not JSON"),
        ("a.jsonl", b"9" * 5000, "line 1 is not JSON"),
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


@settings(max_examples=20)
@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=4))
def test_the_same_table_gives_the_same_items_in_every_format(texts):
    rows = [{"text": text, "zip": number} for text, number in texts]
    frame = pandas.DataFrame(rows)
    with TemporaryDirectory() as place:
        folder = Path(place)
        for path, separator in (
            (folder / "a.csv", ","),
            (folder / "a.csv.gz", ","),
            (folder / "a.tsv", "\t"),
        ):
            frame.to_csv(path, sep=separator, index=False, quoting=csv.QUOTE_ALL)
        (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        frame.to_parquet(folder / "a.parquet")
        expected = make_items(rows, "f", "v")
        for path in folder.iterdir():
            assert make_items(read_items(path), "f", "v") == expected, path
