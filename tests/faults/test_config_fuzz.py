"""Configurations that somebody got wrong, or meant ill: one clear message, and nothing happens
outside the run.
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskmetrics import config, experiment
from daskmetrics.cluster.slurm.script import LaunchInfo, pools, script
from daskmetrics.config import Cluster
from daskmetrics.core.errors import ConfigError, DaskmetricsError

WHOLE = config.parse(
    {
        "name": "x",
        "models": [{"name": "a", "train": {"width": 16}}, {"name": "b", "source": "./m"}],
        "tasks": ["stdlib:order"],
        "cluster": {"kind": "slurm", "partition": "gpu", "account": "abc", "memory": "16GiB"},
    }
).as_dict()

NASTY = [
    "../../up", "/etc/passwd", "a\nrm -rf ~", "a\r\n#SBATCH --uid=0", "a\x00b", "x" * 100_000, "naïve\u202e\u0000", "\ud800",
    "$(touch here)", "`touch here`", "; touch here", "<script>", "\x1b[2J", "", " ", "-rf", "~", ".", True, None, -1, 10**30,
    float("nan"), float("inf"), [], {}, [[1]], {"preset": ["x"]}, {"profile": {"a": 1}}, {1: 2}, "2001-99-99",
]  # fmt: skip
values = (
    st.sampled_from(NASTY)
    | st.text(max_size=50)
    | st.integers()
    | st.floats()
    | st.lists(st.text(max_size=5))
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a configuration that holds something."""
    found = [path]
    if isinstance(node, list):
        node = dict(enumerate(node))
    if isinstance(node, dict):
        for key, child in node.items():
            found += places(child, (*path, key))
    return found


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


PLACES = [place for place in places(WHOLE) if place]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(PLACES), values), min_size=1, max_size=3),
    st.none() | st.text(max_size=20),
)
@example([(("protocol", "dtype"), "\ud800")], None)
def test_any_value_in_any_place_is_accepted_or_named(changes, extra_key):
    data = copy.deepcopy(WHOLE)
    for place, value in changes:
        try:
            put(data, place, value)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    if extra_key is not None:
        data[extra_key] = 1
    try:
        found = config.parse(data)
    except ConfigError as error:
        assert 0 < len(str(error)) < 20_000
    else:
        assert_harmless(found)


def assert_harmless(found: config.Config) -> None:
    """Nothing in it leaves its folder or its line."""
    names = [found.name, *(model.name for model in found.models)]
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", name) for name in names)
    for pool in pools(found.cluster):
        lines = script(pool, LaunchInfo(run=found.name)).split("\n")
        assert all(line.isprintable() for line in lines)
        assert len(lines) == len(
            script(replace(pool, profile=tamed(pool.profile)), LaunchInfo()).split("\n")
        )


def tamed(cluster: Cluster) -> Cluster:
    """The profile with one harmless letter in place of each line of the user's."""
    lists = {name: ("x",) * len(value) for name, value in cluster if isinstance(value, tuple)}
    return cluster.model_copy(update={**lists, "exports": dict.fromkeys(cluster.exports, "x")})


@pytest.mark.parametrize("nasty", NASTY, ids=lambda value: repr(value)[:20])
def test_nothing_is_started_or_written_outside(tmp_path, monkeypatch, nasty):
    """Up to the point where work would begin, with what reads folders and texts of these names."""
    monkeypatch.chdir(tmp_path)
    trained = {"name": "a", "train": {"width": 8, "depth": 1, "steps": 2}}
    revised = {"name": "a", "source": "owner/name", "depth": 1, "width": 8, "revisions": [nasty]}
    for changes in (
        {"name": nasty},
        {"models": [{**trained, "name": nasty}]},
        {"models": [{"name": "a", "source": nasty}]},
        {"models": [revised]},
        {"corpus": {"source": nasty}},
        {"metrics": [nasty]},
        {"tasks": [nasty]},
        {"cluster": nasty},
    ):
        try:
            experiment.prepare(config.parse({"name": "x", "models": [trained], **changes}))
        except DaskmetricsError as error:
            assert len(str(error)) < 20_000
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("walltime: 45000", "'cluster.walltime': got 45000"),
        ("workers: yes", "reads on, off, yes and no"),
        ("memory: lots", "'cluster.memory': got 'lots'"),
        ("arrive_within: .inf", "finite"),
        ("workers: 1:30", "'cluster.workers': got '1:30'"),  # 90 in YAML 1.1
        ('directives: ["--mem=1\\nrm"]', "cluster.directives"),
        ('prologue: ["true\\nrm -rf ~"]', "cluster.prologue"),
        ('exports: {A: "1\\nrm -rf ~"}', "cluster.exports"),
        ("kind: 2001-99-99", "not valid YAML"),
        ("workers: " + "9" * 5000, "not valid YAML"),
        ("prologue: " + "[" * 5000, "not valid YAML"),
    ],
)
def test_traps_of_yaml_have_one_clear_message(tmp_path, text, message):
    path = tmp_path / "x.yaml"
    path.write_text("name: x\nmodels: [{name: a, source: ./m}]\ncluster:\n  kind: slurm\n  " + text)
    if text.startswith("kind"):
        path.write_text(path.read_text().replace("  kind: slurm\n", ""))
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        config.load(path)
    assert len(str(caught.value)) < 2000
    path.write_text("name: x\nmodels: [{name: a, train: {learning_rate: 1e-5}}]\n")
    assert config.load(path).models[0].train.learning_rate == 1e-5  # which YAML reads as text
    path.write_text(
        "name: x\nmodels: [{name: a, source: ./m}]\ncluster: {kind: slurm, walltime: 12:30:00}\n"
    )
    assert config.load(path).cluster.walltime == "12:30:00"  # which YAML 1.1 reads as 45000
