from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from daskmetrics import config
from daskmetrics.cli import main


def invoke(*words: str, answers: str | None = None) -> Result:
    return CliRunner().invoke(main, words, input=answers)


@pytest.fixture
def reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session_cache: Path) -> Path:
    """A labelled file in the current folder, whose columns no name gives away."""
    monkeypatch.chdir(tmp_path)
    rows = [
        f"the {word} was {how} on day {day},{how}"
        for day in range(4)
        for word in ("bread", "tea")
        for how in ("good", "bad")
    ]
    (tmp_path / "reviews.csv").write_text("\n".join(["body,stars", *rows]) + "\n")
    return tmp_path / "reviews.csv"


def test_run_accepts_what_was_written_from_options(reviews, minilm):
    data = ("--data", "reviews.csv", "--text", "body", "--label", "stars")
    words = ("--model", str(minilm), *data, "--tasks", "stdlib:order", "-o", "mine.yaml", "--yes")
    done = invoke("init", *words)
    assert done.exit_code == 0, done.output
    assert "daskmetrics run mine.yaml --dry-run" in done.output
    loaded = config.load("mine.yaml")
    assert loaded.name == "mine"
    assert loaded.tasks == ("file:reviews.csv(text=body, label=stars)", "stdlib:order")
    preview = invoke("run", "mine.yaml", "--dry-run")
    assert preview.exit_code == 0, preview.output
    assert not Path("runs").exists()


def test_run_accepts_what_was_written_from_answers(reviews, minilm):
    done = invoke("init", answers=f"{minilm}\nreviews.csv\nbody\nstars\nasked.yaml\n")
    assert done.exit_code == 0, done.output
    assert config.load("asked.yaml").tasks == ("file:reviews.csv(text=body, label=stars)",)


def test_the_default_is_the_built_in_tasks_and_the_name_of_the_model(reviews, minilm):
    done = invoke("init", "--model", str(minilm), "--yes")
    assert done.exit_code == 0, done.output
    (path,) = Path().glob("*.yaml")
    assert path.stem == minilm.name
    assert yaml.safe_load(path.read_text())["tasks"] == ["stdlib:demo"]


def test_every_key_has_a_comment_and_a_hub_id_compares_its_main_revision(reviews):
    assert (
        invoke(
            "init", "--model", "some/model", "--model", "other/model", "-o", "two.yaml", "--yes"
        ).exit_code
        == 0
    )
    text = Path("two.yaml").read_text()
    assert [model.name for model in config.load("two.yaml").models] == ["model-1", "model-2"]
    assert [model.revisions for model in config.load("two.yaml").models] == ["main", "main"]
    for line in text.splitlines():
        if line and not line.startswith(("#", "    ", "  - ", "tasks", "search")):
            assert " # " in line, line


def test_a_file_that_exists_is_not_replaced_without_force(reviews):
    words = "init", "--model", "some/model", "-o", "reviews.csv", "--yes"
    before = reviews.read_text()
    done = invoke(*words)
    assert done.exit_code == 2 and "already exists" in done.output and "--force" in done.output
    assert reviews.read_text() == before
    assert invoke(*words, "--force").exit_code == 0
    assert reviews.read_text() != before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--yes",), "name its folder or hub id with --model"),
        (("--model", "./nowhere", "--yes"), "'./nowhere' is neither a folder nor a hub id"),
        (("--model", "a/b", "--text", "body", "--yes"), "add --data FILE"),
        (("--model", "a/b", "--data", "none.csv", "--yes"), "File 'none.csv' does not exist"),
        (("--model", "a/b", "--data", "reviews.csv", "--text", "bdy", "--yes"), "bdy"),
        (("--model", "a/b", "--tasks", "stdlib:ordr", "--yes"), "Did you mean 'stdlib:order'?"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(reviews, words, message):
    done = invoke("init", *words)
    assert done.exit_code == 2
    assert message in done.output
    assert not list(Path().glob("*.yaml"))
