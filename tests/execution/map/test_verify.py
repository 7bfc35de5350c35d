from __future__ import annotations

import json
import math
import os
import random

import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner

from daskmetrics.cli import _runs as maintain
from daskmetrics.cli import _show as show
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution.map import compare, results, verify, write
from daskmetrics.execution.map.api import open_journal, run
from daskmetrics.execution.map.folder import folder_of, is_results
from daskmetrics.execution.map.source import MapOptions, make_spec

SUFFIXES = ["parquet", "csv", "jsonl", "zarr", "nc"]
STATE = {"offset": 0}


def step(item: int, *, seed: int) -> dict[str, float]:
    return {"draw": random.Random(seed).random() + STATE["offset"], "clock": random.random()}


def other(item: int, *, seed: int) -> dict[str, float]:
    return {"draw": 0.0}


@pytest.fixture
def folder(tmp_path):
    again(tmp_path)
    return tmp_path


def test_an_intact_map_passes(folder):
    verification = verify(folder, function=step, ignore=["clock"], sample=10)
    assert verification.ok and (verification.results, verification.items, verification.sampled) == (
        30,
        30,
        10,
    )
    assert "30 of 30 items" in verification.text()


def test_differences_are_counted_by_field(folder):
    verification = verify(folder, function=step, sample=10)
    assert not verification.ok and {
        difference.field for difference in verification.differences
    } == {"clock"}
    assert "clock: differs in 10 of 10" in verification.text()


def test_a_result_that_is_not_reproducible_is_found(folder, monkeypatch):
    monkeypatch.setitem(STATE, "offset", 1e-9)
    again = {"function": step, "ignore": ["clock"], "sample": 30}
    assert len(verify(folder, **again).differences) == 30
    assert verify(folder, **again, tolerance=1e-6).ok


def test_a_changed_item_is_found(folder):
    path = folder / "items.jsonl"
    lines = path.read_text().splitlines()
    key, name, _ = json.loads(lines[7])
    lines[7] = json.dumps([key, name, 700])
    path.write_text("\n".join(lines) + "\n")
    assert verify(folder, sample=0).altered == ("7",)


def test_items_that_are_deleted_or_renamed_are_seen_and_the_same_map_writes_them_again(folder):
    path = folder / "items.jsonl"
    before = path.read_text()
    path.unlink()
    with pytest.raises(DataError, match=r"items.jsonl' is missing. Run the same map again"):
        verify(folder, sample=0)
    again(folder)
    assert path.read_text() == before and verify(folder, sample=0).ok
    path.write_text(before.replace('"7", 7', '"seven", 7'))
    found = verify(folder, sample=0)
    assert found.altered == ("items.jsonl",) and "Run the same map again" in found.text()
    with pytest.raises(DataError, match=r"items.jsonl' was changed. Run the same map again"):
        results(folder)
    again(folder)
    assert path.read_text() == before and len(results(folder)) == 30


def again(folder) -> None:
    with open_journal(folder) as journal:
        run(make_spec(step, range(30), MapOptions(batch_size=4)), None, journal)


def test_a_flipped_byte_is_found(folder):
    path = folder / "journal.jsonl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        verify(folder, sample=0)


def test_another_function_is_refused(folder):
    with pytest.raises(ConfigError, match=r"source .* has changed"):
        verify(folder, function=other)


def test_a_function_unknown_to_the_journal_must_be_given(folder):
    with pytest.raises(ConfigError, match="give it as function="):
        verify(folder)


def test_items_that_the_folder_does_not_contain_must_be_given(tmp_path):
    values = [(1, 2), (3, 4)]
    with open_journal(tmp_path) as journal:
        run(make_spec(sum, values), None, journal)
    with pytest.raises(ConfigError, match="give them as values="):
        verify(tmp_path, function=sum)
    assert verify(tmp_path, function=sum, values=values).ok
    assert verify(tmp_path, function=sum, values=[(1, 2), (3, 5)]).altered == ("(3, 4)",)


