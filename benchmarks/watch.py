"""A training that writes checkpoints, a watch beside it, and both killed once with ``kill -9`` and
started again.

``python benchmarks/watch.py FOLDER`` prints what happened when, and how often each checkpoint was
measured and each cell scored, counted in the journal. `tests/experiment/test_watch.py` does the
same in small.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read

LOOP = Path(__file__).parent.parent / "tests" / "experiment" / "loop.py"
STEPS, EVERY, PAUSE, WIDTH = 300, 25, 0.25, 64  # about two minutes on one core
CONFIG = """
name: training
models: [./out]
tasks: ["stdlib:order", "stdlib:package"]
corpus: {prompts: 16}
search: {budget: 0.5}
cluster: {workers: 1}
"""


def start(place: Path, log: str, *words: str) -> subprocess.Popen[bytes]:
    with (place / log).open("ab") as output:
        return subprocess.Popen([sys.executable, *words], cwd=place, stdout=output, stderr=output)


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def main(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "watch.yaml").write_text(CONFIG)
    training = ("training.log", str(LOOP), "out", str(STEPS), str(EVERY), str(PAUSE), str(WIDTH))
    watch = ("watch.log", "-m", "daskmetrics", "watch", "watch.yaml")
    began, journal = time.monotonic(), place / "runs" / "training" / "journal.jsonl"

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)

    trainer, watcher = start(place, *training), start(place, *watch)
    until((place / "out" / f"step{3 * EVERY}").exists)
    kill(trainer)
    say(f"the training is killed at step {3 * EVERY}, and started again")
    trainer = start(place, *training)
    until(lambda: journal.exists() and '"kind":"score"' in journal.read_text())
    kill(watcher)
    say("the watch is killed after its first score, and started again")
    watcher = start(place, *watch)
    trainer.wait()
    say("the training has ended")
    say(f"the watch has ended with exit code {watcher.wait()}")
    records = [entry for entry in read(journal) if isinstance(entry, Record)]
    for kind in ("measure", "score"):
        times = Counter(record.name for record in records if record.kind == kind)
        print(
            f"{kind}: {len(times)}, each recorded {' or '.join(map(str, sorted(set(times.values()))))} time"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
