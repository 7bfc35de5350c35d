"""Numbers, arms, labelled lines and templates as terminal, page and notebook show them."""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from daskmetrics.core._outcomes import Difference
from daskmetrics.core._table import printable
from daskmetrics.core._text import listed, plural
from daskmetrics.core.names import Arm, Checkpoint, step_of, training_order

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
PHRASES = 4  #: of arms in words; the others are counted
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


def in_words(arms: Sequence[Arm], among: Iterable[Arm]) -> str:
    """Arms in words: ranges are compressed, and models and checkpoints named only if there are several of them.

    >>> layers = [Arm("m", "main", layer) for layer in range(7)]
    >>> in_words(layers[5:], layers), in_words([*layers[:4], layers[6]], layers)
    ('layers 5 and 6', 'layers 0 to 3 and 6')
    >>> steps = [Arm(model, f"step{step}", 3) for model in "ab" for step in (1, 2, 4)]
    >>> in_words(steps[:3], steps), in_words([*steps[:2], steps[5]], steps)
    ('layer 3 of a at steps 1 to 4', 'layer 3 of a at steps 1 and 2 and layer 3 of b at step 4')
    """
    known: dict[str, set[str]] = {}
    for arm in among:
        known.setdefault(arm.model, set()).add(arm.revision)
    layers: dict[Checkpoint, list[int]] = {}
    for arm in sorted(arms):
        layers.setdefault(arm.checkpoint, []).append(arm.layer)  # ascending
    alike: dict[tuple[str, tuple[int, ...]], set[str]] = {}
    for checkpoint, each in layers.items():
        alike.setdefault((checkpoint.model, tuple(each)), set()).add(checkpoint.revision)
    phrases = []
    for (model, own), revisions in alike.items():
        order = training_order(known[model])
        of = f" of {model}" if len(known) > 1 else ""
        at = f" at {_steps(order, revisions)}" if len(order) > 1 else ""
        span = list(map(str, range(own[-1] + 1)))
        phrases.append(f"layer{'' if len(own) == 1 else 's'} {_ranges(span, set(map(str, own)))}{of}{at}")
    if len(phrases) > PHRASES + 1:
        counted = sum(len(own) * len(revisions) for (_, own), revisions in list(alike.items())[PHRASES:])
        phrases[PHRASES:] = [plural(counted, "other arm")]
    return listed(phrases) if len(phrases) < 3 else f"{', '.join(phrases[:-1])}, and {phrases[-1]}"


def _steps(order: Sequence[str], chosen: Container[str]) -> str:
    """Revisions in words, as steps if all of them are."""
    names = [name for name in order if name in chosen]
    if any(step_of(name) is None for name in names):
        return _ranges(order, names)
    steps = [name.removeprefix("step") for name in names]
    return f"step{'' if len(steps) == 1 else 's'} {_ranges([name.removeprefix('step') for name in order], steps)}"


def _ranges(order: Sequence[str], chosen: Container[str]) -> str:
    """The chosen of some ordered names; three or more that follow each other are a range.

    >>> _ranges("abcdefg", "abcfg")
    'a to c, f and g'
    """
    runs: list[list[str]] = [[]]
    for name in order:
        if name in chosen:
            runs[-1].append(name)
        elif runs[-1]:
            runs.append([])
    return listed([part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)])


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


def si(value: float) -> str:
    """A large number in three digits, with a prefix of the SI.

    >>> si(512), si(44_670_000), si(2.5e12)
    ('512', '44.7 M', '2.5 T')
    """
    exponent = min(5, max(0, math.floor(math.log10(value) / 3))) if value >= 1 else 0
    shown = float(f"{value / 1000**exponent:.3g}")
    return f"{shown:,.15g} {SI[exponent]}".strip()


SI = ("", "k", "M", "G", "T", "P")


def probability(share: float) -> str:
    """A probability estimated from draws, which cannot resolve 0 and 1.

    >>> probability(0.41), probability(1.0), probability(0.001)
    ('41 %', 'over 99 %', 'under 1 %')
    """
    return "over 99 %" if share > 0.99 else "under 1 %" if share < 0.01 else percent(share)


def card(title: str, rows: Mapping[str, str], code: str = "") -> str:
    """A small HTML table for a notebook, in the colours of its theme."""
    return template("card.html").render(title=title, rows=rows, code=code)
