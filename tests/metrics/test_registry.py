"""The catalogue: names, order, plug-ins, and no torch on the login node."""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.metrics import Metric, catalogue, resolve
from daskmetrics.metrics.registry import CATALOGUE

ROOT = Path(__file__).parents[2]
module = import_module("daskmetrics.metrics.registry")
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


def test_all_are_nineteen_by_their_defaults_and_load():
    names = [metric.name for metric in resolve(["all"])]
    assert len(names) == 19 and names[:2] == ["prompt_entropy", "dataset_entropy"]
    assert [metric.load().__name__ for metric in resolve(["all"])] == names
    some = [metric.name for metric in resolve(["infonce", "curvature", "infonce"])]
    assert some == ["infonce", "curvature"]
    assert len(resolve(["infonce", "all", "spectral"])) == 19


@pytest.mark.parametrize("metric", CATALOGUE.values(), ids=CATALOGUE)
def test_parameters_are_those_of_the_function(metric):
    of = signature(metric.load()).parameters.values()
    keywords = {each.name: each.default for each in of if each.kind is each.KEYWORD_ONLY}
    assert (keywords.pop("leave_one_out", None) is not None) == metric.jackknife
    declared = {each.name: each.default for each in metric.parameters if each.name != "views"}
    assert keywords == declared
    assert list(map(type, keywords.values())) == [type(declared[name]) for name in keywords]
    assert all((metric.formula, metric.source, metric.cost, metric.units, metric.description))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("prompt_entropy(centred=false, alpha=2)", "prompt_entropy(alpha=2, centred=false)"),
        ("prompt_entropy(alpha=2.0,centred=False)", "prompt_entropy(alpha=2, centred=false)"),
        ("prompt_entropy(norm='logN')", "prompt_entropy(norm=logN)"),
        ("prompt_entropy(alpha=1, norm=none)", "prompt_entropy"),
        ("curvature()", "curvature"),
        ("infonce(temperature=0.5)", "infonce(temperature=0.5)"),
        ("rankme(eps=1e-9)", "rankme(eps=1e-09)"),
    ],
)
def test_equal_settings_have_one_name_which_can_be_parsed(call, name):
    (metric,) = resolve([call])
    assert metric.name == name
    assert resolve([name]) == (metric,)
    assert len(resolve([call, name])) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("curvature(j=2)", r"Unknown parameter of metric 'curvature' 'j'\..* Valid: k, variant\."),
        ("nesum(k=2)", "Metric 'nesum' has no parameters, got 'k'"),
        ("curvature(k=0)", "k must be a whole number of at least 1, got 0"),
        ("curvature(k=1.5)", "k must be a whole number of at least 1, got 1.5"),
        ("curvature(k=true)", "k must be a whole number of at least 1, got true"),
        ("infonce(temperature=0)", "temperature must be a number above 0, got 0"),
        ("infonce(temperature=1e999)", "temperature must be a number above 0"),
        ("prompt_entropy(centred=2)", "centred must be true or false, got 2"),
        ("prompt_entropy(norm=logn)", "'logn'. Did you mean 'logN'"),
        ("prompt_entropy(norm=2)", "norm must be none or logN or"),
        ("prompt_entropy(alpha=2", "is not a metric: write NAME or NAME.* in quotes"),
        ("centred=false)", "is not a metric: write NAME"),
        ("curvature(2)", "'2' is not of the form name=value"),
        ("curvature(k=__import__('os'))", "is not a metric"),
        ("curvature(k=1, k=2)", "its name stands twice"),
        ("a.b(k=2)", r"Unknown metric 'a\.b'"),
        ("spectral(centred=true)", "Unknown metric 'spectral'"),
        ("curvatur", "Unknown metric 'curvatur'. Did you mean 'curvature'.* Valid: alignment, all"),
    ],
)
def test_the_error_for_an_invalid_call_has_a_remedy(call, message):
    with pytest.raises(ConfigError, match=message):
        resolve([call])


def test_a_custom_metric_is_named_by_its_place_or_passed(plug_in):
    plug_in("metrics_of_a_plug_in:mine")
    assert resolve(["metrics_of_a_plug_in:mine"]) == resolve(["mine"]) == resolve([mine]) == (mine,)
    assert resolve(["all"])[-1] == mine
    assert mine.identity.startswith("mine@math:floor@")
    assert resolve(["curvature(k=2)"])[0].identity == "curvature(k=2)"
    with pytest.raises(ConfigError, match="Two different metrics have the name 'curvature'"):
        resolve(["curvature", taken])
    with pytest.raises(ConfigError, match=r"must be a daskmetrics.metrics.Metric, but is a type"):
        resolve(["metrics_of_a_plug_in:ConfigError"])
    with pytest.raises(ConfigError, match=r"Metric 'nowhere.at:all' cannot be loaded"):
        resolve(["nowhere.at:all"])
    with pytest.raises(ConfigError, match="'math:nothing' of the metric 'lost' cannot be loaded"):
        Metric("lost", "pooled", "1", "", "math:nothing").load()


def test_the_identity_of_a_custom_metric_follows_its_file(tmp_path, monkeypatch):
    path = tmp_path / "own_metric.py"
    monkeypatch.syspath_prepend(tmp_path)
    metric = Metric("own", "pooled", "1", "", "own_metric:own")

    def identity(source):
        path.write_text(source)
        return metric.identity

    first = identity("raise ImportError")  # a login node does not import it
    assert identity("raise ImportError") == first != identity("def own(rows): ...")
    monkeypatch.setitem(sys.modules, "made_here", ModuleType("made_here"))  # without a file
    assert Metric("own", "pooled", "1", "", "made_here:own").identity == "own@made_here:own@"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("metrics_of_a_plug_in:taken", "'curvature' of .*:taken' exists already"),
        ("metrics_of_a_plug_in:pytest", "must be a daskmetrics.metrics.Metric, but is a module"),
        ("metrics_of_a_plug_in:gone", "cannot be loaded: .* or repair it"),
        (
            "metrics_of_no_module:mine",
            "cannot be loaded: ModuleNotFoundError: No module named 'metrics_of_no_module'",
        ),
    ],
)
def test_the_error_for_an_invalid_plug_in_names_it(plug_in, value, message):
    plug_in(value)
    with pytest.raises(ConfigError, match=message):
        catalogue()


def test_the_tables_of_the_docs_are_up_to_date():
    page = ROOT / "docs" / "metrics.md"
    check = [sys.executable, ROOT / "docs" / "catalogue.py", "--check"]
    assert subprocess.run(check, check=False).returncode == 0
    differs = page.read_text(encoding="utf-8").partition("## Definitions, and")[2]
    rows = [
        line.split("|")[1].strip(" `") for line in differs.splitlines() if line.startswith("| `")
    ]
    assert rows == list(CATALOGUE)
