"""A watch as a user runs it: real training processes, killed and restarted, and a real Trainer."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib  # noqa: F401  a signal while `on_round` imports it would leave half of it
import pytest
import yaml
from click.testing import CliRunner

import daskmetrics as dm
from daskmetrics.checkpoints.arrivals import Arrivals, Follower
from daskmetrics.checkpoints.folders import FINISHED
from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError, DaskmetricsError, DataError, LockedError
from daskmetrics.domain.record import Record
from daskmetrics.execution.journal import read
from daskmetrics.execution.map.function import load
from daskmetrics.experiment import watch as watching
from daskmetrics.report.explanation import explain_tables
from daskmetrics.training.progress import PIPE
from tests.experiment import loop

LOOP = Path(loop.__file__)
GIVEN = {
    "name": "watched",
    "corpus": {"prompts": 8},
    "metrics": ["prompt_entropy"],
    "tasks": ["stdlib:package"],
    "search": {"budget": 0.7},
    "cluster": {"workers": 1},
}

#: the command, which looks at folders more often
OFTEN = """
from daskmetrics.experiment import watch
watch.POLL, watch.SETTLE = 0.2, 0.5
from daskmetrics.cli import main
main()
"""

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.timeout(1500),  # on a busy machine a process that imports torch takes a minute
]


def start(place: Path, *words: str) -> subprocess.Popen[bytes]:
    with (place / "output.txt").open("ab") as output:
        return subprocess.Popen([sys.executable, *words], cwd=place, stdout=output, stderr=output)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def until(condition, seconds: float = 400.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def events(run: Path, kind: str = "") -> list[dict]:
    file = run / "events.jsonl"
    # the last line may be being written
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    lines = [json.loads(line) for line in whole.splitlines()]
    return [line for line in lines if kind in ("", line["event"])]


def recorded(run: Path, kind: str) -> Counter[str]:
    """How often each unit of a kind stands in the journal."""
    records = [entry for entry in read(run / "journal.jsonl") if isinstance(entry, Record)]
    return Counter(record.name for record in records if record.kind == kind)


def measured(run: Path) -> Counter[str]:
    """How often each checkpoint was measured."""
    return recorded(run, "measure")


@pytest.fixture
def often(monkeypatch):
    """Watches of this process look at folders more often."""
    monkeypatch.setattr(watching, "POLL", 0.2)
    monkeypatch.setattr(watching, "SETTLE", 0.5)


@pytest.fixture
def interruptible():
    """SIGTERM interrupts this process, as it does the command."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


def test_killed_watches_measure_each_checkpoint_once(tmp_path, client, often):
    run, out = tmp_path / "runs" / "watched", tmp_path / "out"
    training = (str(LOOP), "out", "60", "15", "0.1")
    trainer = start(tmp_path, *training)
    until(lambda: (out / "step30").exists())
    kill(trainer)
    shutil.rmtree(out / "step30")
    shutil.copytree(out / "step15", out / "step30")
    os.truncate(out / "step30" / "model.safetensors", 5000)  # killed while it saves
    wanted = {**GIVEN, "models": [{"name": "out", "source": str(out)}]}
    (tmp_path / "watch.yaml").write_text(yaml.safe_dump(wanted))
    watcher = start(tmp_path, "-c", OFTEN, "watch", "watch.yaml")
    until(lambda: recorded(run, "score"))
    kill(watcher)
    before = measured(run)
    assert before and "out@step30" not in before
    trainer = start(tmp_path, *training)
    finished = dm.watch(wanted, folder=run, client=client)
    assert trainer.wait(60) == 0
    assert measured(run) == dict.fromkeys((f"out@step{step}" for step in range(0, 61, 15)), 1)
    assert before < measured(run)
    assert events(run)[-1]["reason"] == "the training has finished"
    last, best = events(run, "updated")[-1], finished.best()
    score = finished.recorded[best.arm]["stdlib:package"]
    assert last["best"]["arm"] == str(best.arm)
    assert (last["best"]["score"], last["best"]["stderr"]) == (score.score, score.stderr)
    assert 0 <= last["rise"]["probability"] <= 1 and last["rise"]["steps"] == [75, 90, 105]
    assert last["text"] in (run / "report" / "index.html").read_text().replace("&#39;", "'")
    assert finished.finished
    assert set(recorded(run, "score").values()) == {1}


