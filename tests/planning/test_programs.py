"""The plan of a training program that a bench has timed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from daskmetrics.config import load
from daskmetrics.domain.training import Progress
from daskmetrics.planning import bench
from daskmetrics.planning.bench import Bench, BenchTrial, Meter, bench_table, calibration_of
from daskmetrics.planning.calibration import Calibration, Sample, calibrated, keep, kept
from daskmetrics.planning.work import Estimate, Phase, exactly
from daskmetrics.training.ddp.ranks import Program
from tests.report.conftest import invoke

CONFIG = """\
name: ours
models:
  - {name: mine, train: {script: train.py, ranks: 2, checkpoints: out/checkpoint-*}}
tasks: [stdlib:package]
cluster: {workers: 3}
"""
WORDS = ["plan", "train.py", "--times", "40", "--workers", "1,2"]


@pytest.fixture
def timed() -> None:
    """An epoch takes 10 s with two ranks, of which a fifth of the work of one is not shared; each
    rank learns from 8 samples in a step.
    """
    epochs = Sample("program", "train", (10.0, 10.0), 1.0, 2, steps=50, samples=800)
    about = {"workers": 2, "serial": (0.2, 0.2, 0.2), "start": 4}
    for at, sample in enumerate((epochs, Sample("program", "other", (99.0,), 1.0))):
        keep(Calibration("cpu", at=at, samples=(sample,), **about))


@pytest.fixture
def mine(tmp_path, monkeypatch) -> Path:
    """A configuration that trains by a program."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.yaml").write_text(CONFIG)
    return Path("mine.yaml")


def test_a_program_takes_so_many_times_what_was_timed(timed):
    one, two = json.loads(invoke(*WORDS, "--json", "--", "--lr", "3e-4").stdout)["options"]
    # one rank: 10 s / (0.2 + 0.8 / 2), forty times; and the start
    assert one["total"][1] == pytest.approx(40 * 10 / 0.6 + 4)
    assert two["total"][1] == pytest.approx(40 * 10 + 4)
    command = "daskmetrics train train.py --ranks 2 --set cluster.workers=2 -- --lr 3e-4"
    assert two["command"] == command
    text = invoke(*WORDS).stdout
    for fact in ("16 (8 per worker)", "0.2 s", "144,000 samples", "2 x program train measured"):
        assert fact in text


def test_a_device_without_times_of_the_program_is_no_option(timed, tmp_path):
    profile = tmp_path / "gpus.yaml"
    profile.write_text("kind: existing\naddress: 'tcp://127.0.0.1:1'\ngpu_type: a100\n")
    shown = " ".join(invoke(*WORDS, "--profiles", f"{profile},local").stdout.split())
    assert "Not possible 1 and 2: " in shown and "the program was not timed on a100" in shown
    assert "fastest" in shown


