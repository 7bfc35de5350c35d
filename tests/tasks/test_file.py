"""A user's own text: every kind and format, and a clear error for each way a file can be wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.tasks import Task, resolve
from daskmetrics.tasks import file as file_tasks
from daskmetrics.tasks.examples import divide

LABELLED = "text,label\n" + "".join(f"text number {i},{'abc'[i % 3]}\n" for i in range(30))
PAIRS = "sentence1,sentence2,label\n" + "".join(f"left {i},right {i},{i % 2}\n" for i in range(20))
GRADED = "first,second,score\n" + "".join(f"left {i},right {i},{i / 5}\n" for i in range(20))
FOUND = "query,document\n" + "".join(f"query {i},document {i}\n" for i in range(20))
RANKED = "query,document,relevance\n" + "".join(
    f"query {i},document {j},{int(i == j)}\n" for i in range(10) for j in range(i, i + 4)
)
KINDS = {
    "classification": (LABELLED, 30, "accuracy"),
    "pair_classification": (PAIRS, 40, "average_precision"),
    "sts": (GRADED, 40, "spearman"),
    "retrieval": (FOUND, 40, "ndcg_at_10"),
    "reranking": (RANKED, 23, "map"),
}

Write = Callable[[str, str | bytes], str]


def one(name: str) -> Task:
    (task,) = resolve([name])
    return task


def rows_of(content: str) -> list[dict[str, str]]:
    header, *lines = content.splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_decide_the_kind_of_task(written: Write, kind: str) -> None:
    content, texts, main = KINDS[kind]
    task = one(f"file:{written('own.csv', content)}")
    assert (task.kind, task.main_score, task.name) == (kind, main, "file:own.csv")
    assert len(task.texts()) == texts and task.is_local
    score = task.evaluate(np.random.default_rng(0).normal(size=(texts, 4)), seed=0)
    assert -1 <= score.value <= 1 and score.stderr > 0
    assert pickle.loads(pickle.dumps(task)).key == task.key


def test_a_classification_can_be_a_clustering(written: Write) -> None:
    task = one(f"file:{written('own.csv', LABELLED)}(kind=clustering)")
    assert (task.kind, task.name) == ("clustering", "file:own.csv(kind=clustering)")
    vectors = np.eye(3)[np.arange(30) % 3]
    assert task.evaluate(vectors, seed=0).value == pytest.approx(1)


def test_every_format_holds_the_same(written: Write, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    rows = rows_of(LABELLED)
    pandas.DataFrame(rows).to_parquet(tmp_path / "own.parquet")
    for i, row in enumerate(rows):
        written(f"own/{row['label']}/{i:02}.txt", row["text"])
    paths = [
        written("own.csv", LABELLED),
        written("own.tsv", LABELLED.replace(",", "\t")),
        written("own.jsonl", "".join(json.dumps(row) + "\n" for row in rows)),
        str(tmp_path / "own.parquet"),
    ]
    assert len({one(f"file:{path}").key for path in paths}) == 1
    assert sorted(one(f"file:{tmp_path / 'own'}").texts()) == sorted(row["text"] for row in rows)


def test_a_misspelt_relevance_is_an_error_and_no_other_kind_of_task(written: Write) -> None:
    path = written("judged.csv", "query,document,relevence\na b,c d,1\na b,e f,0\n")
    with pytest.raises(ConfigError, match="has a column 'relevence' and no 'relevance'"):
        one(f"file:{path}")


def test_other_column_names_are_given_as_options(written: Write) -> None:
    path = written("reviews.csv", LABELLED.replace("text,label", "body,stars"))
    task = one(f"file:{path}(text=body, label=stars)")
    assert task.key == one(f"file:{written('own.csv', LABELLED)}").key
    assert one(f"file:{path}(text=body, label=stars, probe=knn)").key != task.key


def test_a_document_without_a_query_is_a_candidate(written: Write) -> None:
    rows = "".join(f",document {i}\n" for i in range(5)) + "query 0,document 3\n"
    task = one(f"file:{written('own.csv', 'query,document' + chr(10) + rows)}")
    assert task.kind == "retrieval" and len(task.texts()) == 6
    places = [int(text.split()[-1]) if "document" in text else 3 for text in task.texts()]
    assert task.evaluate(np.eye(5)[places], seed=0).value == 1.0


def test_a_file_that_changes_after_resolving_is_an_error(written: Write) -> None:
    path = written("own.csv", LABELLED)
    task, again = one(f"file:{path}"), one(f"file:{path}")
    assert task == again and len(task.texts()) == 30
    written("own.csv", LABELLED.replace("number 3,", "number three,"))
    resolved_again = one(f"file:{path}")
    assert resolved_again.key != task.key and "text number three" in resolved_again.texts()
    file_tasks._read_examples.cache_clear()  # as on a worker, which reads it for the first time
    with pytest.raises(DataError, match="has changed since the run began"):
        task.texts()


MISSING = ["", "NA", "NaN", "null", None, float("nan")]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("missing", MISSING, ids=repr)
def test_a_missing_label_is_the_same_in_every_format(
    tmp_path: Path, suffix: str, missing: object
) -> None:
    pandas = pytest.importorskip("pandas")
    rows = [*rows_of(LABELLED), {"text": "more", "label": missing}]
    frame, path = pandas.DataFrame(rows, dtype=object), tmp_path / f"own.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    elif suffix == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    with pytest.raises(ConfigError, match=r"3[12], column 'label': got a missing value"):
        one(f"file:{path}")
    task = one(f"file:{path}(drop=missing)")
    assert len(task.texts()) == 30 and "1 of 31 rows without a value" in task.warnings[0]
    file_tasks._read_examples.cache_clear()
    assert pickle.loads(pickle.dumps(task)).texts() == task.texts()


def test_rare_labels_are_left_out_on_request_and_counted(written: Write) -> None:
    path = written("own.csv", LABELLED + "one,d\ntwo,e\nthree,e\n")
    task = one(f"file:{path}(drop=rare)")
    assert len(task.texts()) == 30
    assert "3 of 33 rows with 2 labels of fewer than 3 texts are left out" in task.warnings[0]


def test_grades_of_texts_are_a_regression(written: Write) -> None:
    rows = "".join(f"text number {i},{i / 7}\n" for i in range(40))
    task = one(f"file:{written('own.csv', 'text,score' + chr(10) + rows)}")
    assert (task.kind, task.main_score) == ("regression", "spearman")
    vectors = np.stack([np.arange(40.0), np.ones(40)], axis=1)
    assert task.evaluate(vectors, seed=0).value > 0.99
    path = written("named.csv", "text,label\n" + rows)
    with pytest.raises(ConfigError, match="For a regression, they are grades: grade=label"):
        one(f"file:{path}")
    assert one(f"file:{path}(grade=label)").key == task.key


TAGS = [("a", "b"), ("b", "c"), ("a",), ("c", "a")]
SEVERAL = "(kind=multilabel_classification)"


def tagged(tags: list[tuple[str, ...]] = TAGS, count: int = 40) -> str:
    cells = (f"text number {i},{'; '.join(tags[i % len(tags)])}\n" for i in range(count))
    return "text,label\n" + "".join(cells)


def test_texts_may_have_several_labels_if_the_kind_says_so(written: Write) -> None:
    path = written("own.csv", tagged())
    alone = one(f"file:{path}")
    assert alone.kind == "classification"
    assert "30 of 40 labels contain ';' and count as one label each" in alone.warnings[0]
    task = one(f"file:{path}{SEVERAL}")
    assert (task.kind, task.main_score, task.warnings) == ("multilabel_classification", "lrap", ())
    known = np.array([[label in TAGS[i % 4] for label in "abc"] for i in range(40)])
    score = task.evaluate(9.0 * known, seed=0)
    assert score.value > 0.9 and score.n == 40
    lists = [{"text": f"text number {i}", "label": TAGS[i % 4]} for i in range(40)]
    lines = written("own.jsonl", "".join(json.dumps(row) + "\n" for row in lists))
    assert one(f"file:{lines}{SEVERAL}").key == task.key
    (seen,), (fresh,) = divide([task], 0.3)
    assert len(seen.texts()) == 28 and fresh.evaluate(np.eye(40), seed=0).n == 12


def test_several_labels_are_proposed_where_one_label_each_is_an_error(written: Write) -> None:
    path = written("own.csv", tagged([*TAGS, ("a", "b", "c")], 9))
    with pytest.raises(ConfigError, match=r"For several labels per text, .*: kind=multilabel"):
        one(f"file:{path}")
    path = written("names.csv", tagged([("a", "b"), ("c",)]))  # a semicolon in a name
    assert one(f"file:{path}").warnings == ()


def test_rows_whose_labels_are_partly_missing_are_left_out_on_request(written: Write) -> None:
    partly = "more text,a;NA\n"
    path = written("own.csv", tagged() + partly + "other text,;\nlast text,\n")
    with pytest.raises(ConfigError, match=r"line 42, column 'label': got 'a;NA'.*drop=missing"):
        one(f"file:{written('one.csv', tagged() + partly)}{SEVERAL}")
    task = one(f"file:{path}{SEVERAL[:-1]}, drop=missing)")
    assert len(task.texts()) == 40 and len(task.warnings) == 2


@pytest.mark.parametrize(
    ("labels", "got"), [(["a", None], "'a;NA'"), ([{"name": "a"}, "b"], r"{'name': 'a'}")]
)
def test_a_missing_label_or_an_object_in_a_list_is_no_label(
    written: Write, labels: list[object], got: str
) -> None:
    rows = [{"text": f"text number {i}", "label": TAGS[i % 4]} for i in range(40)]
    others = [{"text": f"other text {i}", "label": labels} for i in range(4)]
    lines = "".join(json.dumps(row) + "\n" for row in [*rows, *others])
    with pytest.raises(ConfigError) as caught:
        one(f"file:{written('own.jsonl', lines)}{SEVERAL}")
    assert f"line 41, column 'label': got {got}, not a label" in str(caught.value)


def test_a_label_of_a_list_may_hold_the_separator(written: Write) -> None:
    tags = [["a;b", "c"], ["a;b"], ["c"], ["d"]]
    rows = [{"text": f"text number {i}", "label": tags[i % 4]} for i in range(40)]
    path = written("own.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    judgements = one(f"file:{path}{SEVERAL}").whole().judgements
    assert [sum(text == i for text, _, _ in judgements) for i in range(4)] == [2, 1, 1, 1]
    rows = [{"text": f"text number {i // 2}", "label": tags[1 + i % 2]} for i in range(40)]
    path = written("one.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    [warning] = one(f"file:{path}").warnings
    assert "(line 1 has a;b, line 2 has c: 'text number 0')" in warning


def test_rare_ones_of_several_labels_are_left_out_on_request(written: Write) -> None:
    path = written("own.csv", tagged() + "more text,a;d\nother text,d\n")
    assert one(f"file:{path}{SEVERAL[:-1]}, drop=rare)").warnings == (
        "Left out: 1 label of fewer than 3 texts.",
        "1 of 42 rows with 1 label of fewer than 3 texts are left out (the first: line 43).",
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("a", "b"), ("a", "c")], "has 0 texts without the label 'a'; each label needs at least"),
        ([("a",), ("b",)], "has 0 texts with several labels, separated by ';'. Leave out the kind"),
        ([("a", "b")] * 39 + [("d", "a")], "has 1 text with the label 'd', and 3 labels in all"),
        ([("a",), ("b",), ("",)], "line 4, column 'label': got a missing value, not a label"),
        ([("a", "NA"), ("b",)], "line 2, column 'label': got 'a; NA', not a label"),
        ([(";",), ("b",)], "line 2, column 'label': got ';', not a label"),
    ],
)
def test_several_labels_that_say_nothing_are_refused(
    written: Write, rows: list[tuple[str, ...]], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        one(f"file:{written('own.csv', tagged(rows))}{SEVERAL}")
    assert message in str(caught.value)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators_are_recognised(written: Write, separator: str) -> None:
    content = LABELLED.replace(",", separator)
    task = one(f"file:{written('own.csv', content)}")
    assert task.key == one(f"file:{written('usual.csv', LABELLED)}").key


def test_parquet_whose_texts_are_not_utf_8_is_an_error(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = pyarrow.array([b"caf\xe9", b"b"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": texts, "label": texts}), tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match="cannot be read as Parquet: 'utf-8' codec"):
        one(f"file:{tmp_path / 'x.parquet'}")


def test_a_data_set_of_hugging_face(written: Write) -> None:
    pytest.importorskip("datasets", reason="needs the extra 'mteb'")
    folder = Path(written("sets/train.csv", LABELLED)).parent
    written("sets/test.csv", LABELLED.replace("number", "numeral"))
    task = one(f"hf:{folder}:train")
    assert task.texts() == one(f"file:{folder / 'train.csv'}").texts()
    assert "text numeral 0" in one(f"hf:{folder}").texts()
    assert pickle.loads(pickle.dumps(task)).texts() == task.texts()
    with pytest.raises(ConfigError, match=r"Unknown split of .* 'dev'"):
        one(f"hf:{folder}:dev")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        one("hf:./no-such-set")


BROKEN: dict[str, tuple[str, Any, str, str]] = {
    "missing": ("own.csv", None, "", "does not exist"),
    "format": ("own.doc", "text", "", "has an unknown format ('.doc'). Use .csv,"),
    "empty": ("own.csv", "text,label\n", "", "has no rows"),
    "latin": ("own.csv", "text,label\ncaf\xe9,a\n".encode("latin1"), "", "is not UTF-8 text"),
    "UTF-16": ("own.csv", LABELLED.encode("utf-16"), "", "is UTF-16 text. Convert it first"),
    "UTF-16 without a mark": ("own.csv", LABELLED.encode("utf-16-le"), "", "is UTF-16 text"),
    "an object": (
        "own.jsonl",
        '{"text": "a b", "label": {"a": 1}}\n',
        "",
        "got {'a': 1}, not a label",
    ),
    "case": (
        "own.csv",
        "text,Text,label\na,b,c\n",
        "",
        "the columns 'text' and 'Text', which differ",
    ),
    "underscore": ("own.csv", GRADED + "a,b,1_0\n", "", "got '1_0', not a finite number"),
    "huge": (
        "own.jsonl",
        f'{{"first": "a", "second": "b", "score": {10**400}}}\n',
        "",
        "not a finite number",
    ),
    "negative": ("own.csv", RANKED + "query 1,document 9,-1\n", "", "a relevance below 0"),
    "rows to drop": ("own.csv", LABELLED, "(drop=rarest)", "Did you mean 'rare'?"),
    "json": ("own.jsonl", '{"text": "a", "label": 1}\n{"text": \n', "", "line 2 is not JSON"),
    "object": ("own.jsonl", '["a", 1]\n', "", "line 1 is a list, not an object"),
    "parquet": ("own.parquet", "text,label\n", "", "cannot be read as Parquet"),
    "fields": (
        "own.csv",
        LABELLED + "one, two,a\n",
        "",
        "line 32 has 3 fields, but the header has 2",
    ),
    "quote": ("own.csv", LABELLED + '"open,a\n', "", "Is a closing double quote missing?"),
    "twice": ("own.csv", "text,text,label\na,b,c\n", "", "has a column twice"),
    "columns": (
        "own.csv",
        "first_one,second_one\na,1\n",
        "",
        "has the columns first_one, second_one, which fit no kind of task",
    ),
    "holes": (
        "own.jsonl",
        '{"one": "a b", "two": null}\n{"two": 1}\n',
        "",
        "(text=one, label=COLUMN)",
    ),
    "named": ("own.csv", LABELLED, "(text=txt)", "Unknown column in '"),
    "option": (
        "own.csv",
        LABELLED,
        "(labels=label)",
        "Unknown option of a file task 'labels'. Did you mean 'label'?",
    ),
    "form": ("own.csv", LABELLED, "(label)", "'label' is not of the form name=value"),
    "kind": ("own.csv", LABELLED, "(kind=clasification)", "Did you mean 'classification'?"),
    "kind's columns": ("own.csv", LABELLED, "(kind=sts)", "sts: first, second, grade"),
    "probe": ("own.csv", LABELLED, "(probe=forest)", "Unknown probe 'forest'"),
    "no probe": ("own.csv", LABELLED, "(kind=clustering, probe=knn)", "which has no probe"),
    "text": ("own.csv", LABELLED + " ,a\n", "", "line 32, column 'text': got ' ', not a text"),
    "label": ("own.csv", LABELLED + "more,\n", "", "'label': got a missing value, not a label"),
    "rare": (
        "own.csv",
        LABELLED + "more,d\n",
        "",
        "has 1 text with the label 'd', and 4 labels in all; each label needs at least 3",
    ),
    "one class": ("own.csv", "text,label\na,x\nb,x\nc,x\n", "", "has only one label, 'x'"),
    "truth": (
        "own.csv",
        PAIRS + "a,b,maybe\n",
        "",
        "got 'maybe', not 1 or 0; write 1 if the texts belong together",
    ),
    "one truth": (
        "own.csv",
        "text1,text2,label\na,b,1\nc,d,1\n",
        "",
        "has only pairs with the label 1",
    ),
    "grade": (
        "own.csv",
        GRADED + "a,b,high\n",
        "",
        "column 'score': got 'high', not a finite number",
    ),
    "nan": ("own.csv", GRADED + "a,b,nan\n", "", "not a finite number"),
    "flat": ("own.csv", "first,second,score\na,b,1\nc,d,1\n", "", "2 pairs and 1 different grades"),
    "one document": ("own.csv", "query,document\na,b\nc,b\n", "", "has only one document"),
    "unanswered": (
        "own.csv",
        RANKED + "lost,document 1,0\n",
        "",
        "has no relevant document for the query 'lost'",
    ),
    "classes": ("own/a.txt", "text", "", "has no rows"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_each_broken_file_has_its_own_error(written: Write, tmp_path: Path, case: str) -> None:
    name, content, options, message = BROKEN[case]
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = str(tmp_path / name) if content is None else written(name, content)
    path = str(Path(path).parent) if name.endswith(".txt") else path
    with pytest.raises(ConfigError) as caught:
        resolve([f"file:{path}{options}"])
    assert message in str(caught.value)
    assert Path(path).name in str(caught.value) or options


def test_two_files_with_one_name_are_an_error(written: Write) -> None:
    with pytest.raises(ConfigError, match=r"Two tasks are named 'file:own.csv'"):
        resolve([f"file:{written('a/own.csv', LABELLED)}", f"file:{written('b/own.csv', PAIRS)}"])
