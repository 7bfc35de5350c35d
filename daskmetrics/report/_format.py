"""Numbers, candidates, labelled lines and templates as terminal, page and notebook show them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING

from daskmetrics.answer import Answer
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference
from daskmetrics.core.table import Table, printable
from daskmetrics.core.text import duration, equal_names, listed, plural

if TYPE_CHECKING:
    from jinja2 import Template


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
    filters = [apart, candidate, duration, equal_names, listed, number, percent, plural]
    filters += [printable, quote, si]
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(name)


def text_of(name: str, **values: object) -> str:
    """The text of a template of the folder `tables`."""
    return template(f"tables/{name}.txt").render(values).strip("\n")


def rows_of(name: str, **values: object) -> list[tuple[str, str]]:
    """The rows of a template, each a label and a text: ``label: text``, which goes on in lines that
    begin with a blank; a row without both separates blocks.
    """
    text = text_of(name, **values).strip()
    lines = re.sub(r"\n +", " ", text).split("\n")
    return [(label, text) for label, _, text in (line.partition(": ") for line in lines)]


def answer_rows(answer: Answer) -> dict[str, str]:
    """The answer by label, in at most twelve rows: what to use, its gain, how sure that is, its
    cost, and what to do next.
    """
    return dict(rows_of("answer", answer=answer))


NO_PICTURES = (
    "No PNG or SVG files of the figures were written: they need matplotlib. Run pip install "
    "'daskmetrics[plot]', then daskmetrics report again."
)
_BAR = "\x1f"  # stands for a bar in a value
WIDTH = 100  #: columns of a text for a terminal
LABEL = 12  #: columns of the labels on the left


def fact(label: str, text: str) -> str:
    """A label and its text, wrapped beside it; paths are not broken.

    >>> fact("run", "demo")
    'run         demo'
    """
    label = printable(label)
    indent = f"{label:<{LABEL}}"
    if len(label) >= LABEL:
        indent = f"{label}: "
    return textwrap.fill(
        printable(text),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def candidate(arm: Arm) -> str:
    """A candidate in words.

    >>> candidate(Arm("tiny", "step8", 3)), candidate(Arm("minilm", "main", 6, "last,64d"))
    ('tiny, step 8, layer 3', 'minilm, layer 6, last,64d')
    """
    revision = arm.revision
    if (step := arm.checkpoint.step) is not None:
        revision = f"step {step:,}"
    words = [arm.model, revision, f"layer {arm.layer}", arm.readout]
    return ", ".join(word for word in words if word and word != "main")


def number(value: float | None, stderr: float | None = None, sign: bool = False) -> str:
    """A score with its standard error.

    >>> number(0.5, 0.01), number(0.02, 0.01, sign=True), number(None)
    ('0.500 ± 0.010', '+0.020 ± 0.010', 'not measured')
    """
    if value is None:
        return "not measured"
    text = f"{value:+.3f}" if sign else f"{value:.3f}"
    if stderr is not None:
        text += f" ± {stderr:.3f}"
    return text


def apart(difference: Difference, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, and a mark if the error is not paired.

    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    text = number(difference.value, difference.stderr, sign=True)
    if not difference.paired:
        text += mark
    return text


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
            return number(score, stderr)
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
    header, *rows = [
        [part.strip().replace(_BAR, "|") for part in line.split("|")] for line in head.split("\n")
    ]
    return Table(header, rows, title, notes.replace(_BAR, "|").splitlines())


def percent(share: float) -> str:
    """A share as a percentage, with one decimal below 10 %.

    >>> percent(0.2842), percent(0.0123), percent(0.0), percent(1.0)
    ('28 %', '1.2 %', '0 %', '100 %')
    """
    decimals = int(0 < share < 0.095)
    return f"{100 * share:.{decimals}f} %"


SI = ("", "k", "M", "G", "T", "P")


def si(value: float) -> str:
    """A large number in three digits, with a prefix of the SI.

    >>> si(512), si(44_670_000), si(2.5e12)
    ('512', '44.7 M', '2.5 T')
    """
    exponent = min(5, math.floor(math.log10(max(1, value)) / 3))
    shown = float(f"{value / 1000**exponent:.3g}")
    return f"{shown:,.15g} {SI[exponent]}".strip()


def need_matplotlib() -> None:
    """Raise a `ConfigError` before anything is drawn if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "Plots need matplotlib, which is not installed: pip install 'daskmetrics[plot]'."
        )


class Card:
    """What a notebook shows as a small table, in the colours of its theme: a title, and texts by
    label.
    """

    def _card(self) -> tuple[str, Mapping[str, str]]:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        title, rows = self._card()
        return template("card.html").render(title=title, rows=rows)
