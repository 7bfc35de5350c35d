"""A watch and a training whose worker, driver or threads are ended: they end with code 0 once all is
recorded, or say why not, and the same command heals it.
"""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import yaml

from daskmetrics.checkpoints.folders import FINISHED
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from tests.cli.calling import a_worker, process, wait_until
from tests.experiment.loop import network, save

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

STEPS = (0, 1, 2)
BEGUN = {"watch": 1, "train": 4}  # checkpoints that are done when the strike comes
TRAIN = {"heads": 2, "vocabulary": 300, "context": 32, "width": 16, "depth": 2}
#: the command; a file names the thread that is ended by an error
STRUCK = """
import ctypes, pathlib, sys, threading, time
from daskmetrics.cli import main
from daskmetrics.experiment import watch
watch.POLL, watch.SETTLE = 0.2, 0.5
def strike():
    file = pathlib.Path("strike")
    while not (file.exists() and file.read_text()):
        time.sleep(0.1)
    for thread in threading.enumerate():
        if thread.name.startswith(file.read_text()):
            end = ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), end)
threading.Thread(target=strike, daemon=True).start()
sys.argv[0] = "daskmetrics"
main()
"""


class Work:
    """A folder with checkpoints to watch, or two suites to train."""

    def __init__(self, folder: Path, verb: str) -> None:
        self.folder = folder
        self.verb = verb  # of our command: ``watch`` or ``train``
        recipe = {**TRAIN, "steps": 400, "ranks": 2}
        models = {
            "watch": [{"name": "m", "source": str(folder / "out")}],
            "train": [{"name": name, "train": recipe} for name in "mn"],
        }
        config = {
            "name": "w",
            "models": models[verb],
            "corpus": {"prompts": 8},
            "metrics": ["prompt_entropy"],
            "tasks": ["stdlib:package"],
            "cluster": {"workers": 2},
            "ddp": {"folder": str(folder / "suites")},
        }
        (folder / "w.yaml").write_text(yaml.safe_dump(config))

    def save(self, *steps: int) -> None:
        model = network()
        for step in steps:
            model.gpt_neox.embed_in.weight.data += step  # other weights
            save(model, self.folder / "out" / f"step{step}")

    def start(self) -> AbstractContextManager[subprocess.Popen[str]]:
        folder = {"watch": ["--folder", "run"], "train": []}[self.verb]
        return process(self.folder, "-c", STRUCK, self.verb, "w.yaml", *folder)

    @property
    def done(self) -> Counter[str]:
        """How often each checkpoint was measured, or trained."""
        if self.verb == "train":
            return Counter(
                path.parent.name for path in self.folder.glob("suites/*/*/training.json")
            )
        entries = read(self.folder / "run" / "journal.jsonl")
        records = (entry for entry in entries if isinstance(entry, Record))
        return Counter(record.name for record in records if record.kind == "measure")


def strike(driver: subprocess.Popen[str], what: str, folder: Path) -> None:
    """End a worker of a driver, a thread in it, or itself by a signal."""
    if what == "a worker":
        a_worker(driver).kill()
    elif what.startswith("SIG"):
        driver.send_signal(getattr(signal, what))
    else:
        (folder / "strike").write_text(what)


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("watch", "a worker"),
        ("watch", "SIGKILL"),
        ("train", "SIGTERM"),
        ("train", "IO loop"),
        ("train", "Dask-Offload"),
    ],
)
def test_a_strike_is_survived_or_said_and_healed(tmp_path, verb, what):
    work = Work(tmp_path, verb)
    work.save(STEPS[0])
    with work.start() as driver:
        wait_until(lambda: len(work.done) >= BEGUN[verb], driver)
        strike(driver, what, tmp_path)
        work.save(*STEPS[1:])
        (tmp_path / "out" / FINISHED).touch()
        _, said = driver.communicate(timeout=400)
        code = driver.returncode
    assert bool(code) == (what != "a worker"), said
    if code and what != "SIGKILL":
        assert any(line.startswith(("Error: ", "Stopped. ")) for line in said.splitlines()), said
    (tmp_path / "strike").unlink(missing_ok=True)
    if code:
        with work.start() as driver:
            _, said = driver.communicate(timeout=400)
            assert driver.returncode == 0, said
    if verb == "train":
        assert work.done["step400"] == 2
    else:
        assert work.done == dict.fromkeys((f"m@step{step}" for step in STEPS), 1)
