"""What the ranks of a training measure on real workers, and plans that use it."""

from __future__ import annotations

import re

import pytest
import yaml

from daskmetrics.planning import estimate as calibration
from daskmetrics.training import data
from tests.planning.test_bench import table
from tests.report.conftest import invoke

RECIPE = {"width": 32, "depth": 2, "heads": 2, "context": 32, "batch": 4, "ranks": 2}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A configuration that trains a small model on a text of its own."""
    monkeypatch.chdir(tmp_path)
    text = "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(400))
    (tmp_path / "corpus.txt").write_text(text)
    config = {
        "name": "small",
        "models": [{"name": "a", "train": {**RECIPE, "checkpoints": 20, "corpus": "corpus.txt"}}],
        "corpus": {"prompts": 16},
        "metrics": ["effective_rank"],
        "cluster": {"kind": "local", "workers": 2},
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config))
    return "small.yaml"


@pytest.mark.slow
def test_two_ranks_measure_their_link_and_the_plan_uses_it(small):
    words = ("--workload", "allreduce", "--workers", "2", "--output", "out")
    done = invoke("bench", small, *words)
    assert done.exit_code == 0, done.output
    assert "65,536 KiB" in done.stdout and "share of a step" in done.stdout
    # the table of ranks comes before the measurement
    assert "2 ranks on 1 node: 0 GPUs" in done.stderr
    [kept] = calibration.known()
    [sample] = kept.samples
    assert (sample.kind, sample.group, kept.workers) == ("allreduce", "a", 2)
    assert min(sample.seconds) > 0
    planned = invoke("plan", small, "--workers", "1,2")
    assert "exchange of gradients 2 x allreduce a measured" in planned.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "rows"),
    [
        ("loader", ("0", "1", "2", "4", "8")),
        ("precision", ("float32", "bfloat16", "half the batch")),
    ],
)
def test_ways_to_read_data_and_to_save_memory_are_compared(small, workload, rows):
    words = ("--workload", workload, "--workers", "1", "--output", "out")
    done = invoke("bench", small, *words)
    assert done.exit_code == 0, done.output
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert all(any(line.startswith(row) for line in lines) for row in rows)


@pytest.mark.slow
def test_a_training_is_benched_on_one_and_two_workers_and_simulated_beyond(small, monkeypatch):
    """The table has the cost per million samples; the plan has the time of an epoch; all trials
    share the tokens.
    """
    written, save = [], data.save_tokenizer
    monkeypatch.setattr(
        data,
        "save_tokenizer",
        lambda fitted, folder, *args: written.append(folder) or save(fitted, folder, *args),
    )
    given = ("--set", "models.0.train.epochs=2", "--set", "models.0.train.context=64")
    words = ("--workload", "train", "--workers", "1,2", "--repeats", 1, "--price", 2)
    done = invoke("bench", small, *words, "--simulate", 8, *given, "--output", "out")
    assert done.exit_code == 0, done.output
    measured, simulated = map(table, ("bench", "simulated"))
    assert [row["workers"] for row in measured] == ["1", "2"] and simulated[-1]["workers"] == "8"
    for row in (*measured, *simulated):
        assert float(row["cost per million samples"]) > 0
        assert row["verdict"] in ("good", "acceptable", "wasteful")
    assert "SIMULATED, not measured" in done.stdout
    assert len([folder for folder in written if "suites" in folder.parts]) == 1
    [kept] = calibration.known()
    assert [(sample.kind, sample.ranks) for sample in kept.samples] == [("train", 1)]
    planned = invoke("plan", small, "--workers", "1,2", *given)
    header = planned.stdout.splitlines()[2]
    assert {"batch", "time per epoch", "a worker hour buys"} <= set(re.split(" {2,}", header))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "1"), "two workers or more"),
        (("--set", "models=[{source: x, name: x}]"), "'train' recipe"),
    ],
)
def test_a_measurement_that_is_impossible_is_refused(small, words, message):
    done = invoke("bench", small, "--workload", "allreduce", *words)
    assert done.exit_code == 2 and message in done.stderr
