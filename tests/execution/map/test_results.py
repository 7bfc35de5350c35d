from __future__ import annotations

import json
import math
import warnings

import pandas as pd
import pytest

from daskmetrics.core.errors import ConfigError
from daskmetrics.execution.map import ItemResult, aggregates, causes, frame, write
from daskmetrics.execution.map.result_table import Summary, check_output


def result(i, value=None, status="ok", **rest):
    return ItemResult(f"k{i}", i, str(i), i, status, value, **rest)


RESULTS = [
    ItemResult("k2", 2, "c", "c", "ok", {"loss": 0.5, "steps": [1, 2], "status": 7}, seconds=0.1),
    ItemResult("k0", 0, "a", "a", "ok", {"loss": 1.5, "steps": [], "status": 8}, seconds=0.2),
    ItemResult("k1", 1, "b", {"b": 1}, "error", reason="ValueError: no", traceback="Trace"),
]


def test_a_frame_has_one_row_per_item_in_order():
    table = frame(RESULTS)
    assert list(table["item"]) == ["a", '{"b": 1}', "c"]
    assert list(table["status"]) == ["ok", "error", "ok"]
    assert table["loss"].isna().tolist() == [False, True, False]
    assert list(table["steps"])[2] == "[1, 2]"
    assert table["value.status"].dropna().tolist() == [8, 7]  # a field does not hide a column


@pytest.mark.parametrize(
    ("value", "fields"),
    [
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": 1, "value.a.b": 2}),
        ({"value": 1, "": 2, "seconds": 3}, {"value": 1, "value.value": 2, "value.seconds": 3}),
    ],
)
def test_no_field_hides_another(value, fields):
    assert frame([result(0, value)])[list(fields)].to_dict("records") == [fields]


def test_integers_stay_whole_beside_a_failed_item(tmp_path):
    results = [
        ItemResult("a", 0, "0", 0, "ok", value={"n": 4}),
        ItemResult("b", 1, "1", 1, "error", reason="no"),
    ]
    lines = write(results, tmp_path / "own.csv").read_text().splitlines()
    assert [line.rpartition(",")[2] for line in lines] == ["n", "4", ""]


def test_an_output_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "results.csv").mkdir()
    for path in ("/proc/results.csv", "/dev/null/results.csv", "results.csv/"):
        with pytest.raises(ConfigError, match="Cannot write results to"):
            check_output(tmp_path / path)
    assert not any((tmp_path / "results.csv").iterdir())
    with pytest.raises(ConfigError, match="the suffix must be one of"):
        check_output(tmp_path / "results.xlsx")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'daskmetrics\[table\]'"):
        check_output(tmp_path / "results.parquet")


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json", ".jsonl"])
@pytest.mark.parametrize(
    "values", [(1, "a"), (2**70, 1), ("\ud800", "b"), (2**60 + 1, None), (2**70, None)], ids=str
)
def test_no_value_is_lost_to_a_format(tmp_path, suffix, values):
    path = tmp_path / f"results{suffix}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        written = write([result(i, value) for i, value in enumerate(values)], path)
    assert [str(written) in str(warning.message) for warning in caught] == [True] * (
        written != path
    )
    match written.suffix:
        case ".json":
            read = [row["value"] for row in json.loads(written.read_text())]
        case ".jsonl":
            read = [json.loads(line)["value"] for line in written.read_text().splitlines()]
        case ".parquet":
            read = pd.read_parquet(written, dtype_backend="numpy_nullable")["value"]
            read = [None if pd.isna(value) else value for value in read]
        case _:
            table = pd.read_csv(written, dtype=str, keep_default_na=False)
            assert list(table["value"]) == ["" if value is None else str(value) for value in values]
            return
    assert read == list(values)


def test_aggregates_equal_a_plain_loop_without_failures_and_text():
    values = [3.0, -1.0, 4.0, 1.5, 9.0, 2.6]
    done = [
        result(i, {"loss": value, "name": "a", "mixed": i or "c", "good": True})
        for i, value in enumerate(values)
    ]
    table = aggregates([*done, result(7, {"loss": 99}, "nan"), result(8, None, "error")])
    assert list(table.index) == ["loss", "good"]
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    # p95 lies between the fifth and the sixth, at 0.95 x 5 = 4.75
    assert table.loc["loss"].to_dict() == pytest.approx(
        {"count": 6, "mean": mean, "std": std, "min": -1, "median": 2.8, "p95": 7.75, "max": 9}
    )
    assert math.isnan(aggregates([result(0, 5)]).loc["value", "std"])
    assert aggregates([]).empty
    # a map yields results as they come
    assert list(aggregates([result(1, {"b": 1}), result(0, {"a": 1})]).index) == ["a", "b"]


def test_integers_beyond_all_floats_have_no_statistics():
    results = [result(0, {"a": 1, "b": 10**400}), result(1, {"a": 2, "b": 3})]
    assert list(aggregates(results).index) == ["a"]
    assert "no statistics of b" in Summary.of(results).text(2)


def test_causes_differing_only_in_numbers_are_grouped_and_listed():
    failed = [result(7, status="oom", reason="ValueError: in 7 of 500"), result(8, 1)]
    failed += [result(i, status="error", reason=f"ValueError: in {i} of 500") for i in range(3)]
    assert [(cause.status, len(cause.items)) for cause in causes(failed).itertuples()] == [
        ("error", 3),
        ("oom", 1),
    ]
    results = [result(0, {"loss": 0.5}), result(1, status="oom", reason="CUDA")]
    text = Summary.of(results).text(2)
    lines = text.splitlines()
    assert lines[2].split() == ["loss", "1", "0.5", "0.5", "0.5", "0.5", "0.5"]
    assert lines[4:] == ["2 items: 1 ok, 1 failed.", "  1 x oom: CUDA", "      items 1"]
    assert Summary().text(3) == "3 items: 0 ok, 0 failed, 3 to do."
    troubled = Summary(repeated=1).text(3, died=2)
    assert troubled.endswith("3 to do; 1 attempt repeated, 2 workers died.")
