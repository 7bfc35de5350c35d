from __future__ import annotations

import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.planning import _scenario as scenario


def write(path, text):
    path.write_text(text)
    return path


def test_offers_of_a_thousand_gpus(tmp_path):
    text = "partitions: [{name: p, device: h100, nodes: 125, gpus_per_node: 8, counts: [1, 125], free: 8, price: 3}]"
    one, all_ = scenario.offers(write(tmp_path / "p.yaml", text))
    assert (one.workers, one.wait.value) == (8, 0.0) and all_.workers == 1000 and "assumed" in all_.wait.source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partitions: []", "partitions"),
        ("partitions: [{name: p}]", "device"),
        ("partition: x", "Keys at the top: partitions"),
        ("- x", "key: value"),
        ("{", "not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        scenario.offers(write(tmp_path / "p.yaml", text))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        scenario.offers(tmp_path / "nothing.yaml")
    assert not scenario.is_workload(tmp_path / "nothing.yaml")
