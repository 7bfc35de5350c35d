from __future__ import annotations

import re

import pytest

from daskmetrics import config
from tests.cli.calling import call

REVIEWS = "file:reviews.csv(text=body, label=stars)"
COLUMNS = "--data reviews.csv --text body --label stars"


@pytest.mark.parametrize(
    ("options", "answers", "file", "tasks"),
    [
        (
            f"{COLUMNS} --tasks stdlib:order -o m.yaml --yes",
            None,
            "m.yaml",
            (REVIEWS, "stdlib:order"),
        ),
        ("", "reviews.csv\nbody\nstars\nasked.yaml\n", "asked.yaml", (REVIEWS,)),
        ("--yes", None, "model.yaml", ("stdlib:demo",)),
    ],
    ids=["options", "answers", "defaults"],
)
def test_run_accepts_what_was_written_from(
    place, minilm, session_cache, options, answers, file, tasks
):
    model = f"--model {minilm}"
    if answers:
        model, answers = "", f"{minilm}\n{answers}"
    done = call(place, f"init {model} {options}", answers)
    assert done.exit_code == 0, done.output
    assert f"daskmetrics run {file} --dry-run" in done.output
    loaded = config.load(place / file)
    assert (f"{loaded.name}.yaml", loaded.tasks) == (file, tasks)
    preview = call(place, f"run {file} --dry-run")
    assert preview.exit_code == 0, preview.output


def test_a_link_keeps_its_name_and_a_shown_command_can_be_pasted(place, minilm):
    (place / "my encoder").symlink_to(minilm)
    done = call(place, "init --model 'my encoder' --tasks stdlib:order -o 'of mine.yaml' --yes")
    command = "daskmetrics run 'of mine.yaml' --dry-run"
    assert command in done.output and command in (place / "of mine.yaml").read_text()
    assert config.load(place / "of mine.yaml").models[0].name == "my-encoder"


def test_a_hub_id_means_main_and_equal_names_are_numbered(place):
    line = "init --model some/model --model other/model -o wrong.yaml --yes --force"
    assert call(place, line).exit_code == 0
    models = config.load(place / "wrong.yaml").models
    assert [(model.name, model.revisions) for model in models] == [
        ("model-1", "main"),
        ("model-2", "main"),
    ]


def test_every_key_that_is_shown_as_a_comment_is_one(place, minilm):
    done = call(place, f"init --model {minilm} -o m.yaml --yes")
    assert done.exit_code == 0, done.output
    text = (place / "m.yaml").read_text()
    shown = re.sub(r"(?m)^( *)# (?=(metrics|corpus|within): )", r"\1", text)
    assert not re.search(r"(?m)^ *# [a-z_]+: ", shown.split("tasks:")[1])  # all of them
    (place / "m.yaml").write_text(shown)
    loaded = config.load(place / "m.yaml")
    assert loaded.search.within == 0.01 and loaded.corpus.prompts == 500
