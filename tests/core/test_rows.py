"""What is written to a table is what is read from it."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from daskmetrics.core.rows import read_rows

# everything that UTF-8 can hold, except NUL; line ends of all kinds, separators and quotes more
# often than chance
NASTY = st.text(
    st.sampled_from("a,;\t\"'\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ufeff \\|"), max_size=12
)
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
TEXTS = st.lists(st.tuples(NASTY | ANY, NASTY | ANY), min_size=1, max_size=6)


def as_csv(path: Path, rows: list[tuple[str, str]], mark: str = "", **options: Any) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(mark)
        csv.writer(file, **options).writerows([("text", "label"), *rows])


def as_json(path: Path, rows: list[tuple[str, str]], **options: Any) -> None:
    lines = [json.dumps({"text": text, "label": label}, **options) for text, label in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")


UNIX = {"lineterminator": "\n"}
TABS = {"delimiter": "\t"}
WRITERS: dict[str, Callable[..., None]] = {
    "minimal.csv": as_csv,
    "all.csv": partial(as_csv, quoting=csv.QUOTE_ALL),
    "unix.csv": partial(as_csv, **UNIX),
    "mark.csv": partial(as_csv, mark="\ufeff", quoting=csv.QUOTE_NONNUMERIC),
    "unix and mark.csv": partial(as_csv, mark="\ufeff", **UNIX),
    "tabs.tsv": partial(as_csv, **TABS),
    "unix and tabs.tsv": partial(as_csv, quoting=csv.QUOTE_ALL, **TABS, **UNIX),
    "ascii.jsonl": as_json,
    "utf-8.jsonl": partial(as_json, ensure_ascii=False),
}


@pytest.mark.parametrize("name", WRITERS)
@given(rows=TEXTS)
@example(rows=[("a\rb", "x"), ("a\r\nb", "\ufeff"), ("", '"'), ("\u2028", ",")])
def test_a_table_gives_the_texts_that_were_written(name, rows):
    if "unix" in name:  # Python 3.11 leaves a final \r unquoted, where it is part of the line's end
        rows = [(text, label.rstrip("\r")) for text, label in rows]
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        WRITERS[name](path, rows)
        assert [tuple(row.values()) for _, row in read_rows(path)] == rows
