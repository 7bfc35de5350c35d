"""Numbers, candidates, labelled lines and templates as terminal, page and notebook show them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
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
def template(name: str) -> Template:
    """A template of this folder; undefined names are errors, and texts in HTML are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("daskmetrics.report", ""),
        autoescape=select_autoescape(disabled_extensions=("txt",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = [apart, candidate, duration, equal_names, listed, number, percent, plural]
    filters += [printable, quote]
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(name)


def rows_of(name: str, **values: object) -> list[tuple[str, str]]:
    """The rows of a template, each a label and a text: ``label: text``, which goes on in lines that
    begin with a blank; a row without both separates blocks.
    """
    text = template(name).render(values).strip()
    lines = re.sub(r"\n +", " ", text).split("\n")
    return [(label, text) for label, _, text in (line.partition(": ") for line in lines)]


def answer_rows(answer: Answer) -> dict[str, str]:
    """The answer by label, in at most twelve rows: what to use, its gain, how sure that is, its
    cost, and what to do next.
    """
    return dict(rows_of("answer.txt", answer=answer))


NO_PICTURES = (
    "No PNG or SVG files of the figures were written: they need matplotlib. Run pip install "
    "'daskmetrics[plot]', then daskmetrics report again."
)
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


UNPAIRED = (
    "* not paired: outcomes of items are missing, so the error is that of two independent scores"
)


def apart(difference: Difference, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, and a mark if the error is not paired.

    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    text = number(difference.value, difference.stderr, sign=True)
    if not difference.paired:
        text += mark
    return text


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", *notes: str
) -> Table:
    """A table of values: a score is a pair with its error, a text stays, None is empty; a note says
    which differences are not paired.
    """
    shown = []
    differences = []
    for row in rows:
        texts = []
        for value in row:
            match value:
                case Difference():
                    differences.append(value)
                    texts.append(apart(value, " *"))
                case (float() | int() | None as score, float() | int() | None as stderr):
                    texts.append(number(score, stderr))
                case int():
                    texts.append(f"{value:,}")
                case _:
                    texts.append("" if value is None else str(value))
        shown.append(texts)
    if not all(difference.paired for difference in differences):
        notes += (UNPAIRED,)
    return Table(header, shown, title, notes)


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
