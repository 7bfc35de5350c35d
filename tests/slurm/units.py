"""Units that workers import, and a driver that runs them: ``python -m tests.slurm.units FOLDER
SECONDS N``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from daskmetrics import config
from daskmetrics.cluster import connect
from daskmetrics.execution import Journal, Settings, Sweep, WorkUnit, run


def nap(folder: str, seconds: float, number: int) -> int:
    """Record that it runs, sleep, and return its number."""
    with (Path(folder) / "begun").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(seconds)
    return number


def fill(folder: str, mebibytes: int, number: int) -> int:
    """Record that it runs, use this much memory, and return its number."""
    nap(folder, 0.0, number)
    held = bytearray(mebibytes * 2**20)
    held[::4096] = bytes(len(held[::4096])).replace(b"\0", b"1")
    time.sleep(2.0)
    return number


def naps(folder: Path, seconds: float, count: int) -> list[WorkUnit]:
    """``count`` units that take ``seconds`` each."""
    return [
        WorkUnit(f"u{i}", f"u{i}", "nap", nap, (str(folder), seconds, i), resources={"GPU": 1})
        for i in range(count)
    ]


def main() -> None:
    from daskmetrics.cli._common import end_as_by_ctrl_c

    folder, seconds, count = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    profile = config.cluster(json.loads((folder / "profile.json").read_text()))
    end_as_by_ctrl_c()
    with (
        connect(profile, "units", print) as client,
        Journal(folder / "journal.jsonl", folder / "lock") as journal,
    ):
        run(Sweep(naps(folder, seconds, count)), client, journal, Settings())


if __name__ == "__main__":
    main()
