from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from daskmetrics.report.plots.figures import pictures

pytest.importorskip("matplotlib")

NAMES = ["scores", "tradeoffs", "metrics", "layers", "predictors", "agreement", "path", "training"]


def test_the_pictures_of_a_finished_run(finished):
    made = list(pictures(finished))
    assert [picture.name for picture in made] == NAMES
    assert all(picture.title and picture.caption and picture.png for picture in made)


def test_pictures_do_not_depend_on_when_they_are_made(finished):
    first, second = (
        [(picture.png, picture.svg) for picture in pictures(finished)] for _ in range(2)
    )
    assert first == second


def test_an_svg_is_a_drawing_with_its_texts(finished):
    drawn = {picture.name: picture.svg.decode() for picture in pictures(finished)}
    assert all(ET.fromstring(text).tag.endswith("svg") for text in drawn.values())
    assert (
        "nats" in drawn["layers"]
        and "prompt_entropy" in drawn["predictors"]
        and "<path" in drawn["path"]
    )


@pytest.mark.parametrize("decisions", [1, 3, 15])
def test_the_pictures_of_an_unfinished_search(a_run, decisions):
    names = [picture.name for picture in pictures(a_run(decisions=decisions))]
    assert {"metrics", "path", "training"} <= set(names)
