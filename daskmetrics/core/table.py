"""Tables of text, for a terminal, a spreadsheet and a page."""

from __future__ import annotations

import html
import io
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pandas
    from rich.console import Console, ConsoleOptions
    from rich.table import Table as RichTable

T = TypeVar("T")

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first characters that make a spreadsheet compute
# a lone return ends a row where a writer leaves it without quotes
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
WORD = 9  # characters that a column needs, which is not broken into letters
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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        from rich.box import SIMPLE
        from rich.cells import cell_len
        from rich.table import Table as RichTable
        from rich.text import Text

        header, *rows = [list(map(printable, row)) for row in (self.header, *self.rows)]
        columns = list(zip_longest(header, *rows, fillvalue=""))
        widths = [max(map(cell_len, column)) for column in columns]
        drawn = RichTable(
            box=SIMPLE,
            show_header=bool(self.header),
            show_edge=False,
            pad_edge=False,
            padding=(0, 1, 0, 0),
        )
        # the narrowest columns stay whole, as long as each of the others has room for a word, and
        # for half as much
        room = options.max_width - 2 * len(columns)
        unbroken: set[int] = set()
        for i in sorted(range(len(columns)), key=widths.__getitem__):
            room -= widths[i]
            others = len(columns) - len(unbroken) - 1
            if room < others * max(WORD, widths[i] // 2):
                break
            unbroken.add(i)
        for i, (name, *_) in enumerate(columns):
            drawn.add_column(Text(name), overflow="fold", no_wrap=i in unbroken)
        for row in rows:
            drawn.add_row(*map(Text, row))
        yield drawn

    def as_text(self, width: int = _UNBOUNDED) -> str:
        """Title, aligned columns and notes; longer rows continue below."""
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=width, color_system=None).print(self)
        body = "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())
        notes = printable("\n".join(self.notes), "\n")
        return "\n\n".join(filter(None, (printable(self.title), body, notes)))

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
