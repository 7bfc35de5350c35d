"""What is wrong with labelled texts is an error where a score would say nothing, else a warning
with an example.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskmetrics.core.errors import ConfigError
from daskmetrics.tasks import Task, resolve
from daskmetrics.tasks.file import table_task

Write = Callable[[str, str | bytes], str]
LABELLED = "text,label\n" + "".join(f"text number {i},{'abc'[i % 3]}\n" for i in range(30))
PAIRS = "first,second,label\n" + "".join(f"left {i},right {i},{i % 2}\n" for i in range(20))
JUDGED = "query,document,relevance\n" + "".join(
    f"query {i},document {j},{int(i == j)}\n" for i in range(5) for j in range(5)
)


def one(path: str) -> Task:
    (task,) = resolve([f"file:{path}"])
    return task


SENSELESS = {
    "a label column given as the text": (
        LABELLED,
        "(text=label)",
        "the columns 'label' (text) and 'label' (label) are equal",
    ),
    "two equal columns": (
        "text,label\n" + "".join(f"{word},{word.upper()}\n" for word in ("bad", "good") * 5),
        "",
        "are equal in all 10 rows, so a score would say nothing",
    ),
    "one text for each label": (
        "text,label\n" + "poor,0\nfine,1\n" * 5,
        "",
        "all rows of a label have the same text",
    ),
    "no text with any content": (
        "text,label\n" + "".join(f"{'!?.-'[i % 4] * (i % 3 + 1)},{i % 2}\n" for i in range(12)),
        "",
        "no text of the column 'text' has",
    ),
    "pairs of equal texts": (
        "first,second,label\n" + "".join(f"a {i},A  {i},{i % 2}\n" for i in range(9)),
        "",
        "are equal",
    ),
}


@pytest.mark.parametrize("case", SENSELESS)
def test_data_whose_score_says_nothing_are_an_error(written: Write, case: str) -> None:
    content, options, message = SENSELESS[case]
    with pytest.raises(ConfigError) as raised:
        one(written("own.csv", content) + options)
    assert message in str(raised.value)


HIDDEN, ONE_SIGN, TWO_SIGNS = "a\u200b", "caf\u00e9", "cafe\u0301"
DOUBTFUL = {
    "labels of one writing": (
        LABELLED + "".join(f"more {i},{(HIDDEN, 'A')[i % 2]}\n" for i in range(8)),
        "differ in their writing alone: 'a' (10) and 'a\\u200b' (4) and 'A' (4)",
    ),
    "numbers of one writing": (
        "text,label\n" + "".join(f"more {i},{(1, '1.0', 'true', 2)[i % 4]}\n" for i in range(24)),
        "differ in their writing alone: '1' (6) and '1.0' (6) and 'true' (6)",
    ),
    "forms of Unicode": (
        "text,label\n"
        + "".join(f"more {i},{(ONE_SIGN, TWO_SIGNS, 'tea')[i % 3]}\n" for i in range(24)),
        "differ in their writing alone: 'caf\\xe9' (8) and 'cafe\\u0301' (8)",
    ),
    "equal grades": (
        "first,second,score\n" + "".join(f"left {i},right {i},{int(i == 7)}\n" for i in range(40)),
        "39 of 40 rows have the same 'score', 0",
    ),
    "one query": (
        "query,document,relevance\n" + "".join(f"the query,text {i},{i % 2}\n" for i in range(9)),
        "There is only one query",
    ),
    "copies": (
        LABELLED + "text number 3,a\nText  number 3,a\nnew,b\n",
        "1 text with one label in several rows, 3 rows in all (line 5 and line 32: 'text number 3')",
    ),
    "contradictory copies": (
        LABELLED + "text number 3,b\n",
        "1 text with different values of 'label' in several rows (line 5 has a, line 32 has b: 'text number 3')",
    ),
    "near-empty texts": (
        LABELLED + "!,a\nx,b\n--,c\n",
        "3 of 33 texts of the column 'text' are one character or have no letter and no digit (line 32: '!')",
    ),
    "few texts per label": (
        "text,label\n" + "".join(f"text {i},{i // 4}\n" for i in range(40)),
        "'label' has 10 labels for 40 texts, fewer than 6 texts each on average",
    ),
    "contradictory pairs": (
        PAIRS + "right 4,left 4,1\n",
        "1 pair with different values of 'label' in several rows (line 6 has 0, line 22 has 1: 'left 4')",
    ),
    "contradictory judgements": (
        JUDGED + "query 1,document 2,1\n",
        "1 pair with different values of 'relevance' in several rows",
    ),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_doubtful_data_have_a_warning_with_counts_and_an_example(written: Write, case: str) -> None:
    content, warning = DOUBTFUL[case]
    warnings = one(written("own.csv", content)).warnings
    assert any(warning in each for each in warnings), warnings


@given(st.lists(st.tuples(st.text(max_size=4), st.sampled_from("abc")), min_size=1, max_size=12))
def test_every_text_that_repeats_is_counted(rows: list[tuple[str, str]]) -> None:
    rows = [(f"t{text.strip().encode().hex()}", label) for text, label in rows]
    rows += [(f"unique {label}{i}", label) for label in "abc" for i in range(3)]
    placed = [(f"line {i}", {"text": text, "label": label}) for i, (text, label) in enumerate(rows)]
    warnings = " ".join(table_task(Path("own.csv"), placed, {}, "own").warnings)
    labels = {text: {label for other, label in rows if other == text} for text, _ in rows}
    copies = [
        text
        for text, _ in rows
        if len(labels[text]) == 1 and sum(other == text for other, _ in rows) > 1
    ]
    assert (f"with one label in several rows, {len(copies)} rows" in warnings) == bool(copies)
    assert ("different values" in warnings) == any(len(of_text) > 1 for of_text in labels.values())
