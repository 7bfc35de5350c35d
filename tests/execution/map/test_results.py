from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from daskmetrics.core.errors import ConfigError
from daskmetrics.core.status import Status
from daskmetrics.execution.map import ItemResult, aggregates, causes, dataset, frame, write
from daskmetrics.execution.map.result_table import check_output, summary_text

RESULTS = [
    ItemResult(
        "k2",
        2,
        "c",
        "c",
        "ok",
        {"loss": 0.5, "steps": [1, 2], "status": 7},
        seconds=0.1,
        worker="0",
    ),
    ItemResult(
        "k0", 0, "a", "a", "ok", {"loss": 1.5, "steps": [], "status": 8}, seconds=0.2, worker="1"
    ),
    ItemResult(
        "k1", 1, "b", {"b": 1}, "error", reason="ValueError: no", traceback="Traceback", attempts=4
    ),
]


def test_a_frame_has_one_row_per_item_in_order():
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
    read = (
        xr.open_zarr(path, consolidated=False)
        if path.suffix == ".zarr"
        else xr.open_dataset(path, engine="scipy")
    )
    with read:
        np.testing.assert_array_equal(read["loss"].values, [1.5, np.nan, 0.5])
        assert read["status"].values.tolist() == [1, 6, 1]
        assert [str(text) for text in read["name"].values] == ["a", "b", "c"]


def test_an_output_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="the suffix must be one of"):
        check_output(tmp_path / "results.xlsx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'daskmetrics\[table\]'"):
        check_output(tmp_path / "results.parquet")


@pytest.mark.parametrize("path", ["/proc/results.csv", "/dev/null/results.csv", "results.csv/"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path, path):
    (tmp_path / "results.csv").mkdir()
    with pytest.raises(ConfigError, match="Cannot write results to"):
        check_output(tmp_path / path)
    assert not any((tmp_path / "results.csv").iterdir())


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json", ".jsonl"])
@pytest.mark.parametrize("values", [(1, "a"), (2**70, 1), ("\ud800", "b")], ids=str)
def test_no_value_is_lost_to_a_format(tmp_path, suffix, values):
    path = tmp_path / f"results{suffix}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = write([result(i, value) for i, value in enumerate(values)], path)
    assert [str(written) in str(each.message) for each in caught] == [True] * (written != path)
    match written.suffix:
        case ".json":
            found = [row["value"] for row in json.loads(written.read_text())]
        case ".jsonl":
            found = [json.loads(line)["value"] for line in written.read_text().splitlines()]
        case ".parquet":
            found = list(pd.read_parquet(written)["value"])
        case _:
            assert len(pd.read_csv(written)) == len(values)
            return
    assert found == list(values)


def result(i, value=None, status="ok", **rest):
    return ItemResult(f"k{i}", i, str(i), i, status, value, **rest)


def test_aggregates_equal_those_of_a_plain_loop():
    values = [3.0, -1.0, 4.0, 1.5, 9.0, 2.6]
    table = aggregates([result(i, {"loss": value}) for i, value in enumerate(values)])
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    # p95 lies between the fifth and the sixth, at 0.95 x 5 = 4.75
    assert table.loc["loss"].to_dict() == pytest.approx(
        {"count": 6, "mean": mean, "std": std, "min": -1, "median": 2.8, "p95": 7.75, "max": 9}
    )


def test_failures_and_text_are_not_aggregated():
    results = [
        result(0, {"loss": 1, "name": "a", "mixed": 1, "good": True}),
        result(1, {"loss": 3, "name": "b", "mixed": "c", "good": False}),
        result(2, {"loss": 99}, "nan"),
        result(3, None, "error"),
    ]
    table = aggregates(results)
    assert list(table.index) == ["loss", "good"]
    assert (table.loc["loss", "count"], table.loc["loss", "max"]) == (2, 3.0)
    assert math.isnan(aggregates([result(0, 5)]).loc["value", "std"])
    assert aggregates([]).empty


def test_causes_that_differ_only_in_numbers_are_grouped():
    failed = [result(i, status="error", reason=f"ValueError: in {i} of 500") for i in range(3)]
    failed += [result(7, status="oom", reason="ValueError: in 7 of 500"), result(8, 1)]
    assert [(cause.status, len(cause.items)) for cause in causes(failed).itertuples()] == [
        ("error", 3),
        ("oom", 1),
    ]


def test_the_summary_lists_aggregates_counts_and_causes():
    text = summary_text([result(0, {"loss": 0.5}), result(1, status="oom", reason="CUDA")], total=5)
    lines = text.splitlines()
    assert lines[2].split() == ["loss", "1", "0.5", "0.5", "0.5", "0.5", "0.5"]
    assert lines[4:] == ["5 items: 1 ok, 1 failed, 3 to do.", "  1 x oom: CUDA", "      items 1"]
    assert summary_text([], 3) == "3 items: 0 ok, 0 failed, 3 to do."
