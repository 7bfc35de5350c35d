from __future__ import annotations

import math
import os
import random

import pandas as pd
import pytest
from click.testing import CliRunner

from daskmetrics.cli import main
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution.map import compare, results, verify, write
from daskmetrics.execution.map.api import open_journal, run
from daskmetrics.execution.map.folder import folder_of, is_map
from daskmetrics.execution.map.source import MapOptions, make_spec

SUFFIXES = ["parquet", "csv", "json", "jsonl"]
STATE = {"offset": 0}


def step(item: int, *, seed: int) -> dict[str, float]:
    return {"draw": random.Random(seed).random() + STATE["offset"], "clock": random.random()}


def other(item: int, *, seed: int) -> dict[str, float]:
    return {"draw": 0.0}


def mapped(folder, function, values, **options) -> None:
    with open_journal(folder) as journal:
        run(make_spec(function, values, MapOptions(4, 0), **options), None, journal)


@pytest.fixture
def folder(tmp_path):
    mapped(tmp_path, step, range(30))
    return tmp_path


def test_an_intact_map_passes_and_differences_count_by_field(folder, monkeypatch):
    again = {"function": step, "sample": 10}
    found = verify(folder, **again, ignore=["clock"])
    assert found.ok and (found.results, found.items, found.sampled) == (30, 30, 10)
    found = verify(folder, **again)
    assert not found.ok and [d.field for d in found.differences] == ["clock"] * 10
    monkeypatch.setitem(STATE, "offset", 1e-9)
    assert len(verify(folder, **again, ignore=["clock"]).differences) == 10
    assert verify(folder, **again, ignore=["clock"], tolerance=1e-6).ok


def cased(item: str) -> dict[str, float]:
    return {"Loss": random.random(), "loss": random.random()}


def test_items_and_fields_that_differ_in_case_are_counted_apart(tmp_path):
    mapped(tmp_path, cased, ["a", "A"])
    found = verify(tmp_path, function=cased)
    shown = found.text
    assert "2 items, 2 differ" in shown and "  loss: differs in 2 of 2" in shown


def test_deleted_or_changed_items_are_refused_until_a_rerun(folder):
    path = folder / "items.jsonl"
    before = path.read_text()
    path.unlink()
    assert is_map(folder)
    with pytest.raises(DataError, match=r"items.jsonl' is missing. Run the same map again"):
        verify(folder, sample=0)
    mapped(folder, step, range(30))
    for changed in ('"seven", 7', '"7", 700'):
        assert path.read_text() == before and verify(folder, sample=0).ok
        path.write_text(before.replace('"7", 7', changed))
        for read in (verify, results):
            with pytest.raises(DataError, match=r"items.jsonl' was changed. Run the same map"):
                read(folder)
        mapped(folder, step, range(30))


def test_another_function_is_refused_without_a_stated_version(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"code .* has changed"):
        verify(folder, function=other)
    with pytest.raises(ConfigError, match="as function="):
        verify(folder)
    mapped(tmp_path / "stated", step, range(5), version="one")
    found = verify(tmp_path / "stated", function=other, sample=5)
    assert {difference.field for difference in found.differences} == {"draw", "clock"}


def test_items_that_the_folder_does_not_contain_must_be_given(tmp_path):
    values = [(1, 2), (3, 4)]
    mapped(tmp_path, sum, values)
    assert verify(tmp_path, function=sum, values=values).ok
    for wrong in (None, [(1, 2), (3, 5)]):
        with pytest.raises(ConfigError, match="Give the items as values="):
            verify(tmp_path, function=sum, values=wrong)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("runs verify", 2, "The journal names no module"),
        ("status", 0, "30"),
        ("best", 2, "contains a map, not an experiment"),
        ("runs retry", 2, "--retry-failed"),
        ("runs repair", 2, "contains a map, not an experiment"),
        ("runs export", 2, "contains a map, not an experiment"),
    ],
)
def test_commands_recognize_a_map(folder, command, code, message):
    done = CliRunner().invoke(main, [*command.split(), str(folder)])
    assert done.exit_code == code and message in done.output


