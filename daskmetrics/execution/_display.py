"""Progress of a run on the user's screen: bars in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import html
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rich import progress
from rich.console import Console
from rich.table import Column
from rich.text import Text

from daskmetrics.core._table import printable_lines

LINE_EVERY = 60.0  # seconds between plain lines where there is no terminal
DRAW_EVERY = 0.5  # seconds between two drawings in a notebook
MESSAGES = 5  # the latest that a notebook shows
WIDE = 110  # characters of a terminal that has room for long bars


class Display:
    """Progress of the phases of a run.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write; by default standard error. A notebook gets one output that changes, and needs no widgets.
    on_change : callable, optional
        Called after every change in place of showing anything.
    """

    def __init__(self, console: Console | None = None, on_change: Callable[[], None] | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=on_change is not None)
        self.messages: deque[str] = deque(maxlen=MESSAGES)
        self._cell = NotebookCell(self.as_html) if self.console.is_jupyter and on_change is None else None
        self._on_change = on_change or (self._cell.draw if self._cell else lambda: None)
        self.live = self.console.is_terminal or self._cell is not None
        whole = Column(no_wrap=True)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<9}"),
            progress.BarColumn(bar_width=28 if self.console.width >= WIDE else 10, table_column=whole),
            progress.MofNCompleteColumn(table_column=whole),
            progress.TextColumn("{task.fields[unit]}"),
            progress.TimeElapsedColumn(table_column=whole),
            progress.TextColumn("eta"),
            progress.TimeRemainingColumn(table_column=whole),
            _LatestColumn("[dim]{task.fields[latest]}", table_column=Column()),
            console=self.console,
            disable=not self.console.is_terminal or self.console.is_jupyter,
        )
        self._tasks: dict[str, progress.TaskID] = {}
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._bars.stop()
        if self._cell:
            self._cell.draw(at_once=True)

    def message(self, text: str) -> None:
        """Print a line above the bars."""
        text = printable_lines(text)
        if self._cell is None:
            self.console.print(text, highlight=False, soft_wrap=True)
        self.messages.append(Text.from_markup(text).plain)
        self._on_change()

    def phase(self, name: str, total: float, done: int = 0, unit: str = "") -> None:
        """Begin a phase of ``total`` units, of which ``done`` are complete; ``unit`` says of what, if not of work.

        A phase that begins again takes its bar over.
        """
        if name in self._tasks:
            self._bars.reset(self._tasks[name], total=total, completed=int(done), latest="", unit=unit)
            self._on_change()
        elif total:
            self._tasks[name] = self._bars.add_task(name, total=total, completed=done, latest="", unit=unit)
            self._on_change()

    def finish(self, name: str) -> None:
        """End a phase that may need less than its total: what was done is all."""
        if name in self._tasks:
            self._bars.update(self._tasks[name], total=self._task(name).completed)
            self._on_change()

    def advance(self, name: str, latest: str, to: float | None = None) -> None:
        """Advance a phase by one unit, or to ``to`` of its total; ``latest`` describes the result."""
        if name not in self._tasks:
            return
        latest = printable_lines(latest)
        first = not any(task.completed for task in self._bars.tasks)
        self._bars.update(self._tasks[name], latest=latest, advance=1 if to is None else None, completed=to)
        task = self._task(name)
        if not self.live and (first or task.finished or time.monotonic() - self._last_line > LINE_EVERY):
            self._last_line = time.monotonic()
            elapsed = self._last_line - self._started
            left = "" if task.finished or task.time_remaining is None else f"  eta {task.time_remaining:.0f} s"
            self.console.print(
                f"{elapsed:5.0f} s  {name}: {_done(task)}{left}  {latest}",
                highlight=False,
                soft_wrap=True,
            )
        self._on_change()

    def _task(self, name: str) -> progress.Task:
        return self._bars.tasks[self._bars.task_ids.index(self._tasks[name])]

    @property
    def phases(self) -> dict[str, str]:
        """How far every phase is, in words."""
        return {task.description: _done(task) for task in self._bars.tasks}

    def as_html(self) -> str:
        """Bars and latest messages for a notebook, in the colours of its theme."""
        rows = "".join(map(_bar, self._bars.tasks))
        lines = "".join(f'<div style="opacity: .8">{html.escape(text)}</div>' for text in self.messages)
        table = f'<table style="border-collapse: collapse; color: inherit; background: none">{rows}</table>'
        return f'<div style="font-family: system-ui, sans-serif; font-size: 13px">{lines}{table}</div>'


class _LatestColumn(progress.TextColumn):
    """The latest result, the only column that a narrow terminal shortens."""

    def render(self, task: progress.Task) -> Text:
        text = super().render(task)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def _done(task: progress.Task) -> str:
    """How many of how many.

    >>> _done(progress.Task(progress.TaskID(0), "search", 99, 30, _get_time=float, fields={"unit": "% of budget"}))
    '30 of 99 % of budget'
    """
    return f"{task.completed:.0f} of {task.total:.0f} {task.fields['unit']}".rstrip()


def _bar(task: progress.Task) -> str:
    """A row: the name of the phase, a bar, how many of how many, and the latest result."""
    left = task.time_remaining
    eta = "" if task.finished or left is None else f", eta {left:.0f} s"
    look = "height: .7em; border-radius: 4px; background:"
    bar = (
        f'<div style="width: 12em; {look} rgba(128, 128, 128, .25)">'
        f'<div style="width: {task.percentage:.1f}%; {look} #0072b2"></div></div>'
    )
    cells = (task.description, bar, f"{_done(task)}{eta}", task.fields["latest"])
    text = [cell if cell is bar else html.escape(str(cell)) for cell in cells]
    row = "".join(f'<td style="text-align: left; padding: .1em 1em .1em 0">{cell}</td>' for cell in text)
    return f'<tr style="background: none">{row}</tr>'


class NotebookCell:
    """An output of a notebook that is drawn again; it needs IPython but no widgets.

    Parameters
    ----------
    content : callable
        Returns the HTML to draw.
    """

    def __init__(self, content: Callable[[], str]) -> None:
        self._content = content
        self._handle: Any = None
        self._drawn = 0.0

    def draw(self, at_once: bool = False) -> None:
        """Draw again, unless it was drawn a moment ago."""
        if not at_once and time.monotonic() - self._drawn < DRAW_EVERY:
            return
        ipython = import_module("IPython.display")  # it has no types

        self._drawn = time.monotonic()
        if self._handle is None:
            self._handle = ipython.display(ipython.HTML(self._content()), display_id=True)
        else:
            self._handle.update(ipython.HTML(self._content()))
