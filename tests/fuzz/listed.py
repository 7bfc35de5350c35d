"""Inputs that mean something else than they say, one class each, drawn at random: none is accepted
in silence.

A class makes the files of an input in an empty folder and reads it. It is refused by one of our
errors, or the task that it gives has a warning.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from daskmetrics.execution.map.result_table import write
from daskmetrics.execution.map.source import ItemResult
from daskmetrics.tasks.file import file_task
from tests.fuzz.readers import (
    as_csv,
    as_json,
    as_json_lines,
    as_parquet,
    model_files,
    read_model,
    write_files,
)

Rows = list[dict[str, object]]
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", None)
ALIKE = (
    *(("1", "1.0"), ("1", "true"), ("0", "false"), ("pos", "Pos"), ("pos", " POS"), ("2", "2.0")),
    *(("\u00e9", "e\u0301"), ("yes", "yes\u200b"), ("\ufeffno", "no"), ("a b", "a  b")),
)
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def texts(draw: random.Random, count: int) -> list[str]:
    """Different texts."""
    return [f"{draw.choice(WORDS)} {draw.choice(WORDS)} {i}" for i in range(count)]


def labelled(draw: random.Random, labels: Iterable[object] = "ab") -> Rows:
    """Texts of these labels, as many of each."""
    pool = [*labels] * draw.randrange(4, 9)
    pairs = zip(texts(draw, len(pool)), pool, strict=True)
    return [{"text": text, "label": label} for text, label in pairs]


def graded(draw: random.Random) -> Rows:
    return [{"text": text, "score": draw.random()} for text in texts(draw, 30)]


def judged(draw: random.Random) -> Rows:
    """Two relevant documents, and one that is not, for each query."""
    return [
        {"query": query, "document": f"{document} {i}", "relevance": int(i < 2)}
        for query, document in zip(texts(draw, 6), texts(draw, 6), strict=True)
        for i in range(3)
    ]


def one_of(rows: Rows, draw: random.Random, role: str, *values: object) -> Rows:
    """The rows with one of these values in one of them."""
    draw.choice(rows)[role] = draw.choice(values)
    return rows


def equal_texts(draw: random.Random) -> Rows:
    rows = labelled(draw)
    return one_of(rows, draw, "text", rows[0]["text"]) + rows[:1]


def columns_of_two_cases(draw: random.Random) -> Rows:
    name = draw.choice(("Text", "LABEL", "Label ", " text"))
    return [{**row, name: "x y"} for row in labelled(draw)]


def columns_of_other_names(draw: random.Random) -> Rows:
    return [{"a": row["text"], "b": row["label"]} for row in labelled(draw)]


def equal_grades(draw: random.Random) -> Rows:
    rows: Rows = [{"text": text, "score": 3} for text in texts(draw, draw.randrange(40, 60))]
    return one_of(rows, draw, "score", 4)


def grades_as_labels(draw: random.Random) -> Rows:
    return [{"text": row["text"], "label": row["score"]} for row in graded(draw)]


def alike(draw: random.Random, first: str = "{}", second: str = "{}", *others: str) -> Rows:
    one, other = draw.choice(ALIKE)
    return labelled(draw, (first.format(one), second.format(other), *others))


NO_NUMBERS = ("1_0", "10" * 200, "1e400", "inf", "-Infinity", "1,5", "ten", "0x10")
RARE = {"text": "a rare text", "label": "rare"}
TABLES: Mapping[str, Callable[[random.Random], Rows]] = {
    "a missing label": lambda draw: one_of(labelled(draw), draw, "label", *MISSING),
    "a missing grade": lambda draw: one_of(graded(draw), draw, "score", *MISSING),
    "a missing text": lambda draw: one_of(labelled(draw), draw, "text", "", " ", None),
    "labels that differ in their writing": lambda draw: alike(draw, "{}", "{}", "other"),
    "columns that differ in case": columns_of_two_cases,
    "columns of other names": columns_of_other_names,
    "a grade that is not a number": lambda draw: one_of(graded(draw), draw, "score", *NO_NUMBERS),
    "a negative relevance": lambda draw: one_of(judged(draw), draw, "relevance", -1, -0.5, "-1e-9"),
    "a single query": lambda draw: judged(draw)[:3],
    "almost equal grades": equal_grades,
    "equal texts": equal_texts,
    "a label per text": lambda draw: labelled(draw, texts(draw, 8))[:8],
    "a rare label": lambda draw: [*labelled(draw), RARE],
    "grades as labels": grades_as_labels,
    "several labels, unasked": lambda draw: labelled(
        draw, ("a;b", "b;c", "a", draw.choice(("c; a", "c;a", "b;a")))
    ),
    "labels that are objects": lambda draw: labelled(draw, ({"name": "a"}, {"name": "b"})),
}
"""Rows of a table of each class."""

TABLES_OF_SEVERAL: Mapping[str, Callable[[random.Random], Rows]] = {
    "several labels: one each": lambda draw: labelled(draw, "abc"),
    "several labels: one on all texts": lambda draw: labelled(draw, ("a;b", "a;c", "a")),
    "several labels: a rare one": lambda draw: [
        *labelled(draw, ("a;b", "b;c", "c")),
        {**RARE, "label": "a;rare"},
    ],
    "several labels: a missing one": lambda draw: one_of(
        labelled(draw, ("a;b", "b;c", "c")), draw, "label", "a;NA", ";", " ; ", "null;b"
    ),
    "several labels: alike": lambda draw: alike(draw, "{};b", "{};c", "b;c"),
}
"""Those of tasks with several labels per text."""


FORMATS: tuple[tuple[str, Callable[[Rows], bytes]], ...] = (
    ("x.csv", as_csv),
    ("x.csv", partial(as_csv, separator=";")),
    ("x.tsv", partial(as_csv, separator="\t")),
    ("x.jsonl", as_json_lines),
    ("x.parquet", as_parquet),
)


def warnings_of_table(
    rows: Rows, options: dict[str, str], folder: Path, draw: random.Random
) -> object:
    """The warnings of a table in one of the formats that can hold its values."""
    mixed = any(len({type(row[name]) for row in rows} - {type(None)}) > 1 for name in rows[0])
    name, pack = draw.choice([form for form in FORMATS if not (mixed and form[1] is as_parquet)])
    if any(isinstance(value, dict) for row in rows for value in row.values()):
        name, pack = draw.choice(FORMATS[3:])
    (folder / name).write_bytes(pack(rows))
    return file_task(str(folder / name), options).warnings


def utf_16(folder: Path, draw: random.Random) -> object:
    encoding = draw.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-32"))
    content = as_csv(labelled(draw)).decode().encode(encoding)
    (folder / "x.csv").write_bytes(content)
    return file_task(str(folder / "x.csv"), {}).warnings


def large_results(folder: Path, draw: random.Random) -> object:
    """Integers of more than 64 bits in the results of a map."""
    value = draw.choice((-1, 1)) * draw.choice((10**400, 2**64, 10**30))
    result = ItemResult("k", 0, "x", "x", "ok", value={"a": value})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = write([result], folder / f"x.{draw.choice(('csv', 'parquet'))}")
    assert json.loads(path.read_text())["value"]["a"] == value
    return caught


def changed_model(folder: Path, draw: random.Random) -> object:
    """Code of its own, tokens beyond the embedding, and weights of another shape or type."""
    files = model_files()
    config = json.loads(files["config.json"])
    change = draw.choice(("code", "code of a tokenizer", "tokens", "width", "depth", "vocabulary"))
    match change:
        case "code":
            config["auto_map"] = {"AutoModel": "own.Model"}
        case "code of a tokenizer":
            own = {"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}
            files["tokenizer_config.json"] = as_json(own)
        case "tokens":
            vocabulary = {"a": 0, "b": draw.randrange(100, 10**6)}
            files["tokenizer.json"] = as_json({"model": {"vocab": vocabulary}})
        case "width":
            config["hidden_size"] = draw.choice((4, 16, 768))
        case "depth":
            config["num_hidden_layers"] = draw.choice((3, 12))
        case "vocabulary":
            config["vocab_size"] = draw.choice((10, 50_000))
    write_files(folder, {**files, "config.json": as_json(config)})
    found, _ = read_model(folder)  # type: ignore[misc]
    return [location.problem for location in found.locations if location.problem]


def of_table(name: str, folder: Path, draw: random.Random) -> object:
    if name in TABLES:
        return warnings_of_table(TABLES[name](draw), {}, folder, draw)
    options = {"kind": "multilabel_classification"}
    return warnings_of_table(TABLES_OF_SEVERAL[name](draw), options, folder, draw)


LISTED: Mapping[str, Callable[[Path, random.Random], object]] = {
    **{name: partial(of_table, name) for name in (*TABLES, *TABLES_OF_SEVERAL)},
    "text in UTF-16 or UTF-32": utf_16,
    "results of more than 64 bits": large_results,
    "a model that is another than it says": changed_model,
}
"""Readers of an input of each class, which is drawn at random: they return the warnings."""
