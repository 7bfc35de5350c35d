"""What Ctrl-C and its like mean: once to finish what is running, twice to stop now."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def heeding(asked: Callable[[bool], None]) -> Iterator[None]:
    """Within, the first signal calls ``asked`` and the next one raises `KeyboardInterrupt`.

    Signals that are ignored stay ignored, as ``nohup`` and shells that start something in the background mean it.
    Outside of the main thread, where signals do not arrive, this does nothing.

    Parameters
    ----------
    asked : callable
        Called with True if a user at a terminal asked (Ctrl-C), who can ask again; False if a program did (SIGTERM,
        SIGHUP, or SIGINT without a terminal).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard:
            raise KeyboardInterrupt
        heard.append(number)
        asked(number == signal.SIGINT and os.isatty(0))

    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in ours:
        signal.signal(number, hear)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number] or signal.SIG_DFL)
