from __future__ import annotations

import json
import math
import os

import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

from daskmetrics.cli import _maintain as maintain
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution import map
from daskmetrics.execution.map._api import opened

SUFFIXES = ["parquet", "csv", "jsonl", "zarr", "nc"]


def step(item: int) -> dict[str, object]:
    if item == 3:
        raise ValueError("three")
    return {"third": item / 3, "word": f"w{item}", "list": [item, 1.5], "nothing": None}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("at") / "runs" / "step"
    job = map.job(step, range(8), map.Options(batch_size=4, retries=0))
    with opened(folder) as journal:
        map.run(job, None, journal)
    return folder


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_was_written_says_what_the_journal_says(run, tmp_path, suffix):
    path = tmp_path / f"results.{suffix}"
    map.write(map.results(run), path)
    assert map.is_results(path)
    assert map.compare(path, run) == []
    assert map.folder_of(path, run.parent) == run


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_digit_is_found(run, tmp_path, suffix):
    path = tmp_path / f"results.{suffix}"
    map.write(map.results(run), path)
    _change(path)
    (difference,) = map.compare(path, run)
    assert (difference.item, difference.recorded, difference.again) == ("5", math.nextafter(5 / 3, 9), 5 / 3)
    assert difference.field in ("third", "value.third")


def _change(path) -> None:
    changed = math.nextafter(5 / 3, 9)
    match path.suffix:
        case ".csv" | ".jsonl":
            path.write_text(path.read_text().replace(repr(5 / 3), repr(changed)))
        case ".parquet":
            found = pd.read_parquet(path)
            found.loc[5, "third"] = changed
            found.to_parquet(path, index=False)
        case _:
            found = (xr.load_dataset(path) if path.suffix == ".nc" else xr.open_zarr(path, consolidated=False)).load()
            found["third"][5] = changed
            found.to_netcdf(path, engine="scipy") if path.suffix == ".nc" else found.to_zarr(
                path, mode="w", consolidated=False
            )


def test_rows_and_columns_that_are_lost_or_doubled_are_found(run, tmp_path):
    path = tmp_path / "results.csv"
    map.write(map.results(run), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    assert [(d.item, d.field, d.recorded) for d in map.compare(path, run)] == [("7", "row", "absent")]
    path.write_text("".join([*lines, lines[2]]))
    assert [(d.item, d.recorded) for d in map.compare(path, run)] == [("1", "twice")]
    pd.read_csv(path).drop(columns="word").drop_duplicates().to_csv(path, index=False)
    assert [(d.item, d.field, d.recorded) for d in map.compare(path, run)] == [("all", "word", "absent")]


def test_a_file_that_is_no_results_is_refused(run, tmp_path):
    path = tmp_path / "results.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read"):
        map.compare(path, run)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'index'"):
        map.compare(other, run)


def test_a_file_of_no_run_says_how_to_name_it(run, tmp_path):
    path = tmp_path / "results.csv"
    map.write(map.results(run), path)
    with pytest.raises(ConfigError, match=r"verify .*results\.csv --run FOLDER"):
        map.folder_of(path, tmp_path)


def test_verify_takes_a_results_file(run, tmp_path, monkeypatch):
    monkeypatch.chdir(run.parent.parent)
    path = tmp_path / "results.jsonl"
    map.write(map.results(run), path)
    given = CliRunner().invoke(maintain.verify, [os.fspath(path), "--sample", "0"])
    assert given.exit_code == 0 and "0 rows differ" in given.output and "8 of 8 items" in given.output, given.output
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[2]["value"]["word"] = "other"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    given = CliRunner().invoke(maintain.verify, [os.fspath(path), "--run", os.fspath(run), "--sample", "0"])
    assert given.exit_code == 1 and "value.word is 'other' in the file, 'w2' in the run" in given.output
