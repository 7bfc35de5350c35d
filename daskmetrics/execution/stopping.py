"""Signals that stop a run, and the same for a run in another thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_STOPS: dict[int, Callable[[bool], None]] = {}  # of threads that drive a run, by their identity


def stop_thread(thread: int | None) -> bool:
    """Stop the run that a thread drives, as SIGTERM does in the main thread.

    Returns whether it drives one now.
    """
    on_stop = _STOPS.get(thread or 0)
    if on_stop:
        on_stop(False)
    return on_stop is not None


@contextmanager
def stop_signals(on_stop: Callable[[bool], None]) -> Iterator[None]:
    """Within the block, the first stop signal calls ``on_stop``.

    The next one raises `KeyboardInterrupt`.

    It is called with True if a user at a terminal asked (Ctrl-C), who can ask again; with False if
    a program did (SIGTERM, SIGHUP, or SIGINT without a terminal). Ignored signals stay ignored,
    because ``nohup`` and background jobs of a shell rely on it. Another thread than the main one
    receives no signals: `stop_thread` stands for them there.
    """
    if threading.current_thread() is not threading.main_thread():
        _STOPS[threading.get_ident()] = on_stop
        try:
            yield
        finally:
            del _STOPS[threading.get_ident()]
        return
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        on_stop(number == signal.SIGINT and os.isatty(0))

    before = {number: signal.getsignal(number) for number in SIGNALS}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in ours:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number] or signal.SIG_DFL)
