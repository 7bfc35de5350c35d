from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

from daskmetrics import config, tasks
from daskmetrics.core.errors import ConfigError
from daskmetrics.experiment import configured

FRAME = pandas.DataFrame(
    {"body": [f"text {i}" for i in range(40)], "stars": [1, 2] * 20, "note": ["x"] * 40}
)
REVIEWS = {"data": FRAME, "text": "body", "label": "stars"}


def test_a_path_a_mapping_and_a_configuration_are_the_same(tmp_path):
    path = config.folder() / "demo.yaml"
    parsed, folder = configured(path, {}, (), None)
    assert configured(str(path), {}, (), None)[0] == configured(None, {}, (), None)[0] == parsed
    assert (
        configured(parsed.as_dict(), {}, (), None)[0]
        == configured(parsed, {}, (), None)[0]
        == parsed
    )
    assert folder.path == Path("runs/demo")
    assert configured(parsed, {}, (), tmp_path)[1].path == tmp_path


def test_arguments_replace_what_the_file_says_and_settings_come_last():
    arguments = {
        "budget": 0.2,
        "seed": 3,
        "tasks": "stdlib:order",
        "search": {"policy": "random"},
    }
    parsed, _ = configured(None, arguments, ["seed=4"], None)
    assert (parsed.search.budget, parsed.search.policy, parsed.seed) == (0.2, "random", 4)
    assert parsed.tasks == ("stdlib:order",)
    assert parsed.models == configured(None, {}, (), None)[0].models


def test_models_need_no_name_and_name_the_run():
    parsed, folder = configured(
        None, {"models": ["org/model-a", {"source": "b c", "layers": "blocks"}]}, (), None
    )
    assert [model.name for model in parsed.models] == ["model-a", "b-c"]
    assert parsed.models[1].layers == "blocks"
    assert folder.path == Path("runs/model-a-and-1-model")


def test_a_table_becomes_a_task_whose_key_is_its_content(tmp_path):
    def task(data, folder):
        parsed, _ = configured(None, {"models": ["a"], "tasks": [data]}, (), tmp_path / folder)
        return tasks.resolve(parsed.tasks)[0]

    renamed = FRAME.rename(columns={"body": "text", "stars": "label"})
    first = task(REVIEWS, "one")
    assert (first.name, first.kind) == ("file:texts.jsonl", "classification")
    assert first.key == task(REVIEWS, "two").key == task(renamed, "three").key
    assert first.key != task({**REVIEWS, "data": FRAME.assign(body=FRAME["body"] + "!")}, "one").key
    assert first.key == task(REVIEWS, "one").key  # the other content has a file of its own
    written = json.loads(Path(first.path).read_text().splitlines()[0])
    assert written == {"text": "text 0", "label": 1}
    assert Path(first.path).is_relative_to(tmp_path / "one")


def test_tables_have_names_and_further_options(tmp_path):
    given = [
        REVIEWS,
        REVIEWS,
        {**REVIEWS, "name": "mine", "kind": "clustering"},
        "stdlib:order",
        Path("a.csv"),
    ]
    parsed, _ = configured(None, {"models": ["a"], "tasks": given}, (), tmp_path)
    ends = [each.rpartition("/")[2] for each in parsed.tasks]
    assert ends == [
        "texts.jsonl",
        "texts2.jsonl",
        "mine.jsonl(kind=clustering)",
        "stdlib:order",
        "file:a.csv",
    ]
    assert tasks.resolve([parsed.tasks[2]])[0].kind == "clustering"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modles": ["a"]}, "Unknown argument 'modles'. Did you mean 'models'"),
        ({"models": [3]}, r"models\[0\]: got a int"),
        ({"models": []}, "models: got list"),
        ({"budget": 20}, "search.budget': got 20"),
        ({"budget": True}, "'budget' is True"),
        ({"budget": 0.1, "search": {"budget": 0.2}}, "budget: the argument 'search' has one"),
        ({"tasks": [3]}, r"tasks\[0\]: got a int"),
        ({"tasks": 3}, "tasks: got int"),
        (
            {"tasks": ["stdlib:order", {**REVIEWS, "text": "bodi"}]},
            r"Unknown column in tasks\[1\] .*Did you mean 'body'",
        ),
        (
            {"tasks": [{**REVIEWS, "lable": "stars"}]},
            r"Unknown key of tasks\[0\] 'lable'. Did you mean 'label'",
        ),
        ({"tasks": [{"text": "body"}]}, r"tasks\[0\]: 'data' is a NoneType"),
        ({"tasks": [{**REVIEWS, "name": "a/b"}]}, r"tasks\[0\]: the name 'a/b' is not valid"),
        ({"tasks": [FRAME[:0]]}, r"tasks\[0\]: the table has no rows"),
        ({"models": ["a"], "layers": "all"}, "Unknown argument 'layers'"),
    ],
)
def test_errors_name_the_argument_and_nothing_is_written(arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        configured(None, arguments, (), tmp_path / "run")
    assert not list(tmp_path.rglob("*.jsonl"))
