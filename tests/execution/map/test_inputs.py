from __future__ import annotations

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.map._items import from_file


@pytest.mark.parametrize(
    ("name", "text", "items"),
    [
        ("a.txt", "one\n\n two \n", ["one", "two"]),
        ("a.jsonl", '{"rate": 0.1}\n\n[1, "\u2028"]\n', [{"rate": 0.1}, [1, "\u2028"]]),
        (
            "a.csv",
            "rate,name,zip\n1e-3,fast,007\n-2,,3\n",
            [
                {"rate": 0.001, "name": "fast", "zip": "007"},
                {"rate": -2, "name": "", "zip": 3},
            ],
        ),
        (
            "a.csv",
            "\ufeffrate\r\n.5\r\n5.\r\n1_0\r\nnan\r\n+7\r\n",
            [
                {"rate": 0.5},
                {"rate": 5.0},
                {"rate": "1_0"},
                {"rate": "nan"},
                {"rate": 7},
            ],
        ),
    ],
)
def test_items_of_a_file(tmp_path, name, text, items):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8", newline="")
    assert from_file(path) == items


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xlsx", b"", "suffix must be one of"),
        ("a.txt", b" \n", "holds no items"),
        ("a.txt", b"\xff\xfe", "not UTF-8"),
        ("a.jsonl", b'{"a": 1}\n{"a": ', "Line 2 of"),
        ("a.csv", b"a,b\n1,2\n1\n", "Line 3 of"),
        ("a.csv", b"a,b\n1,2,3\n", "Line 2 of"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        from_file(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="There is no file"):
        from_file(tmp_path / "none.csv")
