"""Progress of a run on the user's screen: bars in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import time

from rich import progress
from rich.console import Console

from daskmetrics.execution import Record

LINE_EVERY = 60.0  # seconds between plain lines where there is no terminal


class Display:
    """Progress of the phases of a run.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write; by default standard error.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self.live = self.console.is_terminal or self.console.is_jupyter
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<9}"),
            progress.BarColumn(bar_width=28),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("eta"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("[dim]{task.fields[latest]}"),
            console=self.console,
            disable=not self.live,
        )
        self._tasks: dict[str, progress.TaskID] = {}
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._bars.stop()

    def message(self, text: str) -> None:
        """Print a line above the bars."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def phase(self, name: str, total: float, done: int = 0) -> None:
        """Begin a phase of ``total`` units, of which ``done`` are complete."""
        if total:
            self._tasks[name] = self._bars.add_task(name, total=total, completed=done, latest="")

    def advance(self, name: str, latest: str, to: float | None = None) -> None:
        """Advance a phase by one unit, or to ``to`` of its total; ``latest`` describes the result."""
        if name not in self._tasks:
            return
        first = not any(task.completed for task in self._bars.tasks)
        self._bars.update(self._tasks[name], latest=latest, advance=1 if to is None else None, completed=to)
        task = self._bars.tasks[self._bars.task_ids.index(self._tasks[name])]
        if not self.live and (first or task.finished or time.monotonic() - self._last_line > LINE_EVERY):
            self._last_line = time.monotonic()
            elapsed = self._last_line - self._started
            left = "" if task.finished or task.time_remaining is None else f"  eta {task.time_remaining:.0f} s"
            self.message(f"{elapsed:5.0f} s  {name}: {task.completed:.0f} of {task.total:.0f}{left}  {latest}")


def record_text(record: Record) -> str:
    """A record in a few words: its name and its first values."""
    if not record.ok:
        return f"{record.name}  {record.status}"
    if record.kind == "train":
        return f"{record.name}  loss {record.value['loss']:.2f}"
    if record.kind in ("score", "fresh"):
        return f"{record.name}  {record.value['score']:.3f}"
    last = list(zip(record.value["names"], record.value["values"][-1], strict=True))
    return "  ".join([record.name, *(f"{name} {number:.3g}" for name, number in last[:2] if number is not None)])
