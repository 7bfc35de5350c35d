"""A watch as a user runs it: real training processes, killed and restarted, and a real Trainer."""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
import yaml

import daskmetrics as dm
from daskmetrics.checkpoints.arrivals import FINISHED, Arrivals, Follower
from daskmetrics.core.errors import ConfigError, DaskmetricsError
from daskmetrics.core.events import Record
from daskmetrics.execution.journal import read
from daskmetrics.training.progress import PIPE
from tests.experiment import loop

LOOP = Path(loop.__file__)
CONFIG = {
    "name": "watched",
    "models": [{"name": "out", "source": "./out"}],
    "corpus": {"prompts": 8},
    "metrics": ["prompt_entropy"],
    "tasks": ["stdlib:package"],
    "search": {"budget": 0.7},
    "cluster": {"workers": 1},
}

#: the command, which looks at folders more often
OFTEN = """if True:
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


def watch(place: Path, *words: str) -> subprocess.Popen[bytes]:
    (place / "watch.yaml").write_text(yaml.safe_dump(CONFIG))
    return start(place, "-c", OFTEN, "watch", "watch.yaml", *words)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
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


def measured(run: Path) -> Counter[str]:
    """How often each checkpoint was measured, counted in the journal."""
    records = [entry for entry in read(run / "journal.jsonl") if isinstance(entry, Record)]
    return Counter(record.name for record in records if record.kind == "measure")


def test_training_and_watch_are_killed_and_each_checkpoint_is_measured_once(tmp_path):
    run, out, training = (
        tmp_path / "runs" / "watched",
        tmp_path / "out",
        (str(LOOP), "out", "60", "15", "0.1"),
    )
    trainer = start(tmp_path, *training)
    until(lambda: (out / "step30").exists())
    kill(trainer)
    shutil.rmtree(out / "step30")
    shutil.copytree(out / "step15", out / "step30")
    os.truncate(out / "step30" / "model.safetensors", 5000)  # killed while it saves
    watcher = watch(tmp_path)
    until(lambda: events(run, "scored"))
    kill(watcher)
    before = measured(run)
    assert before and "out@step30" not in before
    trainer, watcher = start(tmp_path, *training), watch(tmp_path)
    assert watcher.wait(400) == 0 and trainer.wait(600) == 0
    assert measured(run) == dict.fromkeys((f"out@step{step}" for step in range(0, 61, 15)), 1)
    assert before < measured(run)
    assert [event["status"] for event in events(run, "measured")] == ["ok"] * 5
    assert events(run)[-1]["reason"] == "the training has finished"
    last = events(run, "updated")[-1]
    best = dm.open(run).best()
    assert last["best"]["arm"] == str(best.arm)
    score = dm.open(run).recorded[best.arm]["stdlib:package"]
    assert (last["best"]["score"], last["best"]["stderr"]) == (score.score, score.stderr)
    assert 0 <= last["rise"]["probability"] <= 1 and last["rise"]["steps"] == [75, 90, 105]
    assert last["text"] in (run / "report" / "index.html").read_text().replace("&#39;", "'")
    assert dm.open(run).finished
    scored = Counter(record.name for record in dm.open(run).records if record.kind == "score")
    assert set(scored.values()) == {1}


def test_a_stopped_watch_goes_on_without_a_deleted_checkpoint(tmp_path):
    run = tmp_path / "runs" / "watched"
    for step in (0, 1, 2):
        loop.save(loop.network(), tmp_path / "out" / f"step{step}")
        with (tmp_path / "out" / f"step{step}" / "config.json").open("a") as file:
            file.write(" " * step)  # three contents
    watcher = watch(tmp_path)
    until(lambda: events(run, "updated"))
    watcher.send_signal(signal.SIGTERM)
    assert watcher.wait(400) == 130
    assert [event["event"] for event in events(run)][-1] == "stopped"
    shutil.rmtree(tmp_path / "out" / "step0")
    with pytest.raises(ConfigError, match="has 'train'"):
        dm.watch(
            models=[{"name": "a", "train": {"width": 16, "depth": 1, "steps": 2}}],
            folder=tmp_path / "other",
        )
    with pytest.raises(ConfigError, match="a watch follows a folder, and 'lab/model' is none here"):
        dm.watch(models=["lab/model"], folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert watch(tmp_path, "--until-idle", "100ms").wait(400) == 0
    assert measured(run) == {"out@step0": 1, "out@step1": 1, "out@step2": 1}
    assert events(run)[-1]["reason"] == "no new checkpoint for 0.1 s"
    assert [event["checkpoints"] for event in events(run, "updated")] == [3, 2]
    assert dm.open(run).best().arm.revision != "step0"


def test_a_stop_signal_is_not_lost_in_a_callback_of_the_garbage_collector(tmp_path, monkeypatch):
    def stop(phase: str, info: dict) -> None:
        gc.callbacks.remove(stop)
        os.kill(os.getpid(), signal.SIGTERM)

    def look(follower: Follower, now: float) -> Arrivals:
        gc.callbacks.append(stop)
        gc.collect()
        return Arrivals({}, {}, finished=False, changed=0.0)

    monkeypatch.setattr(Follower, "look", look)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            dm.watch(
                models=[tmp_path / "out"],
                folder=tmp_path / "run",
                until_idle="1s",
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [event["event"] for event in events(tmp_path / "run")] == ["started", "stopped"]


def test_a_training_loop_does_not_wait_for_its_watch(tmp_path):
    given = {name: part for name, part in CONFIG.items() if name != "models"}

    def begin() -> dm.BackgroundWatch:
        models = [tmp_path / "out"]
        return dm.watch(given, models=models, folder=tmp_path / "run", background=True)

    watching, model = begin(), loop.network()
    for step in (10, 20):
        loop.save(model, tmp_path / "out" / f"step{step}")
        model.gpt_neox.embed_in.weight.data.mul_(1.1)
    until(lambda: events(tmp_path / "run", "started"))
    assert watching.running and begin().running
    with pytest.raises(TimeoutError, match="still goes on"):
        watching.wait(0.01)
    watching.finish()
    watching.wait(400)
    assert not watching.running
    assert measured(tmp_path / "run") == {"out@step10": 1, "out@step20": 1}


def test_a_trainer_of_transformers_has_its_checkpoints_scored(tmp_path, monkeypatch):
    pytest.importorskip(
        "accelerate", reason="the Trainer of transformers needs accelerate (extra 'dev')"
    )
    from datasets import Dataset
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

    own = loop.tokenizer()
    rows = Dataset.from_dict(dict(own(list(loop.TEXTS[:32]), truncation=True, max_length=16)))
    given = {name: part for name, part in CONFIG.items() if name not in ("models", "name")}
    with pytest.raises(ConfigError, match="leave it out"):
        dm.WatchCallback(models=["./out"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch and accelerate, about missing devices
        trainer = Trainer(
            model=loop.network(),
            args=TrainingArguments(
                tmp_path / "fine-tuned",
                max_steps=6,
                save_steps=2,
                logging_steps=2,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
            ),
            train_dataset=rows,
            data_collator=DataCollatorForLanguageModeling(own, mlm=False),
            processing_class=own,
        )
        scoring = dm.WatchCallback(folder=tmp_path / "run", wait=True, **given)
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
    assert measured(tmp_path / "run") == {f"fine-tuned@checkpoint-{step}": 1 for step in (2, 4, 6)}
    assert (tmp_path / "fine-tuned" / FINISHED).exists()
    assert dm.open(tmp_path / "run").best().load().encode(["a text"]).shape == (1, 16)


def test_a_watch_that_fails_says_why(tmp_path):
    loop.save(loop.network(), tmp_path / "out" / "step0")
    (tmp_path / "out" / "step0" / "config.json").write_text(
        '{"model_type": "nothing", "vocab_size": 3}'
    )
    with (
        pytest.raises(DaskmetricsError, match=r"config\.json"),
        dm.watch(
            models=[tmp_path / "out"],
            folder=tmp_path / "run",
            background=True,
        ),
    ):
        pass


SCRIPT = {"script": str(LOOP), "args": ["out", 45, 15, 0.1], "checkpoints": "out/step*"}


def test_a_run_trains_by_a_program_and_measures_each_checkpoint_beside_it(tmp_path):
    """A worker that does not train measures; a program that has ended is not started again."""
    run = tmp_path / "runs" / "trained"
    # it goes on until the first checkpoint was measured
    (tmp_path / "program.py").write_text(
        "import os, pathlib, runpy, time\n"
        "if os.environ['RANK'] == '0':\n"
        f"    runpy.run_path({str(LOOP)!r}, run_name='__main__')\n"
        "    pathlib.Path('starts').open('a').write('start ')\n"
        "end = time.monotonic() + 300\n"
        "while time.monotonic() < end and not pathlib.Path('go').exists(): time.sleep(0.1)\n"
        "pathlib.Path('ended').touch()\n"
    )
    script = {**SCRIPT, "script": "program.py", "args": ["out", 20, 10, 0.1], "ranks": 2}
    models = [{"name": "mine", "train": script}]
    wanted = {**CONFIG, "name": "trained", "models": models, "cluster": {"workers": 3}}
    (tmp_path / "trained.yaml").write_text(yaml.safe_dump(wanted))
    driver = start(tmp_path, "-c", OFTEN, "run", "trained.yaml")
    until(lambda: events(run, "updated"))
    assert not (tmp_path / "ended").exists(), "it was measured once the training had ended"
    assert not events(run, "trained")
    (tmp_path / "go").touch()
    assert driver.wait(400) == 0
    assert measured(run) == {f"mine@step{step}": 1 for step in (0, 10, 20)}
    assert start(tmp_path, "-c", OFTEN, "run", "trained.yaml").wait(400) == 0
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
def test_a_program_that_cannot_be_started_is_an_error_before_anything_starts(
    tmp_path, change, text
):
    models = [{"name": "mine", "train": {**SCRIPT, **change}}]
    with pytest.raises(ConfigError, match=text):
        dm.run({**CONFIG, "models": models}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
