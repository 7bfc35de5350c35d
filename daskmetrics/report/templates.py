"""Texts and tables by the templates of the folder `tables`: values come in, and each is written in
one way, whatever shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from shlex import quote
from typing import TYPE_CHECKING

from daskmetrics.core.outcomes import Difference
from daskmetrics.core.table import Table, printable
from daskmetrics.core.text import duration, listed, plural, score_text, size_text
from daskmetrics.report._format import apart, candidate, percent, si

if TYPE_CHECKING:
    from jinja2 import Template

    from daskmetrics.answer import Answer

_BAR = "\x1f"  # stands for a bar in a value


@cache
def template(name: str, finalize: Callable[[object], object] | None = None) -> Template:
    """A template of this folder; undefined names are errors, and texts in HTML are escaped.

    ``finalize`` says how values are written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("daskmetrics.report", ""),
        autoescape=select_autoescape(disabled_extensions=("txt",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=finalize,
    )
    environment.filters.update(
        apart=apart,
        candidate=candidate,
        duration=duration,
        listed=listed,
        number=score_text,
        percent=percent,
        plural=plural,
        printable=printable,
        quote=quote,
        si=si,
        size_text=size_text,
    )
    return environment.get_template(name)


def text_of(name: str, **values: object) -> str:
    """The text of a template of the folder `tables`."""
    return template(f"tables/{name}.txt").render(values).strip("\n")


def rows_of(name: str, **values: object) -> list[tuple[str, str]]:
    """The rows of a template, each a label and a text: ``label: text``, which goes on in lines that
    begin with a blank; a row without both separates blocks.
    """
    text = text_of(name, **values).strip()
    rows = []
    for line in re.sub(r"\n +", " ", text).split("\n"):
        label, _, content = line.partition(": ")
        rows.append((label, content))
    return rows


def cell(value: object) -> object:
    """A value as a table shows it: differences, and pairs of a score and its error, as text; nothing
    for None.
    """
    match value:
        case None:
            return ""
        case Difference():
            return apart(value, " *")
        case (float() | int() | None as score, float() | int() | None as stderr):
            return score_text(score, stderr)
        case int():
            return f"{value:,}"
        case str():
            return value.replace("|", _BAR)
    return value


def table_of(name: str, title: str = "", **values: object) -> Table:
    """The table of a template: its header, a line for each row, with bars between the cells, and
    after an empty line the notes; a line that begins with a blank goes on with the one before.
    """
    text = template(f"tables/{name}.txt", cell).render(values).strip()
    head, _, notes = re.sub(r"\n +", " ", text).partition("\n\n")
    rows = []
    for line in head.split("\n"):
        parts = line.split("|")
        rows.append([part.strip().replace(_BAR, "|") for part in parts])
    return Table(rows[0], rows[1:], title, notes.replace(_BAR, "|").splitlines())


def answer_rows(answer: Answer) -> dict[str, str]:
    """The answer by label, in at most twelve rows: what to use, its gain, how sure that is, its
    cost, and what to do next.
    """
    return dict(rows_of("answer", answer=answer))


def card(title: str, rows: Mapping[str, str]) -> str:
    """What a notebook shows as a small table, in the colours of its theme: a title, and texts by
    label.
    """
    return template("card.html").render(title=title, rows=rows)
