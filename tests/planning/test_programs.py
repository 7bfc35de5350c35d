"""The plan of a training program that a bench has timed."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.config import load
from daskmetrics.core.errors import ConfigError
from daskmetrics.planning import bench, estimate
from daskmetrics.planning.bench import Meter, calibration_of, epochs_done
from daskmetrics.planning.estimate import Calibration, Sample
from daskmetrics.planning.options import speed
from daskmetrics.planning.scaling import Bench, BenchTrial
from daskmetrics.training.ddp.ranks import Program, Progress

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
    other = Sample("program", "other", (99.0,), 1.0)
    for at, sample in enumerate((epochs, other)):
        serial = (0.2, 0.2, 0.2)
        estimate.save(
            Calibration("cpu", at=at, samples=(sample,), workers=2, serial=serial, start=4)
        )


def test_a_program_takes_so_many_times_what_was_timed(timed):
    shown = CliRunner().invoke(main, [*WORDS, "--json", "--", "--lr", "3e-4"])
    one, two = json.loads(shown.stdout)["options"]
    # one rank: 10 s / (0.2 + 0.8 / 2), forty times; and the start
    assert one["total"]["value"] == pytest.approx(40 * 10 / 0.6 + 4)
    assert two["total"]["value"] == pytest.approx(40 * 10 + 4)
    assert two["command"].split() == [
        *("daskmetrics", "train", "train.py", "--ranks", "2"),
        *("--set", "cluster.workers=2", "--", "--lr", "3e-4"),
    ]
    text = CliRunner().invoke(main, WORDS).stdout
    assert "16 (8 per worker)" in text and "0.2 s" in text and "144,000 samples" in text
    assert "40 times" in text and "2 x program train measured" in text and "fastest" in text


def test_a_device_on_which_the_program_was_not_timed_is_no_option(timed, tmp_path):
    profile = tmp_path / "gpus.yaml"
    profile.write_text("kind: existing\naddress: 'tcp://127.0.0.1:1'\ngpu_type: a100\n")
    shown = CliRunner().invoke(main, [*WORDS, "--profiles", f"{profile},local"])
    assert shown.stdout.count("the program was not timed on a100") == 2
    assert "fastest" in shown.stdout


def test_programs_timed_on_several_devices_are_each_converted_from_their_own():
    samples = {
        "l40s": Sample("program", "a", (10.0,), 1.0),
        "a100": Sample("program", "b", (20.0,), 1.0),
    }
    known = [Calibration(device, at=1.0, samples=(sample,)) for device, sample in samples.items()]
    data = {
        "name": "two",
        "models": [
            {"name": name, "train": {"script": f"{name}.py", "checkpoints": f"{name}/step*"}}
            for name in "ab"
        ],
    }
    work = estimate.programs_workload(load(data).models, 1, {}, known, "l40s")
    assert [phase.device for phase in work.phases] == ["l40s", "a100"]
    on_l40s = work.on(1, "l40s")
    assert on_l40s.value == pytest.approx(10.0 + 20.0 / speed("l40s", "a100").value)
    assert on_l40s.source.endswith("a100 to l40s estimated by datasheet") and not on_l40s.measured


def test_a_program_that_was_not_timed_is_refused_with_the_bench_to_run():
    result = CliRunner().invoke(main, WORDS)
    assert isinstance(result.exception, ConfigError) or result.exit_code == 2
    assert "daskmetrics bench PROGRAM --ranks 1,2" in result.output + str(result.exception)


def test_a_configuration_that_trains_by_a_program_is_planned_from_its_bench(
    timed, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.yaml").write_text(CONFIG)
    words = ["plan", "mine.yaml", "--times", "40", "--workers", "1,2,3"]
    shown = CliRunner().invoke(main, [*words, "--json"])
    one, two, three = json.loads(shown.stdout)["options"]
    assert one["problems"] == ["the program has 2 ranks, one for each worker"]
    assert two["total"]["value"] == three["total"]["value"] == pytest.approx(40 * 10 + 4)
    assert two["command"].split() == [
        *("daskmetrics", "run", "mine.yaml", "--set", "cluster.workers=2")
    ]
    assert (two["training"]["ranks"], two["training"]["batch"]) == (2, 16)
    assert three["training"]["ranks"] == 2
    text = CliRunner().invoke(main, words).stdout
    assert "40 times" in text and "checkpoints, whose number is not known" in text


def test_a_configuration_with_other_models_is_refused(tmp_path):
    path = tmp_path / "mixed.yaml"
    path.write_text(CONFIG.replace("models:", "models:\n  - {name: b, source: x}"))
    result = CliRunner().invoke(main, ["plan", str(path)])
    assert result.exit_code and "by programs alone" in result.output + str(result.exception)


def test_the_bars_of_epochs_are_one_course_of_steps(tmp_path):
    program = Program("mine", ("train.py",), tmp_path, 1, least=1)
    meter = Meter()
    for epoch in (1, 2):
        for step in (2, 4):
            progress = Progress(step, 4, {"epoch": epoch}, is_of_epoch=True)
            meter.progressed(program, progress)
    assert meter.steps == 6
    assert epochs_done(progress) - epochs_done(meter.reports[0][1]) == 6 / 4
    assert epochs_done(Progress(3, 4)) == 0 and epochs_done(Progress(3, 4, {"epoch": 1.5})) == 1.5


def test_the_last_steps_of_epochs_alone_are_counted(tmp_path):
    meter = Meter()
    for epoch in (1, 2, 3):
        progress = Progress(4, 4, {"epoch": epoch}, is_of_epoch=True)
        meter.progressed(Program("mine", ("train.py",), tmp_path, 1, least=1), progress)
    assert meter.steps == 8


def test_a_calibration_has_the_steps_of_every_number_of_ranks():
    trials = [
        BenchTrial(ranks, 1.0, ((1.0,),), (Sample("program", "p", (1.0,), 1.0, ranks, steps),))
        for ranks, steps in ((2, 50), (1, 100), (2, 50))
    ]
    samples = calibration_of(Bench("p", tuple(trials)), "cpu").samples
    assert [(each.ranks, each.steps, len(each.seconds)) for each in samples] == [
        (1, 100, 1),
        (2, 50, 2),
    ]


def test_the_start_of_a_program_does_not_depend_on_its_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "mine.yaml").write_text(CONFIG)
    config = load(tmp_path / "mine.yaml")
    samples = 8

    def launch(client, program, observer):
        for step in (0, 1):
            observer.progressed(program, Progress(step, 1, {"samples": step * samples}))
            time.sleep(0.05)

    monkeypatch.setattr(bench, "launch", launch)
    monkeypatch.setattr(bench, "workers", lambda client: ["tcp://a", "tcp://b"])
    with bench.program_runner(config.models[0], config) as runner:
        runner(None)
        samples = 1
        trial = runner(None)
    assert trial.seconds > 8 * 0.05 and trial.start > 0.05


def test_arguments_are_those_of_a_program():
    result = CliRunner().invoke(main, ["plan", "--times", "2"], catch_exceptions=True)
    assert result.exit_code and "training program" in result.output + str(result.exception)
