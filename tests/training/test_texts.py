from __future__ import annotations

import json
from pathlib import Path

import pytest

from daskmetrics.config import Recipe
from daskmetrics.core.errors import ConfigError
from daskmetrics.training import data as data

FILES = {
    "txt": "one, two\n\nthree\n",
    "jsonl": "\n".join(json.dumps({"text": text}) for text in ("one, two", "three")),
    "csv": 'text,label\n"one, two",b\nthree,a\n',
}


@pytest.mark.parametrize("kind", [*FILES, "parquet"])
def test_every_kind_of_file_holds_the_same_texts(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"text": ["one, two", "three"]}), path)
    else:
        path.write_text(FILES[kind], encoding="utf-8")
    assert data.texts(Recipe(corpus=str(path))) == ("one, two", "three")


def test_a_folder_is_read_file_by_file(tmp_path: Path) -> None:
    for kind in ("txt", "jsonl"):
        (tmp_path / f"rows.{kind}").write_text(FILES[kind], encoding="utf-8")
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


@pytest.mark.parametrize("missing", ["gone.txt", ""])
def test_a_missing_corpus_is_an_error(tmp_path: Path, missing: str) -> None:
    with pytest.raises(ConfigError, match="No corpus file"):
        data.key(Recipe(corpus=str(tmp_path / missing)))
