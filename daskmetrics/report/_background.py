"""A run in the background of a notebook: it goes on in a thread while other cells are run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.execution.display import Display, NotebookCell
from daskmetrics.execution.stopping import stop_thread
from daskmetrics.report._run import Run
from daskmetrics.report.markup import card

POLL = 0.2  # seconds between two attempts to stop


class BackgroundRun:
    """A run that goes on in a background thread.

    Made by `daskmetrics.run` with ``background=True``.

    As a context manager it waits for the end of the run when the block ends, and raises the run's
    error, if any. If the block itself fails, the run is stopped. What is recorded stays: the same
    call resumes a run that was stopped or whose notebook was killed. In a notebook the object is
    shown as a card that changes while the run goes on. Where the cluster lives in the event loop of
    the notebook, use ``async with`` and ``await run``, which do not block it.

    Parameters
    ----------
    drive : callable
        Drives the run to its end, and shows its progress on the display that it gets.
    folder : RunFolder
    given : optional
        The client or cluster of the user, if the run has none of its own.

    Examples
    --------
    >>> with dm.run(background=True) as run:  # doctest: +SKIP
    ...     run.state
    'running: measure 4 of 20'
    >>> run.wait().best()  # doctest: +SKIP
    """

    def __init__(
        self,
        drive: Callable[[Display], object],
        folder: RunFolder,
        given: object = None,
    ) -> None:
        self._folder = folder
        self._drive = drive
        self._given = given
        self._error: BaseException | None = None
        self._cells: list[NotebookCell] = []
        self._display = Display(on_change=self._refresh)
        # a daemon: a notebook that is closed does not wait, and the run can be resumed
        self._thread = threading.Thread(
            target=self._run, name=f"daskmetrics {folder.path}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._display as display:
                self._drive(display)
        except BaseException as error:  # raised again by `wait`
            self._error = error
        for cell in self._cells:
            cell.draw(at_once=True)

    def __enter__(self) -> BackgroundRun:
        self._require_thread()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.stop()
            return
        try:
            self.wait()
        except KeyboardInterrupt:
            self.stop()
            raise

    async def __aenter__(self) -> BackgroundRun:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            await asyncio.to_thread(self.__exit__, kind, error, trace)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.stop)
            raise

    def __await__(self) -> Generator[Any, None, Run]:
        return asyncio.to_thread(self.wait).__await__()

    def _require_thread(self) -> None:
        """Waiting in the event loop that the cluster needs would last for ever."""
        if self._given is None:
            return
        from daskmetrics.execution.runner import needs_this_loop

        if self.running and needs_this_loop(self._given):
            raise ConfigError(
                "The run's cluster lives in this event loop, which waiting would block. Use 'async"
                " with' in place of 'with', 'await run' in place of run.wait(), and: await"
                " asyncio.to_thread(run.stop). The run goes on."
            )

    def __repr__(self) -> str:
        return f"<BackgroundRun {self.folder}: {self.state}>"

    def _repr_html_(self) -> str:
        lines = {"state": self.state, **self.progress}
        if messages := self._display.messages:
            lines["message"] = messages[-1]
        lines["folder"] = str(self.folder)
        return card(self.folder.name, lines.items())

    def _ipython_display_(self) -> None:
        cell = NotebookCell(self._repr_html_)
        cell.draw(at_once=True)
        self._cells.append(cell)

    def _refresh(self) -> None:
        for cell in self._cells:
            cell.draw()

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._folder.path

    @property
    def running(self) -> bool:
        """Whether the run goes on."""
        return self._thread.is_alive()

    @property
    def state(self) -> str:
        """Whether the run is running, finished, stopped or failed."""
        if self.running:
            phases = [f"{name} {done}" for name, done in self.progress.items()]
            return ": ".join(["running", *phases[-1:]])
        if isinstance(self._error, KeyboardInterrupt):
            return "stopped; the same call resumes it"
        if self._error:
            return f"failed: {self._error}"
        return "finished"

    @property
    def progress(self) -> dict[str, str]:
        """How far each phase is, such as ``{'measure': '4 of 20'}``."""
        return self._display.phases

    @property
    def results(self) -> Run:
        """The run as its files are now.

        Raises
        ------
        DataError, ConfigError
            If nothing is recorded yet.
        """
        return Run(self.folder)

    def wait(self, timeout: float | None = None) -> Run:
        """Wait for the end of the run, and open its results.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default as long as it takes.

        Raises
        ------
        TimeoutError
            If the run still goes on.
        DaskmetricsError
            The error of the run.
        KeyboardInterrupt
            If the run was stopped.
        ConfigError
            If waiting would block the event loop that the run's cluster needs: use ``await run``.
        """
        self._require_thread()
        self._thread.join(timeout)
        if self.running:
            raise TimeoutError(f"The run in '{self.folder}' still goes on: {self.state}.")
        if self._error is not None:
            raise self._error
        return self.results

    def stop(self) -> None:
        """Stop the run; what is recorded stays.

        Units that are running have a short time to finish.
        """
        self._require_thread()
        asked = False
        while self.running:
            # between two phases there is nothing to stop yet
            asked = asked or stop_thread(self._thread.ident)
            self._thread.join(POLL)
