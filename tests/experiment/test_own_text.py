"""A user's own labelled texts, from a CSV file to the best arm."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from daskmetrics import experiment
from daskmetrics.core import corpus as corpus
from daskmetrics.core.errors import ConfigError
from daskmetrics.core.files import RunFolder
from daskmetrics.experiment import Display
from daskmetrics.experiment import maintenance as maintain
from daskmetrics.planning.preview import preview
from daskmetrics.report import Run, explain_tables, status_text, write
from tests.report.conftest import text_of

LAYERS = 3
RECIPE = {"width": 16, "depth": LAYERS - 1, "steps": 2, "context": 32, "vocabulary": 300}
MODELS = [{"name": "a", "train": RECIPE}]


def reviews(path: Path, rows: int, labels: int = 8) -> None:
    """Passages of held-out text, with the package each is of for a label, under names of the user's
    own.
    """
    passages = {passage.text: passage.package for passage in corpus.passages(corpus.held_out(), 10)}
    common = sorted(
        set(passages.values()), key=lambda name: (-list(passages.values()).count(name), name)
    )[:labels]
    every = [(text, package) for text, package in passages.items() if package in common]
    found = random.Random(0).sample(every, rows)
    with path.open("w", newline="", encoding="utf-8") as text:
        csv.writer(text).writerows([("body", "stars"), *found])


def test_two_thousand_labelled_texts_end_with_the_best_arm(tmp_path: Path, prepared) -> None:
    path = tmp_path / "reviews.csv"
    reviews(path, 2000)
    name = f"file:{path}(text=body, label=stars, probe=ridge)"
    changes = {
        "models": MODELS,
        "tasks": [name],
        "metrics": ["anisotropy"],
        "cluster": {"workers": 2},
    }
    folder = RunFolder(tmp_path / "runs" / "own")
    experiment.run(prepared(**changes, search={"budget": 0.7}), folder, Display())
    run = Run(folder.path)
    best = run.best()
    assert best.arm.model == "a" and run.answer.probability > 0
    (task,) = run.tasks
    assert task == "file:reviews.csv(text=body, label=stars, probe=ridge)"
    assert {record.value.n for record in run.records if record.kind == "score"} == {2000}
    again = experiment.run(prepared(**changes, search={"budget": 0.7}), folder, Display())
    assert again.nothing_to_do


def test_a_damaged_file_is_an_error_before_anything_starts(tmp_path: Path, prepared) -> None:
    (tmp_path / "broken.csv").write_text("text,label\nonly one,a\n")
    with pytest.raises(ConfigError, match="has only one label"):
        prepared(tasks=[f"file:{tmp_path / 'broken.csv'}"])


@pytest.mark.slow
def test_the_verdict_of_a_real_encoder_agrees_with_the_raw_table(
    tmp_path: Path, prepared, minilm: Path
) -> None:
    path = tmp_path / "packages.csv"
    reviews(path, 2000, labels=10)
    models = [{"name": "minilm", "source": str(minilm)}]
    search = {"policy": "sweep", "budget": 1.0, "reward": "mean"}
    folder = RunFolder(tmp_path / "runs" / "packages")
    changes = {
        "models": models,
        "tasks": [f"file:{path}(text=body, label=stars)"],
        "metrics": ["anisotropy"],
        "search": search,
    }
    experiment.run(prepared(**changes), folder, Display())
    run = Run(folder.path)
    means = {arm: scores[next(iter(scores))].score for arm, scores in run.recorded.items()}
    verdict = run.verdict.overall
    assert len(means) == 7 == verdict.tested and verdict.arm == max(
        means, key=lambda arm: means[arm]
    )
    for arm in means:
        rivals = (run.differences(rival, arm)[next(iter(run.tasks))] for rival in verdict.tied)
        assert any(each.value > verdict.critical * each.stderr for each in rivals) == (
            arm in verdict.worse
        )


def test_a_run_without_metrics_searches_at_once_and_adds_metrics_later(
    tmp_path: Path, prepared
) -> None:
    reviews(tmp_path / "reviews.csv", 60, labels=3)
    tasks = [f"file:{tmp_path}/reviews.csv(text=body, label=stars, probe=ridge)"]
    changes = {"models": MODELS, "tasks": tasks, "search": {"budget": 1.0}}
    folder = RunFolder(tmp_path / "runs" / "own")

    bare = prepared(**changes, metrics=[], corpus={"source": str(tmp_path / "no such file")})
    assert (bare.views, bare.prompts) == (0, ())
    rows = dict(preview(bare, folder).rows)
    # those of the training
    assert rows["metrics"] == "none" and rows["measuring"] == "3 units, 3 to do"
    experiment.run(bare, folder, Display())
    run = Run(folder.path)
    assert not any(record.value.size for record in run.records if record.kind == "measure")
    assert len(run.recorded) == len(bare.arms) and run.answer.confirmed
    assert not run.metrics and len(run.scores) == 3
    assert ": a, " in repr(run) and "none: the run has no metrics" in status_text(run)
    assert "no metrics" in write(run).read_text(encoding="utf-8")
    assert "metric" not in text_of(*explain_tables(run, str(run.best().arm)))
    assert all(size.weights for size in run.trade_offs().sizes.values())
    whole = run.trade_offs().arms[0].cost.whole
    assert maintain.verify(folder).damages == ()

    measured = prepared(**changes, metrics=["curvature"])
    done = experiment.run(measured, folder, Display())
    after = Run(folder.path)
    assert done.computed == len(measured.checkpoints)  # and no score
    assert after.recorded == run.recorded
    assert list(after.metrics)[:1] == ["curvature"] and after.metrics["curvature"].notnull().any()
    assert after.trade_offs().arms[0].cost.whole == whole
    assert maintain.verify(folder).damages == ()
