"""The start of a rank: ``python -m daskmetrics.training._rank WORDS``.

The words are a Python file, or ``-m`` and a module, and its arguments; or any other command. A
Python program runs in this process as its ``__main__``. The rank ends when its parent process ends.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from daskmetrics.core.errors import DaskmetricsError
from daskmetrics.domain.training import Cause
from daskmetrics.training.progress import report

# the same error would occur again
PERMANENT = (DaskmetricsError, SyntaxError, ImportError)
USAGE = "SystemExit: 2"  # of a program that does not understand its arguments
_PR_SET_PDEATHSIG = 1


def main(words: Sequence[str]) -> None:
    """Run the program, and report its error.

    That is before the connections to other ranks close, so that theirs come later.
    """
    # the kernel kills this process when its worker ends, even if this process is stopped
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)
    # workers block or ignore the Ctrl-C of a terminal, which does not reach a rank
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if words[0] != "-m" and not words[0].endswith(".py"):
        os.execvp(words[0], list(words))
    try:
        _run(words)
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        cause = Cause.ERROR
        # torch's own errors of a connection, and gloo's, follow from what happened to another rank
        if type(error).__name__.startswith("Dist") or "gloo" in str(error):
            cause = Cause.PARTNER
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        permanent = isinstance(error, PERMANENT) or reason == USAGE
        report(cause=cause, reason=reason, permanent=permanent, since=time.time())
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # threads that wait for the other ranks would keep the process alive


def _run(words: Sequence[str]) -> None:
    """Run a file or a module as Python itself would."""
    run: Callable[..., object] = runpy.run_path
    folder = Path(words[0]).resolve().parent
    if words[0] == "-m":
        words = words[1:]
        run = partial(runpy.run_module, alter_sys=True)
        folder = Path.cwd()
    sys.argv = list(words)
    # files beside a user's program count before Python's own; the built-in one has none beside it
    if not words[0].startswith("daskmetrics."):
        sys.path.insert(0, str(folder))
    run(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
