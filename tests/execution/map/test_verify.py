from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from daskmetrics.cli import _maintain as maintain
from daskmetrics.cli import _show as show
from daskmetrics.core.errors import ConfigError, DataError
from daskmetrics.execution import map
from daskmetrics.execution.map._api import opened

STATE = {"offset": 0}


def step(item: int, *, seed: int) -> dict[str, float]:
    return {"draw": random.Random(seed).random() + STATE["offset"], "clock": random.random()}


def other(item: int, *, seed: int) -> dict[str, float]:
    return {"draw": 0.0}


@pytest.fixture
def run(tmp_path):
    job = map.job(step, range(30), map.Options(batch_size=4))
    with opened(tmp_path) as journal:
        map.run(job, None, journal)
    return tmp_path


def test_a_sound_map_is_sound(run):
    found = map.verify(run, function=step, ignore=["clock"], sample=10)
    assert found.ok and (found.results, found.items, found.sampled) == (30, 30, 10)
    assert "30 of 30 items" in found.text()


def test_what_differs_is_named_by_field(run):
    found = map.verify(run, function=step, sample=10)
    assert not found.ok and {difference.field for difference in found.differences} == {"clock"}
    assert "clock: differs in 10 of 10" in found.text()


def test_a_result_that_cannot_be_had_again_is_found(run, monkeypatch):
    monkeypatch.setitem(STATE, "offset", 1e-9)
    again = {"function": step, "ignore": ["clock"], "sample": 30}
    assert len(map.verify(run, **again).differences) == 30
    assert map.verify(run, **again, tolerance=1e-6).ok


def test_a_changed_item_is_found(run):
    path = run / "items.jsonl"
    lines = path.read_text().splitlines()
    key, name, _ = json.loads(lines[7])
    lines[7] = json.dumps([key, name, 700])
    path.write_text("\n".join(lines) + "\n")
    assert map.verify(run, sample=0).strange == ("7",)


def test_a_flipped_byte_is_found(run):
    path = run / "journal.jsonl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        map.verify(run, sample=0)


def test_another_function_is_refused(run):
    with pytest.raises(ConfigError, match="its source has changed"):
        map.verify(run, function=other)


def test_a_function_that_the_journal_does_not_name_is_asked_for(run):
    with pytest.raises(ConfigError, match="give it as function="):
        map.verify(run)


def test_items_that_the_folder_cannot_hold_are_asked_for(tmp_path):
    values = [(1, 2), (3, 4)]
    with opened(tmp_path) as journal:
        map.run(map.job(sum, values, map.Options()), None, journal)
    with pytest.raises(ConfigError, match="give them as values="):
        map.verify(tmp_path, function=sum)
    assert map.verify(tmp_path, function=sum, values=values).ok
    assert map.verify(tmp_path, function=sum, values=[(1, 2), (3, 5)]).strange == ("(3, 4)",)


def test_a_version_that_was_stated_is_believed(tmp_path):
    with opened(tmp_path) as journal:
        map.run(map.job(step, range(5), map.Options(), version="one"), None, journal)
    found = map.verify(tmp_path, function=other, sample=5)
    assert {difference.field for difference in found.differences} == {"draw", "clock"}


@pytest.mark.parametrize(
    ("verb", "code", "said"),
    [
        (maintain.verify, 2, "The journal does not say where"),
        (show.status, 0, "30"),
        (show.best, 2, "holds a map, not an experiment"),
        (maintain.retry, 2, "--retry-failed"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_verbs_know_a_map(run, verb, code, said):
    done = CliRunner().invoke(verb, [str(run)])
    assert done.exit_code == code and said in done.output