def test_a_stopped_watch_goes_on_without_a_deleted_checkpoint(
    tmp_path, client, often, interruptible
):
    run, out = tmp_path / "run", tmp_path / "out"
    wanted = {**GIVEN, "search": {"budget": 1.0}}
    for step in (0, 1, 2):
        loop.save(loop.network(), out / f"step{step}")
        with (out / f"step{step}" / "config.json").open("a") as file:
            file.write(" " * step)  # three contents

    def stop() -> None:
        until(lambda: events(run, "updated"))
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        dm.watch(wanted, models=[out], folder=run, client=client)
    assert events(run)[-1]["event"] == "stopped"
    shutil.rmtree(out / "step0")
    dm.watch(wanted, models=[out], folder=run, client=client, until_idle="100ms")
    assert measured(run) == {"out@step0": 1, "out@step1": 1, "out@step2": 1}
    assert events(run)[-1]["reason"] == "no new checkpoint for 0.1 s"
    assert [event["checkpoints"] for event in events(run, "updated")] == [3, 2]
    assert [event["checkpoint"] for event in events(run, "gone")] == ["out@step0"]
    assert dm.open(run).best().arm.revision != "step0"
    with pytest.raises(ConfigError, match="'out@step0' is no checkpoint of this run any more"):
        explain_tables(dm.open(run), "out@step0/1")
    # the forecast still has the scores of the deleted one: two would be too few for any
    assert all(event["rise"] for event in events(run, "updated"))

    shutil.copytree(out / "step1", out / "step0")  # it is complete once more
    dm.watch(wanted, models=[out], folder=run, client=client, until_idle="100ms")
    complete = Counter(event["checkpoint"] for event in events(run, "checkpoint"))
    assert complete == {"out@step0": 2, "out@step1": 1, "out@step2": 1}
    assert len(events(run, "gone")) == 1


def test_a_checkpoint_that_is_written_again_was_not_deleted(tmp_path, client, often, capsys):
    run, out = tmp_path / "run", tmp_path / "out"
    for step in (0, 1):
        loop.save(loop.network(), out / f"step{step}")

    def write_again() -> None:
        until(lambda: events(run, "updated"))
        with (out / "step1" / "config.json").open("a") as file:
            file.write(" ")

    threading.Thread(target=write_again).start()
    dm.watch(GIVEN, models=[out], folder=run, client=client, until_idle="2s")
    assert measured(run)["out@step1"] == 2
    assert not events(run, "gone")
    output = capsys.readouterr()
    assert "out@step1 is written again" in output.out + output.err


def test_a_stop_signal_in_the_garbage_collector_is_not_lost(tmp_path, monkeypatch, interruptible):
    def stop(phase: str, info: dict) -> None:
        gc.callbacks.remove(stop)
        os.kill(os.getpid(), signal.SIGTERM)

    def look(follower: Follower, now: float) -> Arrivals:
        gc.callbacks.append(stop)
        gc.collect()
        return Arrivals({}, {}, finished=False, changed=0.0)

    monkeypatch.setattr(Follower, "look", look)
    with pytest.raises(KeyboardInterrupt):
        dm.watch(models=[tmp_path / "out"], folder=tmp_path / "run", until_idle="1s")
    assert [event["event"] for event in events(tmp_path / "run")] == ["started", "stopped"]


def test_a_watch_that_finds_no_checkpoint_was_not_killed(tmp_path):
    with pytest.raises(DataError, match="ended before its first checkpoint was measured"):
        dm.watch(models=[tmp_path / "out"], folder=tmp_path / "run", until_idle="100ms")


