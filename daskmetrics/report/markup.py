"""HTML by the templates of this folder, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from daskmetrics.core.text import plural, score_text

if TYPE_CHECKING:
    from jinja2 import Template


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
    environment.filters.update(number=score_text, plural=plural)
    return environment.get_template(name)


def card(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """A small table for a notebook, in its theme's colours."""
    return template("card.html").render(title=title, lines=lines)
