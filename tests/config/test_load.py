from __future__ import annotations

import re
from functools import reduce

import dask.config
import pytest
import yaml

from daskmetrics import config
from daskmetrics.core.errors import ConfigError
from daskmetrics.metrics import resolve

SMALL = {"name": "x", "models": [{"name": "a", "source": "somewhere"}]}


def with_(**changes):
    return {**SMALL, **changes}


@pytest.fixture
def path(tmp_path):
    """A file with the smallest configuration."""
    path = tmp_path / "x.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


WRONG = [5, 1.5, "word", [1], ["w"], [["w"]], {"k": 1}, None, ""]


@pytest.mark.parametrize("key", list(config.Config.model_fields))
def test_a_value_of_a_wrong_type_is_told_what_to_write(key):
    nested = {key: "k"}  # a section says the same of its keys
    section = config.Config.model_fields[key].annotation
    for inner in getattr(section, "model_fields", {}):
        nested[inner] = "section"
    for value in WRONG:
        for data in [with_(**{key: value}), *(with_(**{key: {k: value}}) for k in nested)]:
            try:
                config.parse(data)
            except ConfigError as error:
                assert not re.search(r"Input should|valid (tuple|string|dict)", str(error))


def test_a_single_value_is_shown_as_a_list():
    with pytest.raises(ConfigError, match=re.escape("write models: [./minilm].")):
        config.parse(with_(models="./minilm"))
    with pytest.raises(ConfigError, match="write 'all' or 'blocks', or write layers: \\[5\\]"):
        config.parse(with_(models=[{"source": "./a", "layers": 5}]))


def test_a_missing_file_names_the_one_of_the_other_ending(path):
    with pytest.raises(ConfigError, match=r"x.yml'. Did you mean '.*x.yaml'\?"):
        config.load(path.with_suffix(".yml"))


def test_ready_made_configurations_and_profiles_are_valid():
    for path in config.folder().glob("*.yaml"):
        assert config.load(path).name == path.stem
    for path in (config.folder() / "clusters").glob("*.yaml"):
        assert config.parse(with_(cluster=path.stem)).cluster.workers >= 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_(serch={}), "Unknown key 'serch'. Did you mean 'search'?"),
        (with_(seed=reduce(lambda inner, _: [inner], range(100_000), [])), "cannot be written"),
        (with_(search={"buget": 0.1}), "Unknown key 'buget'. Did you mean 'budget'?"),
        (with_(models=[{"name": "a", "train": {"wdth": 8}}]), "'wdth'. Did you mean 'width'?"),
        (with_(models=[{"name": "a"}]), "needs one of 'source', 'train' and 'enc"),
        (with_(models=[]), "write at least one value"),
        (with_(models=[SMALL["models"][0]] * 2), "names must differ"),
        (with_(name="a\nrm -rf ~"), "letters, digits"),
        (with_(protocol="corected"), "Did you mean 'corrected'?"),
        (with_(cluster="l40"), "Did you mean 'l40s'?"),
        (with_(cluster={"walltime": 45000}), "'cluster.walltime': got 45000"),
        (with_(search={"budget": 1.5}), "at most 1, or 'auto'"),
        (with_(search={"budget": "much"}), "at most 1, or 'auto'"),
        (with_(protocol={"pooling": "max"}), "'mean', 'last' or 'cls'"),
        ({"name": "x"}, "'models' is missing."),
    ],
)
def test_each_mistake_has_one_clear_message(data, message):
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        config.parse(data)
    assert len(str(caught.value).splitlines()) == 1


def test_settings_reach_any_depth_and_into_named_sections(path):
    settings = ["search.budget=5e-2", "models.0.layers=[1, 2]", "protocol.preset=paper"]
    loaded = config.load(path, [*settings, "cluster.workers=7"])
    assert (loaded.search.budget, loaded.models[0].layers) == (0.05, (1, 2))
    assert (loaded.cluster.workers, loaded.protocol.padding) == (7, "left")

    named = with_(cluster="a100", protocol="paper")
    loaded = config.load(named, ["cluster.workers=3", "protocol.max_length=64"])
    assert (loaded.cluster.gpu_type, loaded.cluster.workers) == ("a100", 3)
    assert (loaded.protocol.padding, loaded.protocol.max_length) == ("left", 64)


