"""Numbers, arms, labelled lines and templates as terminal, page and notebook show them."""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING

from daskmetrics.core._outcomes import Difference
from daskmetrics.core._table import printable
from daskmetrics.core._text import plural
from daskmetrics.core.names import Arm

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def template(name: str) -> Template:
    """A template of this folder; undefined names are errors, and texts are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("daskmetrics.report", ""),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    return environment.get_template(name)


WIDTH = 98  #: columns; with the comment sign of `best_text` they are 100
LABEL = 12  #: columns of the labels on the left
NO_REASON = "no reason was recorded"


def fact(label: str, text: str) -> list[str]:
    """A label and its text, wrapped beside it.

    >>> fact("run", "demo")
    ['run         demo']
    """
    label = printable(label)
    first = f"{label:<{LABEL}}" if len(label) < LABEL else f"{label}: "
    return textwrap.wrap(
        printable(text), WIDTH, initial_indent=first, subsequent_indent=" " * LABEL, break_long_words=False
    )


def place(arm: Arm) -> str:
    """An arm in words.

    >>> place(Arm("tiny", "step8", 3))
    'layer 3 of tiny at step 8'
    """
    step = arm.checkpoint.step
    return f"layer {arm.layer} of {arm.model} at {arm.revision if step is None else f'step {step:,}'}"


def number(value: float | None, stderr: float | None = None, sign: bool = False) -> str:
    """A score with its standard error.

    >>> number(0.5, 0.01), number(0.02, 0.01, sign=True), number(None)
    ('0.500 ± 0.010', '+0.020 ± 0.010', 'not measured')
    """
    if value is None:
        return "not measured"
    text = f"{value:{'+' if sign else ''}.3f}"
    return text if stderr is None else f"{text} ± {stderr:.3f}"


def over(weights: Collection[float]) -> str:
    """What a mean score is the mean of, given the weights of its tasks.

    >>> over([1.0, 1.0]), over([3.0]), over([1.0, 2.0])
    ('mean of 2 tasks', 'mean of 1 task', 'weighted mean of 2 tasks')
    """
    return f"{'weighted ' if len(set(weights)) > 1 else ''}mean of {plural(len(weights), 'task')}"


UNPAIRED = "* not paired: outcomes of items are missing, so the error is that of two independent scores"


def apart(difference: Difference | None, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, and a mark if the error is not paired.

    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    if difference is None:
        return ""
    return number(difference.value, difference.stderr, sign=True) + ("" if difference.paired else mark)


def percent(share: float) -> str:
    """A share as a percentage, with one decimal below 10 %.

    >>> percent(0.2842), percent(0.0123), percent(0.0), percent(1.0)
    ('28 %', '1.2 %', '0 %', '100 %')
    """
    return f"{share:.1%}".replace("%", " %") if 0 < share < 0.095 else f"{share:.0%}".replace("%", " %")


def probability(share: float) -> str:
    """A probability estimated from draws, which cannot resolve 0 and 1.

    >>> probability(0.41), probability(1.0), probability(0.001)
    ('41 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if share > 0.99 else "under 1 %" if share < 0.01 else percent(share)


def card(title: str, rows: Mapping[str, str], code: str = "") -> str:
    """A small HTML table for a notebook, in the colours of its theme."""
    return template("card.html").render(title=title, rows=rows, code=code)
