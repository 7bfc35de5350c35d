"""Numbers, candidates, labelled lines and templates as terminal, page and notebook show them."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING

from daskmetrics.answer import Answer
from daskmetrics.bandit.recommend import ScoreEstimate
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.core.outcomes import Difference
from daskmetrics.core.results import Scored
from daskmetrics.core.table import printable
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
    filters = [apart, candidate, duration, equal_names, listed, number, over, percent, plural]
    filters += [printable, probability, quote]
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


def scored(score: ScoreEstimate | Scored | None, without: str = "not measured") -> str:
    """The score of a candidate on a task with its standard error.

    >>> scored(Scored(0.5, 0.01)), scored(None)
    ('0.500 ± 0.010', 'not measured')
    """
    if score is None:
        return without
    return number(score.score, score.stderr)


def over(weights: Collection[float]) -> str:
    """What a mean score is the mean of, given the weights of its tasks.

    >>> over([1.0, 1.0]), over([3.0]), over([1.0, 2.0])
    ('mean of 2 tasks', 'mean of 1 task', 'weighted mean of 2 tasks')
    """
    text = f"mean of {plural(len(weights), 'task')}"
    if len(set(weights)) > 1:
        return f"weighted {text}"
    return text


UNPAIRED = (
    "* not paired: outcomes of items are missing, so the error is that of two independent scores"
)


def apart(difference: Difference | None, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, and a mark if the error is not paired.

    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    if difference is None:
        return ""
    text = number(difference.value, difference.stderr, sign=True)
    if not difference.paired:
        text += mark
    return text


def unpaired(differences: Iterable[Difference | None]) -> tuple[str, ...]:
    """The note below a table in which some errors of differences are not paired."""
    if all(difference.paired for difference in differences if difference):
        return ()
    return (UNPAIRED,)


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


def probability(share: float) -> str:
    """A probability estimated from draws, which cannot resolve 0 and 1.

    >>> probability(0.41), probability(1.0), probability(0.001)
    ('41 %', 'over 99 %', 'under 1 %')
    """
    if share > 0.99:
        return "over 99 %"
    if share < 0.01:
        return "under 1 %"
    return percent(share)


def need_matplotlib() -> None:
    """Raise a `ConfigError` before anything is drawn if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "Plots need matplotlib, which is not installed: pip install 'daskmetrics[plot]'."
        )


def card(title: str, rows: Mapping[str, str]) -> str:
    """A small HTML table for a notebook, in the colours of its theme."""
    return template("card.html").render(title=title, rows=rows)