def test_a_trainer_does_not_wait_for_scores(tmp_path, monkeypatch):
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate (extra 'dev')")
    from datasets import Dataset
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    tokenizer = loop.tokenizer()
    rows = dict(tokenizer(list(loop.TEXTS[:32]), truncation=True, max_length=16))
    run, out = tmp_path / "run", tmp_path / "fine-tuned"
    scoring = dm.WatchCallback(GIVEN, folder=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and accelerate, about missing devices
        trainer = Trainer(
            model=loop.network(),
            args=TrainingArguments(
                out,
                max_steps=6,
                save_steps=2,
                logging_steps=2,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_dict(rows),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
            processing_class=tokenizer,
        )
        trainer.add_callback(scoring)
        trainer.add_callback(dm.ProgressCallback())
        reading, writing = os.pipe()
        monkeypatch.setenv(PIPE, str(writing))  # as for a program that `train` started
        trainer.train()
        os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as lines:
        reports = [json.loads(line) for line in lines]
    assert reports[-1].items() >= {"step": 6, "total": 6, "samples": 48.0}.items()
    assert any(fact.get("loss", 0) > 0 for fact in reports)
    assert (out / FINISHED).exists()

    background = scoring.watching
    with pytest.raises(TimeoutError, match="still goes on"):
        background.wait(0.01)
    until(lambda: events(run, "started"))
    # a training that starts again leaves the work to the watch that goes on
    again = dm.watch(GIVEN, models=[out], folder=run, background=True)
    assert background.running and again.running
    with pytest.raises(TimeoutError, match="still goes on"):
        again.wait(0.01)
    with pytest.raises(LockedError, match="goes on as process"):
        again.stop()
    background.wait(400)
    assert not background.running and not again.running
    assert measured(run) == {f"fine-tuned@checkpoint-{step}": 1 for step in (2, 4, 6)}
    assert dm.open(run).best().load().encode(["a text"]).shape == (1, 16)


def test_a_watch_that_fails_says_why(tmp_path):
    loop.save(loop.network(), tmp_path / "out" / "step0")
    config = tmp_path / "out" / "step0" / "config.json"
    config.write_text('{"model_type": "nothing", "vocab_size": 3}')
    with (
        pytest.raises(DaskmetricsError, match=r"config\.json"),
        dm.watch(models=[tmp_path / "out"], folder=tmp_path / "run", background=True),
    ):
        pass


@pytest.mark.parametrize(
    ("begin", "models", "text"),
    [
        (dm.watch, [{"name": "a", "train": {"width": 16, "steps": 2}}], "has no 'source'"),
        (dm.watch, [{"encoder": "own.py:vit"}], "'vit' has no 'checkpoints', and a watch follows"),
        (dm.watch, ["lab/model"], "a watch follows a folder, and 'lab/model' is none here"),
        (dm.WatchCallback, ["./out"], "leave it out"),
    ],
)
def test_what_a_watch_cannot_follow_is_an_error_at_once(tmp_path, begin, models, text):
    with pytest.raises(ConfigError, match=text):
        begin(models=models, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# a training and an encoder of a user's own
OWN = """
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch


def letters(checkpoint, device):
    weight = torch.load(checkpoint)["weight"].numpy()
    def encode(texts):
        counts = np.array([[text.count(letter) for letter in "etaoinsr(=_"] for text in texts])
        return {"counts": counts + 0.0, "mixed": counts @ weight}
    return encode


def save(step):
    torch.manual_seed(step)
    torch.save({"weight": torch.randn(11, 4)}, "whole")
    whole = Path("whole").read_bytes()
    with open(f"out/step{step}.pth", "wb") as file:
        file.write(whole[:900])
        file.flush()
        if step == 30 and len(sys.argv) == 1:
            os.kill(os.getpid(), 9)  # while it saves
        time.sleep(1.5)  # longer than a file has to be at rest
        file.write(whole[900:])


if __name__ == "__main__":
    Path("out").mkdir(exist_ok=True)
    for step in map(int, sys.argv[1:] or (10, 20, 30)):
        save(step)
"""


def test_a_watch_of_an_encoder_scores_each_new_file_once(tmp_path, monkeypatch):
    run, out = tmp_path / "runs" / "watched", tmp_path / "out"
    (tmp_path / "own.py").write_text(OWN)
    model = {"name": "own", "encoder": "own.py:letters", "checkpoints": "out/*.pth"}
    wanted = {**GIVEN, "models": [model], "search": {"budget": 1.0}}
    del wanted["metrics"]
    (tmp_path / "watch.yaml").write_text(yaml.safe_dump(wanted))
    watch = ("-c", OFTEN, "watch", "watch.yaml")
    watcher = start(tmp_path, *watch)
    until(lambda: events(run, "started"))
    assert start(tmp_path, "own.py").wait(400) == -signal.SIGKILL
    until(lambda: {"own@step20/1:stdlib:package"} <= set(recorded(run, "score")))
    kill(watcher)
    assert "own@step30 cannot be read yet: step30.pth is not complete" in re.sub(
        r"\s+", " ", (tmp_path / "output.txt").read_text()
    )
    assert not any("step30" in name for name in recorded(run, "score"))
    watcher = start(tmp_path, *watch)
    assert start(tmp_path, "own.py", "30", "45").wait(400) == 0
    until(lambda: {"own@step45/1:stdlib:package"} <= set(recorded(run, "score")))
    for step in (10, 20):
        (out / f"step{step}.pth").unlink()
    until(lambda: len(events(run, "gone")) == 2)
    (out / FINISHED).touch()
    assert watcher.wait(400) == 0, (tmp_path / "output.txt").read_text()

    names = (
        f"own@step{step}/{layer}:stdlib:package" for step in (10, 20, 30, 45) for layer in (0, 1)
    )
    assert recorded(run, "score") == dict.fromkeys(names, 1)
    assert events(run)[-1]["reason"] == "the training has finished"
    assert {event["checkpoint"] for event in events(run, "gone")} == {"own@step10", "own@step20"}
    # at the distance of all four: the two that are left are 15 steps apart
    assert events(run, "updated")[-1]["rise"]["steps"] == [55, 65, 75]
    monkeypatch.chdir(tmp_path)
    direct = dm.layers(
        dm.Encoder(load("own.py:letters"), "out/*.pth", name="own"), ["stdlib:package"]
    ).to_frame()
    board = dm.open(run).leaderboard().to_frame()
    shown = ["checkpoint", "layer", "mean"]
    assert sorted(board[shown].values.tolist()) == sorted(direct[shown].values.tolist())


SCRIPT = {"script": str(LOOP), "args": ["out", 20, 10, 0.1], "checkpoints": "out/step*"}

# it goes on until the first checkpoint was measured
PROGRAM = f"""
import pathlib, runpy, time
runpy.run_path({str(LOOP)!r}, run_name="__main__")
pathlib.Path("starts").open("a").write("start ")
end = time.monotonic() + 300
while time.monotonic() < end and not pathlib.Path("go").exists():
    time.sleep(0.1)
pathlib.Path("ended").touch()
"""


def test_checkpoints_of_a_program_are_measured_meanwhile(tmp_path, client, often, monkeypatch):
    """A worker that does not train measures; a program that has ended is not started again."""
    run = tmp_path / "run"
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    models = [{"name": "mine", "train": {**SCRIPT, "script": "program.py"}}]
    wanted = {**GIVEN, "models": models, "cluster": {"workers": 2}}
    with ThreadPoolExecutor(1) as pool:
        driver = pool.submit(dm.run, wanted, folder=run, client=client)
        until(lambda: events(run, "updated") or driver.done())
        assert not (tmp_path / "ended").exists(), "it was measured once the training had ended"
        assert not events(run, "trained")
        (tmp_path / "go").touch()
        driver.result(400)
    assert measured(run) == {f"mine@step{step}": 1 for step in (0, 10, 20)}
    dm.run(wanted, folder=run, client=client)
    assert (tmp_path / "starts").read_text() == "start " and len(events(run, "trained")) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"script": "gone.py"}, "no program 'gone.py' is here"),
        ({"script": "gone"}, "neither a Python file nor a command"),
        ({"ranks": 3}, "3 ranks, and the cluster 1 workers"),
        ({"checkpoints": None}, "needs the place of its checkpoints"),
        ({"checkpoints": "out/*/step"}, "then a name with \\* for the step"),
        ({"steps": 5}, "steps"),
    ],
)
def test_a_program_that_cannot_start_is_refused_at_once(tmp_path, change, text):
    wanted = {**GIVEN, "models": [{"name": "mine", "train": {**SCRIPT, **change}}]}
    with pytest.raises(ConfigError, match=text):
        dm.run(wanted, folder=tmp_path / "run")
    (tmp_path / "mine.yaml").write_text(json.dumps(wanted))
    words = ["run", str(tmp_path / "mine.yaml"), "--folder", str(tmp_path / "run")]
    assert re.search(text, CliRunner().invoke(main, words).output)
    assert not (tmp_path / "run").exists()
