"""Progress of a run on the user's screen: bars in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

from rich import progress
from rich.console import Console
from rich.markup import escape
from rich.table import Column
from rich.text import Text

from daskmetrics.core.table import printable

LINE_EVERY = 60.0  # seconds between plain lines where there is no terminal
DRAW_EVERY = 0.5  # seconds between two drawings in a notebook
MESSAGES = 5  # the latest that a notebook shows
WIDE = 110  # characters of a terminal that has room for long bars


class Display:
    """Progress of the phases of a run.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write; by default standard error. A notebook gets one output that changes, and
        needs no widgets.
    on_change : callable, optional
        Called after every change in place of showing anything.
    """

    def __init__(
        self, console: Console | None = None, on_change: Callable[[], None] | None = None
    ) -> None:
        self.console = console or Console(stderr=True, quiet=on_change is not None)
        self.messages: deque[str] = deque(maxlen=MESSAGES)
        self._cell: NotebookCell | None = None
        self._on_change = on_change or (lambda: None)
        if self.console.is_jupyter and on_change is None:
            self._cell = NotebookCell(self.as_html)
            self._on_change = self._cell.draw
        bar_width = 28 if self.console.width >= WIDE else 10
        unwrapped = Column(no_wrap=True)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<9}"),
            progress.BarColumn(bar_width=bar_width, table_column=unwrapped),
            progress.TextColumn(
                "{task.completed:3.0f} {task.fields[unit]}", table_column=unwrapped
            ),
            progress.TimeElapsedColumn(table_column=unwrapped),
            progress.TextColumn("eta"),
            _TimeLeftColumn(table_column=unwrapped),
            _LatestColumn("[dim]{task.fields[latest]}", table_column=Column()),
            console=self.console,
            speed_estimate_period=3600,  # half a minute would miss the slow units
            disable=not self.console.is_terminal or self.console.is_jupyter,
        )
        self._tasks: dict[str, progress.TaskID] = {}
        self._started = self._printed = time.monotonic()

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._bars.stop()
        if self._cell:
            self._cell.draw(at_once=True)

    def message(self, text: str) -> None:
        """Print a line above the bars."""
        text = printable(text, "\n")
        if self._cell is None:
            self.console.print(text, highlight=False, soft_wrap=True)
        self.messages.append(Text.from_markup(text).plain)
        self._on_change()

    def say(self, text: str) -> None:
        """Print a line whose brackets are no markup."""
        self.message(escape(text))

    def phase(self, name: str, total: float, done: int = 0, unit: str = "") -> None:
        """Begin a phase of ``total`` units, of which ``done`` are complete.

        ``unit`` says of what, if not of work.

        A phase that begins again takes its bar over.
        """
        unit = unit or f"of {total:.0f}"
        if name in self._tasks:
            self._bars.reset(self._tasks[name], total=total, completed=done, latest="", unit=unit)
        elif total:
            self._tasks[name] = self._bars.add_task(
                name, total=total, completed=done, latest="", unit=unit, left=None
            )
        self._on_change()

    def finish(self, name: str) -> None:
        """End a phase that may need less than its total.

        What was done is all.
        """
        if name in self._tasks:
            task_id = self._tasks[name]
            self._bars.update(task_id, total=self._bars.tasks[task_id].completed)
            self._on_change()

    def advance(
        self, name: str, latest: str, to: float | None = None, left: float | None = None
    ) -> None:
        """Advance a phase by one unit, or to ``to`` of its total.

        ``latest`` describes the result. ``left`` are the seconds that the rest takes, where that is
        known better than from the units until now.
        """
        if name not in self._tasks:
            return
        latest = printable(latest, "\n")
        begins = not any(task.completed for task in self._bars.tasks)
        step = 1 if to is None else None
        number = self._tasks[name]
        self._bars.update(number, latest=latest, advance=step, completed=to, left=left)
        task = self._bars.tasks[number]
        clock = time.monotonic()
        # without bars: a plain line for the first and the last unit of a phase, and now and then
        is_due = begins or task.finished or clock - self._printed > LINE_EVERY
        if is_due and not self.console.is_terminal and self._cell is None:
            self._printed = clock
            line = f"{clock - self._started:5.0f} s  {name}: {self.phases[name]}"
            seconds = seconds_left(task)
            if seconds is not None and not task.finished:
                line += f"  eta {seconds:.0f} s"
            self.console.print(f"{line}  {latest}", highlight=False, soft_wrap=True)
        self._on_change()

    @property
    def phases(self) -> dict[str, str]:
        """How far every phase is: ``30 of 99``, or ``82 % of budget`` of a unit in percent."""
        return {
            task.description: f"{task.completed:.0f} {task.fields['unit']}"
            for task in self._bars.tasks
        }

    def as_html(self) -> str:
        """Bars and latest messages for a notebook."""
        console = Console(
            record=True, file=io.StringIO(), width=WIDE, force_terminal=True, force_jupyter=False
        )
        for text in self.messages:
            console.print(Text(text))
        console.print(self._bars.get_renderable())
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def seconds_left(task: progress.Task) -> float | None:
    """How long a phase still takes, None before that can be said."""
    left: float | None = task.fields["left"]
    return left or task.time_remaining


class _TimeLeftColumn(progress.ProgressColumn):
    max_refresh = 0.5

    def render(self, task: progress.Task) -> Text:
        seconds = seconds_left(task)
        text = "-:--:--" if seconds is None else str(timedelta(seconds=round(seconds)))
        return Text(text, style="progress.remaining")


class _LatestColumn(progress.TextColumn):
    """The latest result, the only column that a narrow terminal shortens."""

    def render(self, task: progress.Task) -> Text:
        text = super().render(task)
        text.no_wrap = True
        text.overflow = "ellipsis"
        return text


class NotebookCell:
    """An output of a notebook that is drawn again.

    It needs IPython but no widgets.

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
        content = ipython.HTML(self._content())
        self._drawn = time.monotonic()
        if self._handle is None:
            self._handle = ipython.display(content, display_id=True)
        else:
            self._handle.update(content)
