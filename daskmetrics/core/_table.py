"""Tables of text, for a terminal, a spreadsheet and a page."""

from __future__ import annotations

import csv
import html
import io
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_UNBOUNDED = 10_000  # columns in a file or a pipe: each row stays on one line


@dataclass(frozen=True)
class Table:
    """Rows of text below a header, with a title and notes.

    Parameters
    ----------
    header : tuple of str
        Column names; empty for a table without a header.
    rows : tuple of tuple of str
        Each as long as the header.
    title : str
    notes : tuple of str
        Sentences below the table.

    Examples
    --------
    >>> print(Table(("task", "score"), (("order", "0.5"),), notes=("One task.",)).as_text())
    task   score
    ─────────────
    order  0.5
    <BLANKLINE>
    One task.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    notes: tuple[str, ...] = ()

    def __rich__(self) -> RichTable:
        from rich.box import SIMPLE
        from rich.table import Table as RichTable
        from rich.text import Text

        drawn = RichTable(box=SIMPLE, show_header=bool(self.header), show_edge=False, padding=(0, 1, 0, 0))
        for place, name in enumerate(self.header or (self.rows[0] if self.rows else ())):
            # the first column holds what a reader types or copies, so it is never broken
            drawn.add_column(Text(name), no_wrap=place == 0, overflow="fold")
        for row in self.rows:
            drawn.add_row(*map(Text, map(printable, row)))
        return drawn

    def as_text(self, width: int | None = None) -> str:
        """Title, aligned columns and notes.

        Parameters
        ----------
        width : int, optional
            Of the table in characters: longer cells continue on the next line. By default each row is one line.
        """
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=width or _UNBOUNDED, color_system=None).print(self)
        body = "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())
        return "\n\n".join(filter(None, (self.title, body, "\n".join(self.notes))))

    def show(self) -> None:
        """Print to standard output: as wide as the terminal, or one line for each row into a file or a pipe."""
        import shutil

        print(self.as_text(shutil.get_terminal_size().columns if sys.stdout.isatty() else None))

    def as_csv(self) -> str:
        """Header and rows as comma-separated values."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.header, *self.rows])
        return text.getvalue()

    def as_html(self) -> str:
        """Title, table and notes as HTML."""
        heading = f"<h2>{html.escape(self.title)}</h2>" if self.title else ""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.header)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"{heading}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"


def printable(text: str) -> str:
    """The text without control characters, since a reason may come from other code and could control the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)
