"""The catalogue: names, order, plug-ins, and no torch on the login node."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint

import pytest

from daskmetrics.errors import ConfigError
from daskmetrics.metrics import Metric, catalogue, resolve

module = import_module("daskmetrics.metrics.catalogue")
mine = Metric("mine", "pooled", "nats", "made for this test", "math:floor")
taken = Metric("curvature", "pooled", "nats", "has the name of another", "math:floor")


@pytest.fixture
def plug_in(monkeypatch):
    """Installs one entry point that points at the given place."""

    def install(value: str) -> None:
        point = EntryPoint("mine", value, "daskmetrics.metrics")
        monkeypatch.setattr(module, "entry_points", lambda group: [point])
        monkeypatch.setitem(sys.modules, "metrics_of_a_plug_in", sys.modules[__name__])

    return install


def test_all_are_six_and_load():
    names = ["prompt_entropy", "dataset_entropy", "effective_rank", "curvature", "anisotropy", "infonce"]
    assert [metric.name for metric in resolve(["all"])] == names
    assert [metric.load().__name__ for metric in resolve(["all"])] == names


def test_order_is_kept_and_what_is_named_twice_comes_once():
    assert [metric.name for metric in resolve(["infonce", "curvature", "infonce"])] == ["infonce", "curvature"]
    assert resolve(["infonce", "all"])[0].name == "infonce"
    assert len(resolve(["infonce", "all"])) == 6


def test_an_unknown_name_meets_its_neighbour():
    with pytest.raises(
        ConfigError, match=r"Unknown metric 'curvatur'\. Did you mean 'curvature'\? Valid: all, anisotropy,"
    ):
        resolve(["all", "curvatur"])


def test_the_catalogue_cannot_be_changed():
    with pytest.raises(TypeError):
        catalogue()["mine"] = mine


def test_an_input_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"Unknown input of metric 'mine' 'token'\. Did you mean 'tokens'\?"):
        Metric("mine", "token", "nats", "", "math:floor")


def test_a_plug_in_joins(plug_in):
    plug_in("metrics_of_a_plug_in:mine")
    assert resolve(["mine"]) == (mine,)
    assert resolve(["all"])[-1] == mine


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("metrics_of_a_plug_in:taken", "'curvature' of 'metrics_of_a_plug_in:taken' exists already"),
        ("metrics_of_a_plug_in:pytest", "must name a Metric, but is a module"),
        ("metrics_of_a_plug_in:gone", "cannot be loaded: .* Repair or uninstall it"),
        ("metrics_of_nobody:mine", "cannot be loaded: No module named 'metrics_of_nobody'"),
    ],
)
def test_a_plug_in_that_does_not_fit_is_named(plug_in, value, message):
    plug_in(value)
    with pytest.raises(ConfigError, match=message):
        catalogue()


def test_names_views_and_answers_need_no_torch():
    code = (
        "import sys, daskmetrics.metrics, daskmetrics.metrics.views, daskmetrics.metrics.reduced;"
        "daskmetrics.metrics.resolve(['all']);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
