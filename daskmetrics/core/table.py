"""Tables of text, for a terminal, a spreadsheet and a page."""

from __future__ import annotations

import html
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that make a spreadsheet compute
# a lone return ends a row where a writer leaves it without quotes
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
GAP = 2  # columns between two of a table
JOINT = "\ue000"  # in place of a space at which no line ends
_JOINTS = re.compile(r" (?=[±%])|(?<=±) |(?<=layer|.step) (?=\d)")
_UNBOUNDED = 10_000  # columns in a file or a pipe: each row stays on one line


@dataclass(frozen=True)
class Table:
    """Rows of text below a header, with a title and notes.

    The header is empty for a table without one.

    >>> print(Table(("task", "score"), (("order", "0.5"),), notes=("One task.",)).as_text())
    task   score
    ────────────
    order  0.5
    <BLANKLINE>
    One task.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls, rows: Sequence[Mapping[str, str]], title: str = "", notes: Sequence[str] = ()
    ) -> Table:
        """Rows by column, without the columns in which every cell is empty.

        >>> Table.of([{"task": "order", "failed": ""}]).header
        ['task']
        """
        names = rows[0] if rows else ()
        header = [name for name in names if any(row[name] for row in rows)]
        return cls(header, [[row[name] for name in header] for row in rows], title, notes)

    def as_text(self, width: int = _UNBOUNDED) -> str:
        """Title, aligned columns and notes, in which no word or number is broken.

        Longer cells continue below. Where the longest words of a row are too many for a line, each
        row is a block of lines.
        """
        blocks = [self]
        if self.header and sum(self._widths(width)) - GAP > width:
            blocks = [Table((), list(zip(self.header, row, strict=True))) for row in self.rows]
        body = "\n\n".join(block._drawn(width) for block in blocks)
        notes = "\n".join(filled(note, width) for note in self.notes)
        return "\n\n".join(filter(None, (filled(self.title, width), body, notes)))

    def _drawn(self, width: int) -> str:
        from rich.box import SIMPLE
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        drawn = RichTable(
            box=SIMPLE,
            show_header=bool(self.header),
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        widths = self._widths(width)
        header, *rows = self._cells
        for name, column_width in zip_longest(header, widths, fillvalue=""):
            drawn.add_column(Text(str(name)), overflow="fold", width=int(column_width) - GAP)
        for row in rows:
            drawn.add_row(*map(Text, row))
        text = io.StringIO()
        Console(file=text, width=max(width, sum(widths)), color_system=None).print(drawn)
        lines = text.getvalue().replace(JOINT, " ").splitlines()
        return "\n".join(line.rstrip() for line in lines if line.strip())

    @property
    def _cells(self) -> list[list[str]]:
        """The header and the rows, whose numbers stay whole."""
        return [[joined(printable(cell)) for cell in row] for row in (self.header, *self.rows)]

    def _widths(self, width: int) -> list[int]:
        """Of the columns with their gaps: the widest give way, as far as their words allow."""
        from rich.cells import cell_len

        columns = list(zip_longest(*self._cells, fillvalue=""))
        widths = [max(map(cell_len, column)) + GAP for column in columns]
        least = [
            max(cell_len(word) for cell in column for word in [*cell.split(), ""]) + GAP
            for column in columns
        ]
        while (over := sum(widths) - GAP - width) > 0:
            shrinkable = [i for i in range(len(widths)) if widths[i] > least[i]]
            if not shrinkable:
                break
            widest = max(shrinkable, key=widths.__getitem__)
            widths[widest] = max(least[widest], widths[widest] - max(1, over // len(widths)))
        return widths

    def show(self) -> None:
        """Print, as wide as the terminal, or a line for each row."""
        print(self.as_text(text_width(_UNBOUNDED)))

    def as_html(self) -> str:
        """Title, table and notes as HTML."""
        heading = ""
        if self.title:
            heading = f"<h2>{html.escape(self.title)}</h2>"
        head = _elements("th", self.header)
        body = "".join(f"<tr>{_elements('td', row)}</tr>" for row in self.rows)
        notes = _elements("p", self.notes)
        return f"{heading}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def text_width(most: int) -> int:
    """Columns of a text on standard output, at most those of a terminal."""
    if not sys.stdout.isatty():
        return most
    return min(most, shutil.get_terminal_size().columns)


def spreadsheet_cell(value: T) -> T | str:
    r"""A cell of a CSV file that no spreadsheet runs.

    No terminal obeys it either; all but texts stay.

    A text that begins like a formula gets an apostrophe in front of it, unless it is a number, and
    control characters are written as escapes.

    >>> [spreadsheet_cell(cell) for cell in ("=1+1", "@a", "-0.5", -0.5, "a\x1b[2J", "-")]
    ["'=1+1", "'@a", '-0.5', -0.5, 'a\\x1b[2J', '-']
    """
    if not isinstance(value, str):
        return value
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), value)
    if text.startswith(_FORMULA) and len(text) > 1:
        try:
            float(text)
        except ValueError:
            return f"'{text}"
    return text


def spreadsheet_frame(table: pandas.DataFrame) -> pandas.DataFrame:
    """The table with names and cells as `spreadsheet_cell` makes them."""
    import pandas

    # `DataFrame.map` would turn integers beside missing values to floats
    rows = [list(map(spreadsheet_cell, row)) for row in table.astype(object).to_numpy()]
    names = list(map(spreadsheet_cell, table.columns))
    return pandas.DataFrame(rows, columns=names, dtype=object)


def _elements(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def printable(text: str, kept: str = "") -> str:
    r"""The text without control characters, but for those that are kept.

    A reason may come from other code and could control the terminal; line breaks may be kept.

    >>> printable("a\x1b[2J\nb"), printable("a\x1b[2J\nb", kept="\n")
    ('a?[2J?b', 'a?[2J\nb')
    """
    return "".join(sign if sign.isprintable() or sign in kept else "?" for sign in text)


def filled(text: str, width: int, first: str = "", others: str = "") -> str:
    """Lines of at most so many columns, in which no word or number is broken.

    ``first`` is the indent of the first line, ``others`` of the following.
    """
    lines = [
        textwrap.fill(
            line,
            width,
            initial_indent=first,
            subsequent_indent=others,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in joined(printable(text, "\n")).splitlines()
    ]
    return "\n".join(lines).replace(JOINT, " ")


def joined(text: str) -> str:
    """The text with a `JOINT` where a number would be parted from its error or unit.

    >>> joined("0.5 ± 0.1, 95 %").split()
    ['0.5\ue000±\ue0000.1,', '95\ue000%']
    """
    return _JOINTS.sub(JOINT, text)
