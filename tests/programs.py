"""Programs without ``if __name__ == "__main__":`` as processes of their own, which count how often
they start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_SECONDS = 400.0

COUNT = """
with open("starts", "a") as file:
    file.write("start\\n")
"""
"""What a program does first."""


@dataclass(frozen=True)
class Ended:
    """What a program printed, its exit code, and how often it was started or imported."""

    code: int
    output: str
    errors: str
    starts: int


@dataclass(frozen=True)
class Home:
    """A working folder, and the environment of the programs that run there."""

    folder: Path
    environment: dict[str, str]

    def run(self, *words: str, text: str | None = None) -> Ended:
        """Run Python with these words and this standard input."""
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(text, timeout=MOST_SECONDS)
        finally:
            with suppress(ProcessLookupError):  # all have ended; a program that hangs leaves some
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return Ended(process.returncode, output, errors, self.starts())

    def run_script(self, text: str) -> Ended:
        """Run a program as a file."""
        (self.folder / "script.py").write_text(text, encoding="utf-8")
        return self.run("script.py")

    def starts(self) -> int:
        """How often `COUNT` has run in this folder."""
        return len((self.folder / "starts").read_text(encoding="utf-8").splitlines())
