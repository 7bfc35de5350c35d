"""How long `daskmetrics runs serve` takes to list many runs: read for the first time, and again when
none has changed.

python -m benchmarks.serve runs/demo              200 copies of a run
python -m benchmarks.serve runs/demo --runs 20    fewer
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daskmetrics.core.files import RunFolder
from daskmetrics.report.server import RunCollection


def measure(run: Path, runs: int) -> dict[str, float]:
    """Seconds of the first and of the second list, and of the list after one run has changed."""
    with tempfile.TemporaryDirectory() as place:
        for number in range(runs):
            copy = RunFolder(Path(place) / f"run-{number}")
            copy.path.mkdir()
            for path in (copy.journal, copy.config):
                shutil.copy(run / path.name, path)
        listed = RunCollection(Path(place))
        first = _timed(lambda: _complete(listed, runs))
        again = _timed(lambda: _complete(listed, runs))
        RunFolder(Path(place) / "run-0").journal.touch()
        changed = _timed(lambda: _complete(listed, runs))
    return {"first": first, "again": again, "one changed": changed}


def _complete(listed: RunCollection, runs: int) -> None:
    rows = listed.rows()
    assert len(rows) == runs and not any("problem" in row for row in rows)


def _timed(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--runs", type=int, default=200)
    wanted = parser.parse_args()
    for name, seconds in measure(wanted.run, wanted.runs).items():
        print(f"{wanted.runs} runs, {name:<12} {1e3 * seconds:10,.1f} ms of a core")


if __name__ == "__main__":
    main()
