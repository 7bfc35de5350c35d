from __future__ import annotations

import json
from contextlib import ExitStack
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


def parsed(given=None, settings=(), folder=None, **arguments):
    return configured(given, arguments, settings, folder)[0]


def test_a_path_a_mapping_and_a_configuration_are_the_same(tmp_path):
    path = config.folder() / "demo.yaml"
    demo, folder = configured(path, {}, (), None)
    assert folder.path == Path("runs/demo").absolute()  # a run in the background stays there
    for given in (str(path), None, demo.as_dict(), demo):
        assert parsed(given) == demo
    assert configured(demo, {}, (), tmp_path)[1].path == tmp_path


def test_arguments_replace_the_file_and_settings_come_last():
    search = {"policy": "random"}
    changed = parsed(settings=["seed=4"], budget=0.2, seed=3, tasks="stdlib:order", search=search)
    assert (changed.search.budget, changed.search.policy, changed.seed) == (0.2, "random", 4)
    assert changed.tasks == ("stdlib:order",)
    assert changed.models == parsed().models


def test_a_cluster_is_a_profile_by_name_file_keys_or_object(tmp_path):
    file = tmp_path / "two.yaml"
    file.write_text("workers: 2")
    for profile in (file, str(file), {"workers": 2}, config.Cluster(workers=2)):
        assert parsed(cluster=profile).cluster == config.Cluster(workers=2)
    assert parsed(cluster="l40s").cluster == config.cluster("l40s")


def test_models_need_no_name_and_name_the_run():
    models = ["org/model-a", {"source": "b c", "layers": "blocks"}]
    named, folder = configured(None, {"models": models}, (), None)
    assert [model.name for model in named.models] == ["model-a", "b-c"]
    assert named.models[1].layers == "blocks"
    assert folder.path == Path("runs/model-a-and-1-model").absolute()
    assert configured(None, {"models": models}, (), "~/here")[1].path == Path.home() / "here"
    with pytest.raises(ConfigError, match="is a file"):
        configured(None, {"models": models}, (), __file__)


def test_a_table_becomes_a_task_whose_key_is_its_content(tmp_path):
    def task(data, folder):
        return tasks.resolve(parsed(folder=tmp_path / folder, models=["a"], tasks=[data]).tasks)[0]

    renamed = FRAME.rename(columns={"body": "text", "stars": "label"})
    first = task(REVIEWS, "one")
    assert (first.name, first.kind) == ("texts", "classification")
    assert first.key == task(REVIEWS, "two").key == task(renamed, "three").key
    assert first.key != task({**REVIEWS, "data": FRAME.assign(body=FRAME["body"] + "!")}, "one").key
    assert first.key == task(REVIEWS, "one").key  # the other content has a file of its own
    written = json.loads(Path(first.path).read_text().splitlines()[0])
    assert written == {"text": "text 0", "label": 1}
    assert Path(first.path).is_relative_to(tmp_path / "one")


def test_a_group_of_a_table_is_named_in_its_file(tmp_path):
    frame = FRAME.assign(author=[i // 4 for i in range(len(FRAME))])
    named = {**REVIEWS, "data": frame, "group": "author"}
    [task] = tasks.resolve(parsed(folder=tmp_path, models=["a"], tasks=[named]).tasks)
    assert (task.name, dict(task.options)) == ("texts", {"group": "group"})
    assert task.groups == frame["author"].nunique()


def test_tables_have_names_and_further_options(tmp_path):
    clustering = {**REVIEWS, "name": "mine", "kind": "clustering"}
    given = [REVIEWS, REVIEWS, clustering, "stdlib:order", Path("a.csv")]
    names = parsed(folder=tmp_path, models=["a"], tasks=given).tasks
    assert [name.rpartition("/")[2] for name in names] == [
        "texts.jsonl",
        "texts2.jsonl",
        "mine.jsonl(kind=clustering)",
        "stdlib:order",
        "file:a.csv",
    ]
    assert tasks.resolve([names[2]])[0].kind == "clustering"


def test_a_new_folder_goes_if_no_run_begins_in_it(tmp_path):
    for folder, kept in ((tmp_path / "runs" / "new", False), (tmp_path, True)):
        with pytest.raises(KeyError), ExitStack() as start:
            arguments = {"models": ["a"], "tasks": [REVIEWS]}
            configured(None, arguments, (), folder, start)
            assert (folder / "data").exists()
            (folder / "journal.jsonl").write_text("begun" if kept else "")
            if not kept:
                (folder / "journal.jsonl").unlink()
            raise KeyError
        assert folder.exists() == kept


MISSPELT = {**REVIEWS, "text": "bodi"}
UNKNOWN = {**REVIEWS, "lable": "stars"}


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
        ({"tasks": ["stdlib:order", MISSPELT]}, r"in tasks\[1\] .*Did you mean 'body'"),
        ({"tasks": [UNKNOWN]}, r"key of tasks\[0\] 'lable'. Did you mean 'label'"),
        ({"tasks": [{"text": "body"}]}, r"tasks\[0\]: 'data' is a NoneType"),
        ({"tasks": [{**REVIEWS, "name": "a/b"}]}, r"tasks\[0\]: the name 'a/b' is not valid"),
        ({"tasks": [FRAME[:0]]}, r"tasks\[0\]: the table has no rows"),
        ({"cluster": 3}, "cluster: got a int; pass a profile: .* passed as client="),
        ({"models": ["a"], "layers": "all"}, "Unknown argument 'layers'"),
    ],
)
def test_errors_name_the_argument_and_nothing_is_written(arguments, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        parsed(folder=tmp_path / "run", **arguments)
    assert not list(tmp_path.rglob("*.jsonl"))
