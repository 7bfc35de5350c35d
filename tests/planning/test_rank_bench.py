"""What the ranks of a training measure on real workers, and plans that use it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import yaml

from daskmetrics.planning import estimate as calibration
from daskmetrics.planning.options import Estimate, Interval, Phase
from tests.planning.test_bench import daskmetrics

RECIPE = {
    "width": 32,
    "depth": 2,
    "heads": 2,
    "context": 32,
    "batch": 4,
    "ranks": 2,
    "checkpoints": 20,
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A configuration that trains a small model on a text of its own."""
    monkeypatch.chdir(tmp_path)
    text = "\n".join(f"{n} times seven is {7 * n}, as everyone knows." for n in range(400))
    (tmp_path / "corpus.txt").write_text(text)
    config = {
        "name": "small",
        "models": [{"name": "a", "train": {**RECIPE, "corpus": "corpus.txt"}}],
        "corpus": {"prompts": 16},
        "metrics": ["effective_rank"],
        "cluster": {"kind": "local", "workers": 2},
    }
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(config))
    return "small.yaml"


@pytest.mark.slow
def test_two_ranks_measure_their_link_and_the_plan_uses_it(small):
    done = daskmetrics(
        "bench", small, "--workload", "allreduce", "--workers", "2", "--output", "out"
    )
    assert done.exit_code == 0, done.output
    assert "a: all-reduce of 2 ranks on 1 node, gloo, measured" in done.stdout
    assert "65,536 KiB" in done.stdout and "share of a step" in done.stdout
    assert "2 ranks on 1 node: 0 GPUs" in done.stderr, (
        "the table of ranks comes before the measurement"
    )
    [kept] = calibration.known()
    [sample] = kept.samples
    assert (sample.kind, sample.group, kept.workers) == ("allreduce", "a", 2) and min(
        sample.seconds
    ) > 0
    planned = daskmetrics("plan", small, "--workers", "1,2")
    assert "exchange of gradients 2 x allreduce a measured" in planned.stdout


@pytest.mark.slow
def test_the_rank_reads_its_data_with_several_numbers_of_loaders(small):
    done = daskmetrics("bench", small, "--workload", "loader", "--workers", "1")
    assert done.exit_code == 0, done.output
    table = [line.split() for line in done.stdout.splitlines()]
    assert {"0", "1", "2", "4", "8"} <= {row[0] for row in table if row}
    assert "a rank computes" in done.stdout and "recommended: ddp.loaders: 0" in done.stdout


@pytest.mark.slow
def test_the_ways_to_save_memory_are_compared(small):
    done = daskmetrics("bench", small, "--workload", "precision", "--output", "out")
    assert done.exit_code == 0, done.output
    names = ("float32", "bfloat16", "half the batch, twice the passes", "activation checkpointing")
    assert all(name in done.stdout for name in names)
    assert "1 rank on 1 node" in done.stderr and "steps of 4 sequences of 32 tokens" in done.stdout
    assert "out/precision.csv" in done.stdout


@pytest.mark.slow
def test_a_training_is_benched_on_one_and_two_workers_and_simulated_beyond(small):
    """The table has the cost per million samples; the plan has the time of an epoch."""
    given = ("--set", "models.0.train.epochs=2", "--set", "models.0.train.context=64")
    words = (
        "--workload",
        "train",
        "--workers",
        "1,2",
        "--repeats",
        1,
        "--price",
        2,
        "--simulate",
        8,
    )
    done = daskmetrics("bench", small, *words, *given, "--output", "out")
    assert done.exit_code == 0, done.output
    tables = (
        Path("out", f"{name}.csv").read_text().splitlines() for name in ("bench", "simulated")
    )
    measured, simulated = (list(csv.DictReader(table)) for table in tables)
    assert [row["workers"] for row in measured] == ["1", "2"] and simulated[-1]["workers"] == "8"
    for row in (*measured, *simulated):
        assert float(row["cost per million samples"]) > 0 and row["verdict"] in (
            "good",
            "acceptable",
            "wasteful",
        )
    assert (
        "SIMULATED, not measured" in done.stdout
        and "Amdahl's law, fitted to the measured times" in done.stdout
    )
    [kept] = calibration.known()
    assert [(sample.kind, sample.ranks) for sample in kept.samples] == [("train", 1)]
    planned = daskmetrics("plan", small, "--workers", "1,2", *given)
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
    done = daskmetrics("bench", small, "--workload", "allreduce", *words)
    assert done.exit_code == 2 and message in done.stderr


def test_more_ranks_than_the_recipe_has_do_not_shorten_a_training():
    epoch = Phase(
        "train",
        1,
        Estimate(Interval.exactly(8.0)),
        chains=4,
        together=True,
        serial=Interval.exactly(0.0),
    )
    assert [epoch.on(n).value for n in (1, 2, 4, 8)] == [8.0, 4.0, 2.0, 2.0]