def test_a_configuration_of_a_program_is_planned_from_its_bench(timed, mine):
    words = ["plan", mine, "--times", "40", "--workers", "1,2,3", "--json"]
    one, two, three = json.loads(invoke(*words).stdout)["options"]
    assert one["problems"] == ["the program has 2 ranks, one for each worker"]
    assert two["total"][1] == three["total"][1] == pytest.approx(40 * 10 + 4)
    assert two["command"] == "daskmetrics run mine.yaml --set cluster.workers=2"
    assert (two["pace"]["ranks"], two["pace"]["batch"]) == (2, 16)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (WORDS, "daskmetrics bench PROGRAM --ranks 1,2"),
        (("plan", "mixed.yaml"), "by programs alone"),
        (("plan", "--times", "2"), "training program"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_what_to_do(mine, words, remedy):
    mixed = CONFIG.replace("models:", "models:\n  - {name: b, source: x}")
    mine.with_name("mixed.yaml").write_text(mixed)
    result = invoke(*words)
    assert result.exit_code and remedy in result.output + str(result.exception)


def test_epochs_are_counted_where_their_shares_are_reported(tmp_path):
    program = Program("mine", ("train.py",), tmp_path, 1, least=1)

    def epochs(*numbers: float) -> float:
        meter = Meter()
        for at, epoch in enumerate(numbers):
            meter.progressed(program, Progress(20 * at, numbers={"epoch": epoch}))
        return meter.epochs

    assert (epochs(0.0, 0.5, 1.0), epochs(1, 2, 3)) == (1.0, 0.0)


def test_the_bar_of_other_work_is_not_timed(tmp_path):
    program, meter = Program("mine", ("train.py",), tmp_path, 1, least=1), Meter()
    for step, total in ((0, 90), (90, 90), (1, 40), (30, 40)):
        meter.progressed(program, Progress(step, total))
    assert meter.steps == 29


def test_a_calibration_has_the_steps_of_every_number_of_ranks():
    trials = []
    for ranks, steps in ((2, 50), (1, 100), (2, 50)):
        sample = Sample("program", "p", (1.0,), 1.0, ranks, steps)
        trials.append(BenchTrial(ranks, 1.0, ((1.0,),), (sample,)))
    samples = calibration_of(Bench("p", tuple(trials)), "cpu").samples
    merged = [(sample.ranks, sample.steps, len(sample.seconds)) for sample in samples]
    assert merged == [(1, 100, 1), (2, 50, 2)]


def test_a_plan_knows_how_busy_the_gpus_of_a_bench_were():
    sample = Sample("program", "p", (10.0,), 10.0)
    trials = [BenchTrial(1, 1.0, ((1.0,),), (sample,), busy=busy) for busy in (0.1, 0.3, None)]
    benched = Bench("p", tuple(trials))
    assert "the GPUs computed 20% of the time" in bench_table(benched, None).as_text()
    measured = calibration_of(benched, "l40s")
    assert calibrated("program", "p", 10.0, [measured]).busy == pytest.approx(0.2)
    assert calibrated("program", "other", 10.0, [measured]).busy is None


@pytest.mark.parametrize(
    ("units", "seconds"),
    [
        (3, {2: 2.2, 4: 1.1}),  # one of two workers has nothing to do at the end
        (4, {2: 2.75, 4: 1.925}),  # a quarter is serial
        (4, {1: 4.4, 2: 2.2}),
    ],
)
def test_a_plan_with_the_overhead_takes_as_long_as_the_bench(units, seconds):
    chains = ((1.0,),) * units
    trials = [BenchTrial(workers, span, chains) for workers, span in seconds.items()]
    measured = calibration_of(Bench("x", tuple(trials)), "cpu")
    assert measured.overhead == pytest.approx(0.1)
    unit = Estimate(exactly(1.0) * (1 + measured.overhead))
    planned = Phase("x", units, unit, serial=np.array(measured.serial)).on(min(seconds), "cpu")
    assert planned[1] == pytest.approx(seconds[min(seconds)])


def test_the_start_of_a_program_does_not_depend_on_its_samples(mine, monkeypatch):
    config, samples = load(mine), 8

    def launch(client, program, observer):
        for step in (0, 1):
            observer.progressed(program, Progress(step, 1, {"samples": step * samples}))
            time.sleep(0.05)

    monkeypatch.setattr(bench, "launch", launch)
    monkeypatch.setattr(bench, "workers", lambda client: ["tcp://a", "tcp://b"])
    runner = bench.program_runner(config.models[0], config)
    runner(None, mine.parent)
    samples = 1
    trial = runner(None, mine.parent)
    assert trial.seconds > 8 * 0.05 and trial.start > 0.05


BARS = """
import sys, time
from tqdm import tqdm
for epoch in range(4):
    for batch in tqdm(range(40)):
        time.sleep(0.01)
"""
TRAINER = """
import sys
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, Trainer, TrainingArguments

sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
model = GPTNeoXForCausalLM(GPTNeoXConfig(intermediate_size=32, **sizes))
texts = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(80)]
settings = TrainingArguments(
    output_dir=sys.argv[1], num_train_epochs=4, per_device_train_batch_size=2, logging_steps=10,
    eval_strategy="steps", eval_steps=20, eval_on_start=True, save_strategy="no", report_to=[],
    use_cpu=True,
)
Trainer(model, settings, train_dataset=texts, eval_dataset=texts[:20]).train()
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [BARS, TRAINER], ids=["a bar for each epoch", "a Trainer"])
def test_the_epochs_of_a_program_as_it_stands_are_timed(mine, text):
    (mine.parent / "train.py").write_text(text)
    words = ("--ranks", "1", "--repeats", 1, "--", "{trial}")
    done = invoke("bench", "train.py", *words)
    assert done.exit_code == 0, done.output
    [sample] = kept()[0].samples
    assert (sample.steps, sample.epochs) == (160, 4)
    assert "time per epoch" in invoke("plan", "train.py", "--times", "1", "--workers", "1").stdout
