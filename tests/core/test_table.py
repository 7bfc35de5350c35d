from __future__ import annotations

import sys

from daskmetrics.core.table import Table, printable, text_width

TABLE = Table(
    ("task", "question"),
    (
        ("Banking77Classification", "Which of seventy-seven intents does a customer have?"),
        ("order", "a < b, [red]c[/]"),
    ),
    title="Tasks",
    notes=("Two of many.",),
)


def test_each_row_is_one_line_without_a_width():
    title, _, header, rule, first, second, _, note = TABLE.as_text().splitlines()
    assert (title, note) == ("Tasks", "Two of many.")
    assert header.split() == ["task", "question"] and set(rule) == {"─"}
    assert first.startswith("Banking77Classification  Which of") and second.endswith(
        "a < b, [red]c[/]"
    )


def test_in_a_narrow_terminal_cells_continue_on_the_next_line():
    lines = TABLE.as_text(width=40).splitlines()
    assert max(map(len, lines)) <= 40 and any(
        line.startswith("Banking77Classification ") for line in lines
    )
    question = ["Which of", "seventy-seven", "intents does a", "customer have?"]
    assert [line[25:] for line in lines[4:8]] == question


def test_the_widest_column_gives_way():
    row = ("file:reviews.csv(text=body, label=stars)", "out@checkpoint-2000/2", "0.858 ± 0.011")
    first, second = Table((), (row,)).as_text(width=70).splitlines()
    assert first.endswith("out@checkpoint-2000/2  0.858 ± 0.011") and second.strip()


def test_no_word_or_number_is_broken():
    row = ("order", "y" * 9, "score 0.858 ± 0.011 of 95 %")
    for width in range(10, 60):
        text = Table((), (row,), notes=("Tied: 0.858 ± 0.011.",)).as_text(width)
        assert text.count("0.858 ± 0.011") == 2 and "y" * 9 in text and "95 %" in text, width


def test_a_row_whose_words_are_too_many_is_a_block():
    lines = Table(("candidate", "score"), (("tiny@step512/0", "0.858 ± 0.011"),)).as_text(25)
    assert lines.splitlines() == ["candidate  tiny@step512/0", "score      0.858 ± 0.011"]


def test_columns_that_do_not_fit_have_equal_room():
    lines = Table((), (("best", "short " * 10, "long " * 14),)).as_text(width=60).splitlines()
    second = [line.find("long") for line in lines if "long" in line]
    assert 28 <= min(second) <= 38, lines


def test_html_holds_every_cell():
    page = TABLE.as_html()
    for part in ("<h2>Tasks</h2>", "<td>a &lt; b, [red]c[/]</td>", "<p>Two of many.</p>"):
        assert part in page


def test_control_characters_do_not_reach_the_terminal():
    assert printable("a\x1b[2Jb") == "a?[2Jb"
    table = Table((), (("a", "b\x1b[2J"),), "title \x1b[2J", ("note\r\udcff",))
    assert table.as_text().replace("\n", " ").isprintable()


def test_a_text_is_at_most_as_wide_as_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert text_width(100) == 100
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert (text_width(100), text_width(60)) == (80, 60)
