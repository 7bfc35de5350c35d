from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise

import pytest

from daskmetrics import config
from daskmetrics.core.names import Suite
from daskmetrics.report._settle import settlement
from daskmetrics.report._verdict import verdict_of
from tests.report.conftest import Story, make_run

MODEL = Suite("minilm", ("main",), tuple(range(7)), 6)
FILE, STDLIB, BENCHMARK = "file:mine/reviews.csv", "stdlib:package", "mteb:MassiveIntentClassification"
RISING = (0.45, 0.47, 0.49, 0.51, 0.53)


def tie_of(folder, tasks, gap=0.004, suites=(MODEL,), **changes):
    """A run whose layers 5 and 6 differ by this much, with an error of 0.0028 on each task."""
    names = tuple(task.replace("mine/", "") for task in tasks)
    settings = {"reward": "mean", "policy": "sweep", **changes}
    merits = dict.fromkeys(names, (*RISING, 0.6, 0.6 + gap))
    run = make_run(folder / "run", Story(suites, names, budget=1.0, outcomes=True, settings=settings, merits=merits))
    return replace(run._evidence, config={**run.config, "tasks": list(tasks)})


def found_of(evidence):
    return settlement(evidence, verdict_of(evidence))


def loaded(command: str, evidence):
    """The configuration that a command runs, read as the command reads it."""
    words = shlex.split(command)
    assert words[:2] == ["daskmetrics", "run"] and words[words.index("--folder") + 1].endswith("-tie")
    settings = [after for word, after in pairwise(words) if word == "--set"]
    return config.load(words[2], settings)


def test_the_items_that_are_needed_grow_with_the_square_of_the_critical_value(tmp_path):
    evidence = tie_of(tmp_path, (FILE,))
    one = verdict_of(evidence).overall
    found = found_of(evidence)
    factor = (one.critical * one.loss.stderr / one.loss.value) ** 2
    assert 1 < factor < 20 and found.items == {"file:reviews.csv": pytest.approx((factor - 1) * 100, abs=1)}
    assert f"Add about {found.items['file:reviews.csv']:,} items to reviews.csv" in found.text
    # seven layers share an encoding of two seconds; a score takes one; the tied arms are two
    assert found.seconds == pytest.approx(factor * (2 + 2), rel=1e-6)


def test_with_that_many_items_the_tie_would_be_settled(tmp_path):
    evidence = tie_of(tmp_path, (FILE,))
    needed = 100 + found_of(evidence).items["file:reviews.csv"]
    story = Story((MODEL,), ("file:reviews.csv",), budget=1.0, outcomes=True, n=round(1.3 * needed))
    merits = {"file:reviews.csv": (*RISING, 0.6, 0.604)}
    more = make_run(tmp_path / "more", replace(story, settings={"reward": "mean", "policy": "sweep"}, merits=merits))
    assert len(verdict_of(evidence).tied) == 2 and len(more.verdict.tied) == 1


def test_the_command_compares_the_tied_arms_alone_and_can_be_pasted(tmp_path):
    evidence = tie_of(tmp_path, (FILE,), confidence=0.9)
    found = found_of(evidence)
    settled = loaded(found.command, evidence)
    assert settled.models[0].layers == (5, 6) and settled.search.confidence is None
    assert "--policy sweep" in found.command


def test_of_several_models_only_those_with_tied_arms_are_run(tmp_path):
    suites = (Suite("small", ("step1", "step2"), (0, 1, 2), 2), MODEL)
    settled = loaded(found_of(tie_of(tmp_path, (FILE,), suites=suites)).command, None)
    assert [(model.name, model.layers) for model in settled.models] == [("minilm", (5, 6))]


@pytest.mark.parametrize("recipe", [{"steps": 2, "depth": 6}, {"size": "14m", "width": 64, "heads": 2}])
def test_the_command_leaves_out_defaults_and_runs_the_same_models(tmp_path, recipe):
    evidence = tie_of(tmp_path, (FILE,), suites=(Suite("small", ("step1", "step2"), (0, 1, 2), 2), MODEL))
    trained = config.Model(name="minilm", train=recipe, pooling="last")
    models = [trained.model_dump(mode="json") if m["name"] == "minilm" else m for m in evidence.config["models"]]
    command = found_of(replace(evidence, config={**evidence.config, "models": models})).command
    assert loaded(command, None).models == (trained.model_copy(update={"layers": (5, 6)}),)
    assert "vocabulary" not in command and "null" not in command.partition("models=")[2].partition("]}]")[0]


def test_a_fixed_task_cannot_settle_a_tie(tmp_path):
    found = found_of(tie_of(tmp_path, (STDLIB,)))
    assert found.text.startswith("This data cannot") and "loses at most" in found.text and not found.command


def test_arms_of_nearly_equal_scores_are_not_worth_more_items(tmp_path):
    found = found_of(tie_of(tmp_path, (FILE,), gap=0.0001))
    assert "even 100 times as many items" in found.text and not found.command


def test_the_task_that_can_grow_and_adds_most_to_the_error_grows(tmp_path):
    found = found_of(tie_of(tmp_path, (STDLIB, FILE), gap=0.0035))
    assert list(found.items) == ["file:reviews.csv"]


def test_a_task_of_the_benchmark_has_more_items_in_its_other_splits(tmp_path):
    pytest.importorskip("mteb")
    found = found_of(tie_of(tmp_path, (BENCHMARK,), gap=0.0045))
    larger = f"{BENCHMARK}(split=test+validation)"
    assert f"use {larger} in place of {BENCHMARK}" in found.text.replace("Use", "use")
    assert loaded(found.command, None).tasks == (larger,)


def test_arms_that_lack_tasks_are_scored_or_the_search_goes_on(a_run):
    run = a_run(flat=True, outcomes=True, budget=0.1)
    found = run.settlement
    assert found.text.startswith("Search on") and "--budget 0.2" in found.command and "--spend 0.2" in found.command
    words = shlex.split(found.command)
    assert config.load(words[2]) and words[words.index("--folder") + 1] == str(run.folder.path)
    few = replace(run._evidence, answer=replace(run.result, credible=run.result.credible[:2]))
    scored = settlement(few, verdict_of(few))
    assert scored.text.startswith("Score") and scored.seconds > 0 and loaded(scored.command, few).models
