"""Numbers, candidates and labelled lines as terminal, page and notebook show them."""

from __future__ import annotations

import math
import textwrap
from importlib.util import find_spec
from typing import TYPE_CHECKING

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.names import Arm
from daskmetrics.core.table import printable, text_width
from daskmetrics.core.text import score_text

if TYPE_CHECKING:
    from daskmetrics.core.outcomes import Difference  # imports numpy, which `status` need not

WIDTH = 100  #: most columns of a text for a terminal
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
        text_width(WIDTH),
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
    step = arm.checkpoint.step
    if revision in (f"step{step}", f"checkpoint-{step}"):  # other numbers may be epochs
        revision = f"step {step:,}"
    words = [arm.model, revision, f"layer {arm.layer}", arm.readout]
    return ", ".join(word for word in words if word and word != "main")


def apart(difference: Difference, mark: str = " (unpaired)") -> str:
    """A difference with its standard error, and a mark if the error is not paired.

    >>> from daskmetrics.core.outcomes import Difference
    >>> apart(Difference(0.02, 0.01, paired=True)), apart(Difference(0.02, 0.01, paired=False))
    ('+0.020 ± 0.010', '+0.020 ± 0.010 (unpaired)')
    """
    text = score_text(difference.value, difference.stderr, sign=True)
    if not difference.paired:
        text += mark
    return text


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