@pytest.mark.parametrize("setting", ["budget", "=3", "models.3.name=x", "name.deep=1"])
def test_a_bad_setting_is_an_error(path, setting):
    with pytest.raises(ConfigError, match="--set"):
        config.load(path, [setting])


def test_the_experiment_overrides_the_site_and_that_the_profile():
    site = {
        "account": 123,
        "gpu_type": "h100",
        "workers": 5,
        "exports": {"A": "1", "B": "1"},
        "scoring": {"workers": 3},
    }
    changes = {"workers": 9, "exports": {"B": "2"}, "scoring": {"partition": "cpu"}}
    with dask.config.set({"daskmetrics.cluster": site}):
        loaded = config.parse(with_(cluster={"profile": "a100", **changes})).cluster
    assert (loaded.account, loaded.gpu_type, loaded.workers) == ("123", "h100", 9)
    assert loaded.exports == {"A": "1", "B": "2"}
    assert (loaded.scoring.workers, loaded.scoring.partition) == (3, "cpu")
    with (
        dask.config.set({"daskmetrics.cluster": "l40s"}),
        pytest.raises(ConfigError, match="Dask's configuration: got 'l40s'; write 'key: value'"),
    ):
        config.parse(SMALL)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"workers": 2, "fewest": 3}, "fewest is 3, which is more than the 2 workers"),
        ({"max_memory": "8GiB"}, "max_memory is 8GiB, so memory, with which jobs begin"),
        ({"memory": "9GiB", "max_memory": "8GiB"}, "jobs begin, must be set, to less"),
        ({"partition": ["gpu", "c p u"]}, "partition"),
        ({"partition": []}, "partition"),
        ({"scoring": {"workers": 2, "fewest": 3}}, "fewest is 3, which is more than the 2 workers"),
        ({"scoring": {"gpus": 1}}, "Unknown key 'gpus'. Valid: directives"),
        ({"walltime": "1 hour"}, "must be a time such as '12:30:00'"),
        ({"directives": ["exclusive"]}, "an option of sbatch such as '--exclusive'"),
        ({"exports": {"A B": "1"}}, "the name of a variable"),
        ({"logs": "my logs"}, "without spaces"),
        ({"workers": 0}, "write a number from 1 on"),
    ],
)
def test_an_impossible_profile_is_an_error(keys, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        config.cluster({"kind": "slurm", **keys})


@pytest.mark.parametrize("text", ["a: [1", "- a\n- b", "\x00"])
def test_a_file_that_is_not_a_mapping_is_an_error(path, text):
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        config.load(path)


def test_other_encodings_and_folders_of_runs_name_the_remedy(path, monkeypatch):
    path.write_text("name: x", encoding="utf-16")
    with pytest.raises(ConfigError, match=r"is UTF-16 text.*iconv"):
        config.load(path)
    run = path.parent / "runs" / "mine"
    run.mkdir(parents=True)
    for name in ("config.yaml", "journal.jsonl"):
        (run / name).touch()
    monkeypatch.chdir(path.parent)
    for given in (run, "mine"):
        with pytest.raises(
            ConfigError, match=r"daskmetrics run \S*mine/config.yaml --folder \S*mine"
        ):
            config.load(given)
    path.with_name("mine").write_text(yaml.safe_dump(SMALL))  # a file of this name is meant
    assert config.load("mine").name == "x"


@pytest.mark.parametrize("text", ["seed: 1\nname: a\nseed: 2\n", "search: {seed: 1, seed: 2}"])
def test_a_key_that_is_there_twice_is_an_error(path, text):
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"'seed' is there twice; keep one[^$]*line [13]"):
        config.load(path)
    path.write_text(
        "name: x\nmodels:\n- &a {name: a, source: ./a}\n- {<<: *a, name: b, layers: blocks}\n"
    )
    assert [model.source for model in config.load(path).models] == ["./a", "./a"]


@pytest.mark.parametrize(("text", "seed"), [("010", 10), ("12", 12), ("0", 0)])
def test_numbers_are_decimal(path, text, seed):
    path.write_text(
        f"name: x\nmodels: [{{name: a, source: ./a, revisions: [0123456]}}]\nseed: {text}"
    )
    loaded = config.load(path)
    # the revision is a commit, whose digits stay
    assert (loaded.seed, loaded.models[0].revisions) == (seed, ("0123456",))


def test_the_default_metrics_take_one_forward_pass():
    assert [metric.views for metric in resolve(config.parse(SMALL).metrics)] == [1, 1, 1]
