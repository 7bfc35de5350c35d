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
from pathlib import Path

from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.execution.map.result_table import write
from daskmetrics.execution.map.source import ItemResult
from daskmetrics.tasks.file import file_task
from tests.fuzz.readers import as_csv, as_json, as_json_lines, as_parquet, model_files, read_model

Row = dict[str, object]
Rows = list[Row]
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
    return [
        {"text": text, "label": label}
        for text, label in zip(texts(draw, len(pool)), pool, strict=True)
    ]


def graded(draw: random.Random) -> Rows:
    return [{"text": text, "score": draw.random()} for text in texts(draw, 30)]


def judged(draw: random.Random) -> Rows:
    """Two relevant documents, and one that is not, for each query."""
    return [
        {"query": query, "document": f"{document} {i}", "relevance": int(i < 2)}
        for query, document in zip(texts(draw, 6), texts(draw, 6), strict=True)
        for i in range(3)
    ]


def with_value(rows: Rows, draw: random.Random, role: str, value: object) -> Rows:
    """The rows with another value in one of them."""
    draw.choice(rows)[role] = value
    return rows


def missing_label(draw: random.Random) -> Rows:
    return with_value(labelled(draw), draw, "label", draw.choice(MISSING))


def missing_grade(draw: random.Random) -> Rows:
    return with_value(graded(draw), draw, "score", draw.choice(MISSING))


def missing_text(draw: random.Random) -> Rows:
    return with_value(labelled(draw), draw, "text", draw.choice(("", " ", None)))


def alike_labels(draw: random.Random) -> Rows:
    return labelled(draw, (*draw.choice(ALIKE), "other"))


def columns_of_two_cases(draw: random.Random) -> Rows:
    name = draw.choice(("Text", "LABEL", "Label ", " text"))
    return [{**row, name: "x y"} for row in labelled(draw)]


def not_a_number(draw: random.Random) -> Rows:
    number = draw.choice(("1_0", "10" * 200, "1e400", "inf", "-Infinity", "1,5", "ten", "0x10"))
    return with_value(graded(draw), draw, "score", number)


def negative_relevance(draw: random.Random) -> Rows:
    value = draw.choice((-1, -0.5, "-1e-9"))
    return with_value(judged(draw), draw, "relevance", value)


def one_query(draw: random.Random) -> Rows:
    return judged(draw)[:3]


def equal_grades(draw: random.Random) -> Rows:
    rows = [{"text": text, "score": 3} for text in texts(draw, draw.randrange(40, 60))]
    return with_value(rows, draw, "score", 4)  # type: ignore[arg-type]


def equal_texts(draw: random.Random) -> Rows:
    rows = labelled(draw)
    return with_value(rows, draw, "text", rows[0]["text"]) + rows[:1]


def a_label_per_text(draw: random.Random) -> Rows:
    return labelled(draw, texts(draw, 8))[:8]


def rare_label(draw: random.Random) -> Rows:
    return [*labelled(draw), {"text": "a rare text", "label": "rare"}]


def grades_as_labels(draw: random.Random) -> Rows:
    return [{"text": row["text"], "label": row["score"]} for row in graded(draw)]


def several_labels(draw: random.Random) -> Rows:
    return labelled(draw, ("a;b", "b;c", "a", draw.choice(("c; a", "c;a", "b;a"))))


def labels_that_are_objects(draw: random.Random) -> Rows:
    return labelled(draw, ({"name": "a"}, {"name": "b"}))


SEVERAL = {"kind": "multilabel_classification"}


def one_label_each(draw: random.Random) -> Rows:
    return labelled(draw, "abc")


def a_label_everywhere(draw: random.Random) -> Rows:
    return labelled(draw, ("a;b", "a;c", "a"))


def rare_among_several(draw: random.Random) -> Rows:
    return [*labelled(draw, ("a;b", "b;c", "c")), {"text": "a rare text", "label": "a;rare"}]


def missing_among_several(draw: random.Random) -> Rows:
    value = draw.choice(("a;NA", ";", " ; ", "null;b"))
    return with_value(labelled(draw, ("a;b", "b;c", "c")), draw, "label", value)


def alike_among_several(draw: random.Random) -> Rows:
    one, other = draw.choice(ALIKE)
    return labelled(draw, (f"{one};b", f"{other};c", "b;c"))


TABLES: Mapping[str, tuple[Callable[[random.Random], Rows], dict[str, str]]] = {
    "a missing label": (missing_label, {}),
    "a missing grade": (missing_grade, {}),
    "a missing text": (missing_text, {}),
    "labels that differ in their writing": (alike_labels, {}),
    "columns that differ in case": (columns_of_two_cases, {}),
    "a grade that is not a number": (not_a_number, {}),
    "a negative relevance": (negative_relevance, {}),
    "a single query": (one_query, {}),
    "almost equal grades": (equal_grades, {}),
    "equal texts": (equal_texts, {}),
    "a label per text": (a_label_per_text, {}),
    "a rare label": (rare_label, {}),
    "grades as labels": (grades_as_labels, {}),
    "several labels, unasked": (several_labels, {}),
    "labels that are objects": (labels_that_are_objects, {}),
    "several labels: one each": (one_label_each, SEVERAL),
    "several labels: one on all texts": (a_label_everywhere, SEVERAL),
    "several labels: a rare one": (rare_among_several, SEVERAL),
    "several labels: a missing one": (missing_among_several, SEVERAL),
    "several labels: alike": (alike_among_several, SEVERAL),
}
"""Rows of a table, and the options of the task on it."""


def as_tsv(rows: Rows) -> bytes:
    return as_csv(rows, "\t")


def as_semicolons(rows: Rows) -> bytes:
    return as_csv(rows, ";")


FORMATS: tuple[tuple[str, Callable[[Rows], bytes]], ...] = (
    *(("x.csv", as_csv), ("x.csv", as_semicolons), ("x.tsv", as_tsv)),
    *(("x.jsonl", as_json_lines), ("x.parquet", as_parquet)),
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


def unknown_columns(folder: Path, draw: random.Random) -> object:
    rows = [{"a": row["text"], "b": row["label"]} for row in labelled(draw)]
    return warnings_of_table(rows, {}, folder, draw)


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
    files["config.json"] = as_json(config)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    found, _ = read_model(folder)  # type: ignore[misc]
    return [place.problem for place in found.locations if place.problem]


def of_table(name: str) -> Callable[[Path, random.Random], object]:
    make, options = TABLES[name]
    return lambda folder, draw: warnings_of_table(make(draw), options, folder, draw)


LISTED: Mapping[str, Callable[[Path, random.Random], object]] = {
    **{name: of_table(name) for name in TABLES},
    "text in UTF-16 or UTF-32": utf_16,
    "columns of other names": unknown_columns,
    "results of more than 64 bits": large_results,
    "a model that is another than it says": changed_model,
}
"""Readers of an input of each class, which is drawn at random: they return the warnings."""


def outcome(name: str, folder: Path, draw: random.Random) -> str:
    """``refused``, ``warned`` or ``silent``."""
    try:
        return "warned" if LISTED[name](folder, draw) else "silent"
    except DaskmetricsError as error:
        assert 0 < len(str(error)) < 20_000
        return "refused"
