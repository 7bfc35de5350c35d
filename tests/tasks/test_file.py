"""A user's own text: every kind and format, a clear error for each way a file can be wrong, and a
warning with an example of what is doubtful.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.tasks import Task, resolve
from daskmetrics.tasks import file as file_tasks
from daskmetrics.tasks.examples import divide


def lines(header: str, rows: int, line: str) -> str:
    """A table; ``line`` is formatted with the number of the row and its remainders by 2, 3 and 4."""
    body = (line.format(i, two=i % 2, abc="abc"[i % 3], four=i % 4) for i in range(rows))
    return "\n".join([header, *body, ""])


def json_lines(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


LABELLED = lines("text,label", 30, "text number {0},{abc}")
PAIRS = lines("sentence1,sentence2,label", 20, "left {0},right {0},{two}")
GRADED = lines("first,second,score", 20, "left {0},right {0},{0}.5")
RANKED = "query,document,relevance\n" + "".join(
    f"query {i},document {j},{int(i == j)}\n" for i in range(10) for j in range(i, i + 4)
)
KINDS = {
    "classification": (LABELLED, "", 30, "accuracy"),
    "clustering": (LABELLED, "(kind=clustering)", 30, "v_measure"),
    "pair_classification": (PAIRS, "", 40, "average_precision"),
    "sts": (GRADED, "", 40, "spearman"),
    "retrieval": (lines("query,document", 20, "query {0},document {0}"), "", 40, "ndcg_at_10"),
    "reranking": (RANKED, "", 23, "map"),
}


def one(name: str) -> Task:
    (task,) = resolve([name])
    return task


@pytest.fixture
def own(written):
    """The task on a file with this content."""

    def own(content: str | bytes, options: str = "", name: str = "own.csv") -> Task:
        return one(f"file:{written(name, content)}{options}")

    return own


@pytest.mark.parametrize("kind", KINDS)
def test_the_columns_decide_the_kind_of_task(own, kind):
    content, options, texts, main = KINDS[kind]
    task = own(content, options)
    assert (task.kind, task.main_score, task.name) == (kind, main, "own")
    assert len(task.texts()) == texts and task.is_local
    score = task.evaluate(np.random.default_rng(0).normal(size=(texts, 4)), seed=0)
    assert -1 <= score.value <= 1 and score.stderr > 0
    assert pickle.loads(pickle.dumps(task)).key == task.key


def test_every_format_and_separator_holds_the_same(own, written, tmp_path):
    pytest.importorskip("pyarrow")
    rows = [{"text": f"text number {i}", "label": "abc"[i % 3]} for i in range(30)]
    pd.DataFrame(rows).to_parquet(tmp_path / "own.parquet")
    for i, row in enumerate(rows):
        written(f"own/{row['label']}/{i:02}.txt", row["text"])
    tasks = [
        own(LABELLED),
        own(LABELLED.replace(",", ";"), name="semicolons.csv"),
        own(LABELLED.replace(",", "\t"), name="tabs.csv"),
        own(LABELLED.replace(",", "\t"), name="own.tsv"),
        own(json_lines(rows), name="own.jsonl"),
        one(f"file:{tmp_path / 'own.parquet'}"),
        own(LABELLED.replace("text,label", "body,stars"), "(text=body, label=stars)", "named.csv"),
    ]
    assert len({task.key for task in tasks}) == 1
    assert own(LABELLED, "(repeats=1)").key == tasks[0].key
    assert len({own(LABELLED, f"({o})").key for o in ("probe=knn", "repeats=2", "repeats=3")}) == 3
    assert sorted(one(f"file:{tmp_path / 'own'}").texts()) == sorted(row["text"] for row in rows)


def test_a_document_without_a_query_is_a_candidate(own):
    task = own(lines("query,document", 5, ",document {0}") + "query 0,document 3\n")
    assert task.kind == "retrieval" and len(task.texts()) == 6
    answers = [int(text.split()[-1]) if "document" in text else 3 for text in task.texts()]
    assert task.evaluate(np.eye(5)[answers], seed=0).value == 1.0


@pytest.mark.parametrize("zero", ["0.00", " 0", "00", "0e0"])
def test_a_relevance_of_zero_makes_a_reranking(own, zero):
    assert own(RANKED.replace(",0\n", f",{zero}\n")).key == own(RANKED).key


def test_a_file_that_changes_after_resolving_is_an_error(own):
    task, again = own(LABELLED), own(LABELLED)
    assert task == again and len(task.texts()) == 30
    resolved_again = own(LABELLED.replace("number 3,", "number three,"))
    assert resolved_again.key != task.key and "text number three" in resolved_again.texts()
    file_tasks._read_examples.cache_clear()  # as on a worker, which reads it for the first time
    with pytest.raises(DataError, match="has changed since the run began"):
        task.texts()


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("missing", ["", "NA", "NaN", "null", None, float("nan")], ids=repr)
def test_a_missing_label_is_the_same_in_every_format(tmp_path, suffix, missing):
    rows = [{"text": f"text number {i}", "label": "abc"[i % 3]} for i in range(30)]
    rows.append({"text": "more", "label": missing})
    frame, path = pd.DataFrame(rows, dtype=object), tmp_path / f"own.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(path)
    elif suffix == "jsonl":
        path.write_text(json_lines(rows))
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
    with pytest.raises(ConfigError, match=r"3[12], column 'label': got a missing value"):
        one(f"file:{path}")
    task = one(f"file:{path}(drop=missing)")
    assert len(task.texts()) == 30 and "1 of 31 rows without a value" in task.warnings[0]
    file_tasks._read_examples.cache_clear()
    assert pickle.loads(pickle.dumps(task)).texts() == task.texts()


def test_grades_of_texts_are_a_regression(own):
    grades = lines("text,score", 40, "text number {0},{0}.5")
    task = own(grades)
    assert (task.kind, task.main_score) == ("regression", "spearman")
    vectors = np.stack([np.arange(40.0), np.ones(40)], axis=1)
    assert task.evaluate(vectors, seed=0).value > 0.99
    labels = grades.replace("score", "label")
    with pytest.raises(ConfigError, match="For a regression, they are grades: grade=label"):
        own(labels)
    assert own(labels, "(grade=label)").key == task.key


TAGS = [("a", "b"), ("b", "c"), ("a",), ("c", "a")]
SEVERAL = "(kind=multilabel_classification)"


def tagged(tags: list[tuple[str, ...]] = TAGS, count: int = 40) -> str:
    cells = (f"text number {i},{'; '.join(tags[i % len(tags)])}\n" for i in range(count))
    return "text,label\n" + "".join(cells)


def test_texts_may_have_several_labels_if_the_kind_says_so(own):
    alone = own(tagged())
    assert alone.kind == "classification"
    assert "30 of 40 labels contain ';' and count as one label each" in alone.warnings[0]
    task = own(tagged(), SEVERAL)
    assert (task.kind, task.main_score, task.warnings) == ("multilabel_classification", "lrap", ())
    known = np.array([[label in TAGS[i % 4] for label in "abc"] for i in range(40)])
    score = task.evaluate(9.0 * known, seed=0)
    assert score.value > 0.9 and score.n == 40
    lists = [{"text": f"text number {i}", "label": TAGS[i % 4]} for i in range(40)]
    assert own(json_lines(lists), SEVERAL, "own.jsonl").key == task.key
    (seen,), (fresh,) = divide([task], 0.3)
    assert len(seen.texts()) == 28 and fresh.evaluate(np.eye(40), seed=0).n == 12
    with pytest.raises(ConfigError, match=r"For several labels per text, .*: kind=multilabel"):
        own(tagged([*TAGS, ("a", "b", "c")], 9))
    assert own(tagged([("a", "b"), ("c",)])).warnings == ()  # a semicolon in a name


def test_a_label_of_a_list_may_hold_the_separator(own):
    tags = [["a;b", "c"], ["a;b"], ["c"], ["d"]]
    rows = [{"text": f"text number {i}", "label": tags[i % 4]} for i in range(40)]
    judgements = own(json_lines(rows), SEVERAL, "own.jsonl").whole().judgements
    assert [sum(text == i for text, _, _ in judgements) for i in range(4)] == [2, 1, 1, 1]
    rows = [{"text": f"text number {i // 2}", "label": tags[1 + i % 2]} for i in range(40)]
    [warning] = own(json_lines(rows), name="one.jsonl").warnings
    assert "(line 1 has a;b, line 2 has c: 'text number 0')" in warning


@pytest.mark.parametrize(
    ("content", "options", "texts", "warnings"),
    [
        (
            LABELLED + "one,d\ntwo,e\nthree,e\n",
            "(drop=rare)",
            30,
            ["3 of 33 rows with 2 labels of fewer than 3 texts are left out"],
        ),
        (
            tagged() + "more text,a;NA\nother text,;\nlast text,\n",
            f"{SEVERAL[:-1]}, drop=missing)",
            40,
            ["3 of 43 rows without a value"],
        ),
        (
            tagged() + "more text,a;d\nother text,d\n",
            f"{SEVERAL[:-1]}, drop=rare)",
            41,
            ["Left out: 1 label of fewer than 3 texts.", "1 of 42 rows with 1 label of fewer"],
        ),
    ],
)
def test_rows_are_left_out_on_request_and_counted(own, content, options, texts, warnings):
    task = own(content, options)
    assert len(task.texts()) == texts
    for warning, expected in zip(task.warnings, warnings, strict=True):
        assert expected in warning


def test_two_tasks_of_one_file_are_warned_of(written):
    first, other = written("a.csv", LABELLED), written("b.csv", LABELLED)
    names = [f"file:{first}", f"file:{other}", f"file:{first}(kind=clustering, name=topics)"]
    *alone, again = resolve(names)
    assert [task.warnings for task in alone] == [(), ()]
    assert "reads the file of a. The error of a mean" in again.warnings[-1]
    assert resolve(names[:1] * 2)[0].warnings == ()


def test_a_data_set_of_hugging_face(written):
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


def grouped(rows: int = 60, more: str = "", group: str = "p") -> str:
    """Five texts of each group, and groups of each of two labels in turn."""
    body = (f"text number {i},{'ab'[i // 5 % 2]},{group}{i // 5}\n" for i in range(rows))
    return "text,label,patient\n" + "".join(body) + more


GROUPED = "(group=patient)"


def test_a_group_counts_only_when_named_and_is_part_of_the_key(own):
    plain, task = own(grouped()), own(grouped(), GROUPED)
    assert (plain.groups, task.groups, task.warnings) == (0, 12, ())
    assert own(grouped().replace("patient", "group")).key == plain.key != task.key
    assert own(grouped(group="patient "), GROUPED).key == task.key  # renamed
    assert own(grouped().replace("p3\n", "p4\n"), GROUPED).key != task.key
    score = task.evaluate(np.random.default_rng(0).normal(size=(60, 4)), seed=0)
    assert (score.n, len(score.outcomes)) == (60, 12)
    assert own(grouped(more="!x,a,\n"), "(group=patient, drop=missing)").groups == 12
    rare = grouped(more="one,c,p1\ntwo,c,p1\nthree,c,p2\n")
    dropped = own(rare, "(group=patient, drop=rare)")
    assert dropped.key == task.key and "of fewer than 3 groups" in dropped.warnings[0]


@pytest.mark.parametrize("kind", ["pair_classification", "sts", "retrieval", "reranking"])
def test_every_kind_counts_groups(own, kind):
    content, _, texts, _ = KINDS[kind]
    head, *rows = content.splitlines()
    of_row = {row: row.split(",")[0].split()[-1] for row in rows}
    content = "\n".join([f"{head},who", *(f"{row},w{int(of_row[row]) // 2}" for row in rows), ""])
    task = own(content, "(group=who)")
    score = task.evaluate(np.random.default_rng(0).normal(size=(texts, 4)), seed=0)
    assert task.kind == kind and task.groups == len(score.outcomes) == score.n / 2


def test_copies_are_warned_of_where_they_are_in_several_groups(own):
    within = own(grouped(more="text number 0,a,p0\n"), GROUPED)
    assert not within.warnings
    across = own(grouped(more="text number 0,a,p2\n"), GROUPED).warnings[0]
    assert across.startswith(
        "1 text with different values of 'patient' in several rows (line 2 has"
    )
    assert "give them one group" in across


def test_a_classification_may_have_another_score(own):
    uneven = lines("text,label", 40, "text number {0},{abc}").replace(",b", ",a")
    task = own(uneven, "(score=macro_f1)")
    assert (task.main_score, task.warnings) == ("macro_f1", ())
    plain = own(uneven)
    assert "alone gives an accuracy of 0.68: score=balanced_accuracy or" in plain.warnings[0]
    assert plain.key == own(uneven, "(score=accuracy)").key != task.key
    assert task.evaluate(np.eye(40), seed=0).value != plain.evaluate(np.eye(40), seed=0).value


REFUSED = [
    ("text,label\n", "", "has no rows"),
    ("text,label\ncaf\xe9,a\n".encode("latin1"), "", "is not UTF-8 text"),
    (LABELLED.encode("utf-16"), "", "is UTF-16 text. Convert it first"),
    (LABELLED.encode("utf-16-be"), "", "is UTF-16 text"),
    (b"PK\x03\x04\0\0", "", "is no text, but an archive"),
    ("text,Text,label\na,b,c\n", "", "the columns 'text' and 'Text', which differ"),
    ("text,text,label\na,b,c\n", "", "has a column twice"),
    (
        lines("one,two", 9, "long text {0},{abc}"),
        "",
        "On the command line: --text one --label two; in a configuration: file:",
    ),
    (LABELLED + "one, two,a\n", "", "line 32 has 3 fields, but the header has 2"),
    (LABELLED + '"open,a\n', "", "Is a closing double quote missing?"),
    (LABELLED + " ,a\n", "", "line 32, column 'text': got ' ', not a text"),
    (LABELLED + "more,d\n", "", "has 1 text with the label 'd', and 4 labels in all"),
    ("text,label\na,x\nb,x\nc,x\n", "", "has only one label, 'x'"),
    (lines("text,label", 10, "word {two},WORD {two}"), "", "are equal in all 10 rows"),
    (lines("text,label", 10, "word {two},{two}"), "", "all rows of a label have the same text"),
    (lines("text,label", 12, "!?!,{two}"), "", "no text of the column 'text' has"),
    (PAIRS + "a,b,maybe\n", "", "got 'maybe', not 1 or 0; write 1 if the texts belong"),
    ("text1,text2,label\na,b,1\nc,d,1\n", "", "has only pairs with the label 1"),
    (GRADED + "a,b,1_0\n", "", "got '1_0', not a finite number"),
    ("first,second,score\na,b,1\nc,d,1\n", "", "2 rows and 1 different grade;"),
    ("query,document\na,b\nc,b\n", "", "has only one document"),
    (RANKED + "query 1,document 9,-1\n", "", "a relevance below 0"),
    (RANKED + "lost,document 1,0\n", "", "no relevant document for the query 'lost'"),
    (RANKED.replace("nce\n", "nse\n"), "", "a column 'relevanse' and no 'relevance'"),
    (LABELLED, "(drop=rarest)", "Did you mean 'rare'?"),
    (LABELLED, "(text=txt)", "Unknown column in '"),
    (LABELLED, "(labels=label)", "Unknown option of a file task 'labels'. Did you mean 'label'?"),
    (LABELLED, "(kind=clasification)", "Did you mean 'classification'?"),
    (LABELLED, "(kind=sts)", "sts: first, second, grade"),
    (LABELLED, "(probe=forest)", "Unknown probe 'forest'"),
    (LABELLED, "(repeats=0)", "repeats=0, but must be an integer from 1 to 100"),
    (LABELLED, "(repeats=1.5)", "repeats=1.5, but must be an integer from 1 to 100"),
    (LABELLED, "(kind=clustering, repeats=3)", "is a clustering task, which has no repeats"),
    (LABELLED, "(text=label)", "the columns 'label' (text) and 'label' (label) are equal"),
    (tagged([("a", "b"), ("a", "c")]), SEVERAL, "has 0 texts without the label 'a'"),
    (tagged([("a",), ("b",)]), SEVERAL, "has 0 texts with several labels, separated by ';'"),
    (tagged([("a", "b")] * 39 + [("d", "a")]), SEVERAL, "has 1 text with the label 'd'"),
    (tagged([("a",), ("b",), ("",)]), SEVERAL, "line 4, column 'label': got a missing value"),
    (
        grouped(more="x,a,\n"),
        GROUPED,
        "line 62, column 'patient': got a missing value, not a group",
    ),
    (grouped(10), GROUPED, "has 2 groups in the column 'patient'; a task needs at least 3"),
    (grouped(more="x,c,p1\ny,c,p1\nz,c,p2\n"), GROUPED, "has 2 groups with the label 'c', and 3"),
    (
        RANKED.replace("relevance\n", "relevance,who\n")
        .replace(",0\n", ",0,a\n")
        .replace(",1\n", ",1,b\n")
        + "q,d,1,c\nq,e,0,c\n",
        "(group=who)",
        "has the query 'query 0' in several groups",
    ),
    (LABELLED, "(group=txt)", "Unknown column in '"),
    (LABELLED, "(score=f1)", "Unknown score 'f1'. Valid: accuracy, average_precision"),
    (PAIRS, "(score=mcc)", "is a pair_classification task, which has no score; leave out"),
    (tagged([("a", "NA"), ("b",)]), SEVERAL, "line 2, column 'label': got 'a; NA', not a label"),
]


def more_labels(label: object) -> str:
    """Texts with several labels, and one with this list of labels on line 41."""
    rows = [{"text": f"text number {i}", "label": TAGS[i % 4]} for i in range(40)]
    return json_lines([*rows, {"text": "other", "label": label}])


REFUSED_LINES = [
    ('{"text": "a", "label": 1}\n{"text": \n', "", "line 2 is not JSON"),
    ('["a", 1]\n', "", "line 1 is a list, not an object"),
    ('{"text": "a", "label": {"a": 1}}\n', "", "got {'a': 1}, not a label"),
    (
        '{"text": "a\\ud83d", "label": 1}\n',
        "",
        "line 1, column 'text': got 'a\\ud83d', which has half",
    ),
    (
        '{"text": "a", "label": "b\\ud83d"}\n',
        "",
        "line 1, column 'label': got 'b\\ud83d', which has half",
    ),
    (f'{{"text": "a", "score": {10**400}}}\n', "", "not a finite number"),
    ('{"one": "a b", "two": null}\n{"two": 1}\n', "", "(text=one, label=COLUMN)"),
    (more_labels(["a", None]), SEVERAL, "line 41, column 'label': got 'a;NA', not a label"),
    (more_labels([{"name": "a"}, "b"]), SEVERAL, "line 41, column 'label': got {'name': 'a'}"),
]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        *(("own.csv", table) for table in REFUSED),
        *(("own.jsonl", table) for table in REFUSED_LINES),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1],
)
def test_each_broken_table_and_option_has_its_own_error(own, name, table):
    content, options, message = table
    with pytest.raises(ConfigError) as caught:
        own(content, options, name)
    assert message in str(caught.value)
    assert options or name in str(caught.value)


def test_files_that_are_no_tables_are_an_error(written, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = pyarrow.array([b"caf\xe9", b"b"]).view(pyarrow.string())
    parquet.write_table(pyarrow.table({"text": texts, "label": texts}), tmp_path / "x.parquet")
    twice = pyarrow.table([texts, texts], names=["text", "text"])
    parquet.write_table(twice, tmp_path / "twice.parquet")
    folder = Path(written("folder/a.txt", "a text without a class")).parent
    for path, message in (
        (tmp_path / "missing.csv", "does not exist"),
        (written("own.doc", "text"), r"has an unknown format \('.doc'\). Use .csv,"),
        (written("own.parquet", LABELLED), "cannot be read as Parquet"),
        (tmp_path / "x.parquet", "cannot be read as Parquet: 'utf-8' codec"),
        (tmp_path / "twice.parquet", "has a column twice"),
        (folder, "has no rows"),
    ):
        with pytest.raises(ConfigError, match=message):
            one(f"file:{path}")


def test_two_files_of_one_stem_need_a_name(written):
    first, second = written("a/own.csv", LABELLED), written("b/own.csv", PAIRS)
    with pytest.raises(ConfigError, match=r"Two tasks are named 'own', .* name=NAME"):
        resolve([f"file:{first}", f"file:{second}"])
    named = resolve([f"file:{first}", f"file:{second}(name=pairs)"])
    assert [task.name for task in named] == ["own", "pairs"]
    assert named[1].key == one(f"file:{second}").key


NUMBERS = lines("text,label", 24, "more {0},{four}")
CAFES = lines("text,label", 24, "more {0},{abc}").replace(",a", ",caf\u00e9")
DOUBTFUL = [
    (
        lines("text,label", 9, "more {0},{abc}").replace(",b", ",a\u200b").replace(",c", ",A"),
        "differ in their writing alone: 'a' (3) and 'a\\u200b' (3) and 'A' (3)",
    ),
    (NUMBERS.replace(",2", ",1.0").replace(",3", ",true"), "'1' (6) and '1.0' (6) and 'true' (6)"),
    (CAFES.replace(",b", ",cafe\u0301"), "alone: 'caf\\xe9' (8) and 'cafe\\u0301' (8)"),
    (
        lines("first,second,score", 39, "left {0},right {0},0") + "left,right,1\n",
        "39 of 40 rows have the same 'score', 0",
    ),
    (lines("query,document,relevance", 9, "the query,text {0},{two}"), "Only 1 item can be scored"),
    (
        LABELLED + "text number 3,b\n",
        "1 text with different values of 'label' in several rows (line 5 has a, line 32 has b:",
    ),
    (LABELLED + "!,a\nx,b\n--,c\n", "3 of 33 texts of the column 'text' are one character or"),
    (
        LABELLED + "".join(f"text {i},label {i // 3}\n" for i in range(21)),
        "'label' has 10 labels for 51 texts, fewer than 6 texts each on average",
    ),
    (PAIRS + "right 4,left 4,1\n", "1 pair with different values of 'label' in several rows"),
    (RANKED + "query 1,document 2,1\n", "1 pair with different values of 'relevance' in several"),
]


@pytest.mark.parametrize(
    ("content", "expected"), DOUBTFUL, ids=[warning for _, warning in DOUBTFUL]
)
def test_doubtful_data_have_a_warning_with_counts_and_an_example(own, content, expected):
    warnings = own(content).warnings
    assert any(expected in warning for warning in warnings), warnings


@given(st.lists(st.tuples(st.text(max_size=4), st.sampled_from("abc")), min_size=1, max_size=12))
def test_every_text_that_repeats_is_counted(rows):
    rows = [(f"t{text.strip().encode().hex()}", label) for text, label in rows]
    rows += [(f"unique {label}{i}", label) for label in "abc" for i in range(3)]
    named = [(f"line {i}", {"text": text, "label": label}) for i, (text, label) in enumerate(rows)]
    warnings = " ".join(file_tasks.table_task(Path("own.csv"), named, {}, "own").warnings)
    of_text = pd.DataFrame(rows, columns=["text", "label"]).groupby("text")["label"]
    copies = (of_text.transform("size") > 1) & (of_text.transform("nunique") == 1)
    assert (f"with one label in several rows, {copies.sum()} rows" in warnings) == copies.any()
    assert ("different values" in warnings) == (of_text.nunique() > 1).any()
