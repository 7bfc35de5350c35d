"""Whether another machine sees a folder: a file written on one side must appear on the other."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# seconds for a file to appear on the other machine: network file systems cache its absence
VISIBLE_WITHIN = 30.0


@contextmanager
def marker(folder: Path) -> Iterator[tuple[Path, str]]:
    """A new file in a folder, and its content.

    A machine that sees both shares the folder.
    """
    text = secrets.token_hex(8)
    file = folder.absolute() / f".selftest-{text}"
    file.write_text(text)
    try:
        yield file, text
    finally:
        file.unlink(missing_ok=True)


def appears(path: Path, text: str) -> bool:
    """Whether a file appears with its content within some seconds."""
    deadline = time.monotonic() + VISIBLE_WITHIN
    while time.monotonic() < deadline and path.parent.is_dir():
        if path.is_file() and path.read_text() == text:
            return True
        list(path.parent.iterdir())  # makes NFS look again
        time.sleep(0.1)
    return False
