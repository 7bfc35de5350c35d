from __future__ import annotations

import re
from dataclasses import replace

import pytest

from daskmetrics.core.names import Arm
from daskmetrics.report import best_text, summary_text
from daskmetrics.report._html import page
from daskmetrics.report._outlook import outlook


def flat(text: str) -> str:
    return " ".join(text.replace("\n# ", "\n").split())


def sentences(run, search=(), **changes):
    """The sentences of a result with some fields changed."""
    return dict(
        outlook(replace(run.result, **changes), run.entries, {**run.config["search"], **dict(search)}, run.differences)
    )


def test_terminal_page_and_notebook_say_why_the_search_ended_and_what_more_would_buy(a_run):
    run = a_run(budget=0.1)
    best = run.best()
    assert list(best.outlook) == ["ended", "more", "metrics"]
    for text in (best_text(run), page(run, [])):
        for label in ("ended", "more"):
            assert best.outlook[label] in flat(text)
    text = summary_text(run)
    assert best.outlook["ended"] in flat(text) and f"daskmetrics best {run.folder.path}" in flat(text)
    assert best.outlook["ended"].startswith("The budget was spent") and best.outlook["more"] in best._repr_html_()


def test_the_gain_is_given_in_the_reward_and_as_a_share_of_the_score_with_a_command(a_run):
    run = a_run(budget=0.1)
    loss, unit = run.result.expected_loss, run.result.score_unit
    first = run.result.outlook["gains"][0]
    text = run.best().outlook["more"]
    assert f"expected to be {loss:.2g} ({100 * loss / unit:.2g} % of the score) better" in text
    assert f"({first['cells']} cells) is expected to gain {first['value']:.2g}" in text
    share = re.search(r"--budget (\S+) --spend (\S+)\.$", text)
    assert share and share[1] == share[2] and 0.19 <= float(share[1]) <= 0.21


@pytest.mark.parametrize(
    ("ending", "search", "words"),
    [
        ("sure", {}, "Sure enough after"),
        ("confidence", {"confidence": 0.9}, "90 % to be within 1.0 % of the best"),
        ("cells", {"cells": 1200}, "1,200"),
        ("complete", {}, "every cell"),
        ("stopped", {"wall_hours": 12.0}, "The limit of 12 hours"),
    ],
)
def test_every_ending_has_a_sentence(finished, ending, search, words):
    assert (
        words in sentences(finished, search, outlook={"ending": ending, "gains": []}, probability_within=0.95)["ended"]
    )


def test_a_search_that_ends_unsure_is_not_called_sure(finished):
    text = sentences(finished, outlook={"ending": "sure", "gains": []}, probability_within=0.6)["ended"]
    assert text.startswith("Nothing left is worth its cost")


def test_a_gain_that_hardly_matters_has_no_command(finished):
    gains = [{"share": 0.1, "cells": 9, "value": 1e-6 * finished.result.score_unit}]
    text = sentences(finished, outlook={"ending": "sure", "gains": gains})["more"]
    assert "gain less than 0.01 % of the score" in text and "--spend" not in text


def test_without_open_cells_only_the_errors_are_left(a_run):
    run = a_run(budget=1.0)
    assert "tried every cell" in run.best().outlook["ended"]
    assert "only the errors of the scores are left" in run.best().outlook["more"]


def test_what_metrics_contributed_is_said_of_this_run(finished):
    without = {**finished.result.without_metrics, "error": 0.2, "error_with": 0.1}
    text = sentences(finished, without_metrics=without)["metrics"]
    assert "recommend the same arm" in text and "Metrics lowered this error by 50 %" in text
    assert text[1:] in flat(page(finished, [])) or finished.best().outlook["metrics"][1:] in flat(page(finished, []))
    other = {**without, "arm": finished.result.default["arm"], "error_with": 0.3}
    text = sentences(finished, without_metrics=other)["metrics"]
    assert f"recommend {finished.best().default} instead" in text and "raised this error by 50 %" in text
    assert "metrics" not in sentences(finished, without_metrics={})


def test_a_search_that_was_stopped_by_hand_says_so(a_run):
    assert "stopped, by hand or with its process, after 20 decisions" in flat(summary_text(a_run(decisions=20)))


def test_a_changed_recommendation_is_explained_by_the_new_scores(a_run):
    earlier = a_run(budget=0.1)
    run = a_run(budget=0.5, key="j" * 32)
    old, new = earlier.best().arm, run.best().arm
    assert old != new
    text = run.best().outlook["changed"]
    assert text.startswith("An earlier search of this run, with 10 % of") and f"recommended {old}." in text
    assert re.search(rf"among them .*0\.\d+ of {re.escape(str(new))}:stdlib", text)
    listed = [Arm(**each["arm"]) for each in (run.result.best, run.result.default, *run.result.top)]
    assert (f"The expected objective of {old} went from" in text) == (old in listed)
    common = run.recorded.get(old, {}).keys() & run.recorded[new].keys()
    assert ("the arm recommended now is ahead by" in text) == bool(common)
    assert text in flat(summary_text(run)) and text in page(run, [])


def test_an_unchanged_recommendation_is_not_explained(a_run):
    a_run(budget=0.1)
    assert "changed" not in a_run(budget=0.1, key="j" * 32).best().outlook
