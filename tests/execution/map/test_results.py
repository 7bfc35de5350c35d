from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.status import Status
from daskmetrics.execution import map
from daskmetrics.execution.map import Result, dataset, frame, write

RESULTS = [
    Result("k2", 2, "c", "c", "ok", {"loss": 0.5, "steps": [1, 2], "status": 7}, seconds=0.1, worker="0"),
    Result("k0", 0, "a", "a", "ok", {"loss": 1.5, "steps": [], "status": 8}, seconds=0.2, worker="1"),
    Result("k1", 1, "b", {"b": 1}, "error", reason="ValueError: no", traceback="Traceback", attempts=4),
]


def test_a_row_per_item_in_order():
    table = frame(RESULTS)
    assert list(table["item"]) == ["a", '{"b": 1}', "c"]
    assert list(table["status"]) == ["ok", "error", "ok"]
    assert table["loss"].isna().tolist() == [False, True, False]
    assert list(table["steps"])[2] == "[1, 2]"
    assert table["value.status"].dropna().tolist() == [8, 7]  # a field does not hide a column


def test_arrays_have_an_explicit_status():
    data = dataset(RESULTS, count=4)
    assert list(data["name"].values) == ["a", "b", "c", ""]
    assert data["status"].values.tolist() == [Status.OK, Status.ERROR, Status.OK, Status.MISSING]
    np.testing.assert_array_equal(data["loss"].values, [1.5, np.nan, 0.5, np.nan])
    assert "steps" not in data


@pytest.mark.parametrize("name", ["results.parquet", "results.csv"])
def test_tables_are_read_back(tmp_path, name):
    path = tmp_path / "deep" / name
    write(RESULTS, path)
    read = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    pd.testing.assert_series_equal(read["loss"], frame(RESULTS)["loss"])
    assert list(read["status"]) == ["ok", "error", "ok"]
    assert [entry.name for entry in path.parent.iterdir()] == [name]


def test_lines_are_read_back(tmp_path):
    write(RESULTS, tmp_path / "results.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [line["item"] for line in lines] == ["a", {"b": 1}, "c"]
    assert lines[1]["traceback"] == "Traceback"


@pytest.mark.parametrize("name", ["results.zarr", "results.nc"])
def test_arrays_are_read_back(tmp_path, name):
    path = tmp_path / name
    for _ in range(2):  # an older one is replaced
        write(RESULTS, path)
    read = xr.open_zarr(path, consolidated=False) if path.suffix == ".zarr" else xr.open_dataset(path, engine="scipy")
    with read:
        np.testing.assert_array_equal(read["loss"].values, [1.5, np.nan, 0.5])
        assert read["status"].values.tolist() == [1, 6, 1]
        assert [str(text) for text in read["name"].values] == ["a", "b", "c"]


def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="the suffix must be one of"):
        map.check_output(tmp_path / "results.xlsx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'daskmetrics\[table\]'"):
        map.check_output(tmp_path / "results.parquet")
