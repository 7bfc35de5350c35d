"""What is written to a table is what is read from it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskmetrics.core.rows import read_rows

# everything that UTF-8 can hold, except NUL; line ends of all kinds, separators and quotes more
# often than chance
NASTY = st.text(
    st.sampled_from("a,;\t\"'\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\ufeff \\|"), max_size=12
)
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
TEXTS = st.lists(st.tuples(NASTY | ANY, NASTY | ANY), min_size=1, max_size=6)


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize(
    "quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC], ids=str
)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=repr)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@settings(max_examples=25)
@given(rows=TEXTS)
@example(rows=[("a\rb", "x"), ("a\r\nb", "\ufeff"), ("", '"'), ("\u2028", ",")])
def test_a_csv_file_gives_the_texts_that_were_written(
    suffix: str, quoting: int, end: str, mark: str, rows: list[tuple[str, str]]
) -> None:
    if end == "\n":  # Python 3.11 leaves a final \r unquoted, where it is part of the line's end
        rows = [(text, label.rstrip("\r")) for text, label in rows]
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"own.{suffix}"
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(mark)
            delimiter = "\t" if suffix == "tsv" else ","
            writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end)  # type: ignore[arg-type]
            writer.writerows([("text", "label"), *rows])
        assert [tuple(row.values()) for _, row in read_rows(path)] == rows


@pytest.mark.parametrize("ascii_only", [True, False])
@settings(max_examples=25)
@given(rows=TEXTS)
def test_json_lines_give_the_texts_that_were_written(
    ascii_only: bool, rows: list[tuple[str, str]]
) -> None:
    lines = [
        json.dumps({"text": text, "label": label}, ensure_ascii=ascii_only) for text, label in rows
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.jsonl"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
        assert [tuple(row.values()) for _, row in read_rows(path)] == rows
