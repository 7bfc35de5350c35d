"""HTML by the templates of this folder, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from daskmetrics.core.table import JOINT, joined
from daskmetrics.core.text import plural, score_text

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


SHORT = 20  #: characters of a word that fits into any column


@cache
def template(name: str) -> Template:
    """A template of this folder; undefined names are errors."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("daskmetrics.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=score_text, plural=plural, whole=whole)
    return environment.get_template(name)


def whole(text: str) -> Markup:
    """The text as HTML in which no number and no short word with a hyphen is broken.

    >>> str(whole("best <run> --save x"))
    'best &lt;run&gt; <span style="white-space: nowrap">--save</span> x'
    """
    from markupsafe import Markup, escape

    words = joined(text).replace(JOINT, "\u00a0").split(" ")
    unbroken = Markup('<span style="white-space: nowrap">{}</span>')
    return Markup(" ").join(
        unbroken.format(word) if "-" in word and len(word) <= SHORT else escape(word)
        for word in words
    )


def card(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """A small table for a notebook, in its theme's colours."""
    return template("card.html").render(title=title, lines=lines)
