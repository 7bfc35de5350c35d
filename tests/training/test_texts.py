from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import data as data

ROWS = [{"text": "one, two", "label": "b"}, {"text": "three", "label": "a"}]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "txt":
        path.write_text("one, two\n\nthree\n", encoding="utf-8")
    elif kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    elif kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["text", "label"])
            writer.writeheader()
            writer.writerows(ROWS)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "parquet"])
def test_every_kind_of_file_holds_the_same_texts(tmp_path: Path, kind: str) -> None:
    assert data.texts(Recipe(corpus=str(written(tmp_path, kind)))) == ("one, two", "three")


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    written(tmp_path, "txt")
    written(tmp_path, "jsonl")
    (tmp_path / "notes.md").write_text("not read", encoding="utf-8")
    assert data.texts(Recipe(corpus=str(tmp_path))) == ("one, two", "three") * 2


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("", "empty.txt", "is empty"),
        ("no json", "rows.jsonl", "line 1 is not JSON"),
        ('{"words": "a"}', "rows.jsonl", "has no 'text'. Its columns: words"),
        ("PAR1", "rows.parquet", "cannot be read as Parquet"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, content: str, name: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        data.texts(Recipe(corpus=str(tmp_path / name)))


def test_a_missing_corpus_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No corpus file"):
        data.key(Recipe(corpus=str(tmp_path / "gone.txt")))
    with pytest.raises(ConfigError, match="no folder with files of"):
        data.key(Recipe(corpus=str(tmp_path)))