def test_a_stated_version_is_not_checked(tmp_path):
    with open_journal(tmp_path) as journal:
        run(make_spec(step, range(5), version="one"), None, journal)
    verification = verify(tmp_path, function=other, sample=5)
    assert {difference.field for difference in verification.differences} == {"draw", "clock"}


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (maintain.verify, 2, "The journal does not record which module"),
        (show.status, 0, "30"),
        (show.best, 2, "contains a map, not an experiment"),
        (maintain.retry, 2, "--retry-failed"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_commands_recognize_a_map(folder, command, code, message):
    done = CliRunner().invoke(command, [str(folder)])
    assert done.exit_code == code and message in done.output


def with_a_failure(item: int) -> dict[str, object]:
    if item == 3:
        raise ValueError("three")
    return {"third": item / 3, "word": f"w{item}", "list": [item, 1.5], "nothing": None}


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("at") / "runs" / "step"
    with open_journal(folder) as journal:
        run(make_spec(with_a_failure, range(8), MapOptions(batch_size=4, retries=0)), None, journal)
    return folder


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_results_file_agrees_with_the_journal(failing, tmp_path, suffix):
    path = tmp_path / f"results.{suffix}"
    write(results(failing), path)
    assert is_results(path)
    assert compare(path, failing) == []
    assert folder_of(path, failing.parent) == failing


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_changed_digit_is_found(failing, tmp_path, suffix):
    path = tmp_path / f"results.{suffix}"
    write(results(failing), path)
    _change(path)
    (difference,) = compare(path, failing)
    assert (difference.item, difference.recorded, difference.again) == (
        "5",
        math.nextafter(5 / 3, 9),
        5 / 3,
    )
    assert difference.field in ("third", "value.third")


def _change(path) -> None:
    changed = math.nextafter(5 / 3, 9)
    match path.suffix:
        case ".csv" | ".jsonl":
            path.write_text(path.read_text().replace(repr(5 / 3), repr(changed)))
        case ".parquet":
            data = pd.read_parquet(path)
            data.loc[5, "third"] = changed
            data.to_parquet(path, index=False)
        case _:
            data = (
                xr.load_dataset(path)
                if path.suffix == ".nc"
                else xr.open_zarr(path, consolidated=False)
            ).load()
            data["third"][5] = changed
            data.to_netcdf(path, engine="scipy") if path.suffix == ".nc" else data.to_zarr(
                path, mode="w", consolidated=False
            )


def test_missing_and_duplicate_rows_and_columns_are_found(failing, tmp_path):
    path = tmp_path / "results.csv"
    write(results(failing), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    assert [(d.item, d.field, d.recorded) for d in compare(path, failing)] == [
        ("7", "row", "absent")
    ]
    path.write_text("".join([*lines, lines[2]]))
    assert [(d.item, d.recorded) for d in compare(path, failing)] == [("1", "twice")]
    pd.read_csv(path).drop(columns="word").drop_duplicates().to_csv(path, index=False)
    assert [(d.item, d.field, d.recorded) for d in compare(path, failing)] == [
        ("all", "word", "absent")
    ]


def test_a_file_without_results_is_refused(failing, tmp_path):
    path = tmp_path / "results.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read"):
        compare(path, failing)
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'index'"):
        compare(other, failing)


def test_the_message_explains_how_to_name_the_run_of_a_file(failing, tmp_path):
    path = tmp_path / "results.csv"
    write(results(failing), path)
    with pytest.raises(ConfigError, match=r"verify .*results\.csv --run FOLDER"):
        folder_of(path, tmp_path)


def test_verify_accepts_a_results_file(failing, tmp_path, monkeypatch):
    monkeypatch.chdir(failing.parent.parent)
    path = tmp_path / "results.jsonl"
    write(results(failing), path)
    done = CliRunner().invoke(maintain.verify, [os.fspath(path), "--sample", "0"])
    assert (
        done.exit_code == 0 and "0 rows differ" in done.output and "8 of 8 items" in done.output
    ), done.output
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[2]["value"]["word"] = "other"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = CliRunner().invoke(
        maintain.verify, [os.fspath(path), "--run", os.fspath(failing), "--sample", "0"]
    )
    assert (
        done.exit_code == 1 and "value.word is 'other' in the file, 'w2' in the run" in done.output
    )