def with_a_failure(item: int) -> dict[str, object]:
    if item == 3:
        raise ValueError("three")
    return {"third": item / 3, "word": f"w{item}", "list": [item, 1.5], "nothing": None}


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("at") / "runs" / "step"
    mapped(folder, with_a_failure, range(8))
    return folder


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_results_file_equals_its_journal_until_a_digit_changes(failing, tmp_path, suffix):
    path = tmp_path / f"results.{suffix}"
    write(results(failing), path)
    assert compare(path, failing) == []
    assert folder_of(path, failing.parent) == failing
    changed = math.nextafter(5 / 3, 9)
    if suffix == "parquet":
        data = pd.read_parquet(path)
        data.loc[5, "third"] = changed
        data.to_parquet(path, index=False)
    else:
        path.write_text(path.read_text().replace(repr(5 / 3), repr(changed)))
    (difference,) = compare(path, failing)
    numbers = float(difference.recorded), float(difference.again)
    assert (difference.item, *numbers) == ("5", changed, 5 / 3)
    assert difference.field in ("third", "value.third")


def test_missing_and_duplicate_rows_and_columns_are_found(failing, tmp_path):
    path = tmp_path / "results.csv"
    write(results(failing), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    found = compare(path, failing)
    assert {(d.item, d.recorded) for d in found} == {("7", "absent")}
    assert {d.field for d in found} >= {"status", "third", "word"}
    path.write_text("".join([*lines, lines[2]]))
    assert [(d.item, d.recorded) for d in compare(path, failing)] == [("1", "twice")]
    table = pd.read_csv(path).drop(columns="word").drop_duplicates()
    table.assign(more=1).to_csv(path, index=False)
    found = compare(path, failing)
    assert {(d.field, d.recorded, d.again) for d in found if d.item == "2"} == {
        ("word", "absent", "w2"),
        ("more", "1", "absent"),
    }
    assert {d.item for d in found} == set("01234567")


def test_a_text_that_looks_missing_is_compared(tmp_path):
    path = tmp_path / "results.csv"
    mapped(tmp_path / "run", lambda item: "NA", range(2))
    write(results(tmp_path / "run"), path)
    path.write_text(path.read_text().replace("NA", ""))
    assert [d.again for d in compare(path, tmp_path / "run")] == ["NA", "NA"]


def test_a_file_without_results_is_refused(failing, tmp_path):
    path = tmp_path / "results.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read"):
        compare(path, failing)
    foreign = tmp_path / "other.csv"
    foreign.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column 'index'"):
        compare(foreign, failing)
    write(results(failing), tmp_path / "results.csv")
    with pytest.raises(ConfigError, match=r"verify .*results\.csv --run FOLDER"):
        folder_of(tmp_path / "results.csv", tmp_path)


def test_verify_accepts_a_results_file(failing, tmp_path, monkeypatch):
    monkeypatch.chdir(failing.parent.parent)
    damaged = failing.with_name("a-damaged-run")
    damaged.mkdir()
    (damaged / "items.jsonl").touch()
    (damaged / "journal.jsonl").write_text("damaged\n")
    path = tmp_path / "results.jsonl"
    write(results(failing), path)
    done = CliRunner().invoke(main, ["runs", "verify", os.fspath(path), "--sample", "0"])
    assert done.exit_code == 0, done.output
    assert "0 rows differ" in done.output and "8 of 8 items" in done.output
    path.write_text(path.read_text().replace('"w2"', '"other"'))
    options = [os.fspath(path), "--run", os.fspath(failing), "--sample", "0"]
    done = CliRunner().invoke(main, ["runs", "verify", *options])
    assert done.exit_code == 1
    assert "value.word is 'other' in the file, 'w2' in the run" in done.output
